"""A compiled choice for programs: every command as words, and who vouches for each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from kimi_infra.domain.launch import EnvEntry, Flag, Launch, Resolution
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.rendering import docker_page

_COMMAND = Provenance(origin=Origin.VLLM, source="the command")
_MODEL = Provenance(origin=Origin.OPERATOR, source="model")


def document(found: Resolution) -> str:
    """Return a choice's commands, what they still need, and what is said about them."""
    whole = {
        "nodes": [_node(launch) for launch in found.launches],
        "router": words(found.router),
        "companions": [asdict(companion) for companion in found.companions],
        "needs": [asdict(need) for need in found.needs],
        "notes": list(found.notes),
        "warnings": [asdict(fault) for fault in found.warnings],
    }
    return json.dumps(whole, indent=2) + "\n"


def node(launch: Launch) -> dict[str, object]:
    """Return what one node runs, without its origins."""
    return {
        "role": launch.role.value,
        "rank": launch.rank,
        "argv": list(launch.argv),
        "env": {entry.name: entry.value for entry in launch.env},
        "image": launch.image,
    }


def words(argv: Sequence[str] | None) -> list[str] | None:
    """Return a command, where there is one."""
    return None if argv is None else list(argv)


def _node(launch: Launch) -> dict[str, object]:
    tokens = [origin for flag in launch.flags for origin in flag.token_provenances]
    origins = {
        "argv": [_origin(each) for each in (_COMMAND, _COMMAND, _MODEL, *tokens)],
        "env": {entry.name: _origin(entry.provenance) for entry in launch.env},
    }
    replaced = [*map(_flag, launch.replaced_flags), *map(_entry, launch.replaced_env)]
    docker = words(docker_page.argv(launch))
    return {**node(launch), "docker": docker, "provenance": origins, "replaced": replaced}


def _flag(flag: Flag) -> dict[str, object]:
    return {"argv": list(flag.tokens), **_origin(flag.value_provenance or flag.provenance)}


def _entry(entry: EnvEntry) -> dict[str, object]:
    return {"env": {entry.name: entry.value}, **_origin(entry.provenance)}


def _origin(provenance: Provenance) -> dict[str, str]:
    return {"origin": provenance.origin.value, "source": provenance.source}
