"""The probe's request and its answer: what is asked of one host, and facts out of what it printed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kimi_infra import hostside
from kimi_infra.domain.facts import HostFacts
from kimi_infra.domain.inventory import Deployment, Inventory
from kimi_infra.errors import HostError

_SECONDS = 45
"""The probe's own limit, inside that of the connection that carries it."""
_REMEDY = "run the probe by hand: ssh HOST sudo python3 - '{}' < kimi_infra/hostside/probe.py"
_SHOWN = 200
"""Characters of an answer that a message repeats."""


def source() -> str:
    """The program, for the standard input of :func:`command`."""
    return hostside.probe_source()


def command(asked: str) -> tuple[str, ...]:
    """Return the words that run the probe on a host as root."""
    return ("python3", "-", asked)


def request(
    inventory: Inventory, host_name: str, *, hash_models: bool = False, seconds: int = _SECONDS
) -> str:
    """Return what to ask one host, as JSON.

    Args:
        inventory: Its deployments on the host say what matters there.
        host_name: The host.
        hash_models: Whether to hash the weights, too; minutes to hours on real ones.
        seconds: The probe's own limit.
    """
    own = [item for item in inventory.deployments if any(host.name == host_name for host in item.hosts)]
    asked = {
        "addresses": _unique(host.engine_address for item in own for host in item.hosts),
        "images": _unique(item.image.reference for item in own),
        "paths": _unique(path for item in own for path in _paths(item)),
        "hash_paths": _unique(item.model_path for item in own) if hash_models else [],
        "seconds": seconds,
    }
    return json.dumps(asked, sort_keys=True)


def parse(host_name: str, text: str) -> HostFacts:
    """Return the facts in what the probe printed.

    Lines before the last one are left alone: a host's login may greet.

    Raises:
        HostError: the probe could not finish, or this is no answer of it.
    """
    answer = _answer(host_name, text)
    try:
        return _facts(answer)
    except (KeyError, TypeError, ValueError) as error:
        shown = ascii(text.strip()[-_SHOWN:])
        raise HostError(host_name, f"the probe's answer is incomplete: {error} ({shown})", _REMEDY) from error


def _answer(host_name: str, text: str) -> Mapping[str, Any]:
    lines = text.strip().split("\n")
    try:
        answer = json.loads(lines[-1])
    except (ValueError, RecursionError) as error:
        raise HostError(
            host_name, f"the probe printed no answer, but {lines[-1][:_SHOWN]!a}", _REMEDY
        ) from error
    if not isinstance(answer, dict):
        raise HostError(host_name, f"the probe printed no object, but {lines[-1][:_SHOWN]!a}", _REMEDY)
    if "error" in answer:
        raise HostError(host_name, str(answer["error"]), _REMEDY)
    return answer


def _facts(answer: Mapping[str, Any]) -> HostFacts:
    release = _texts(answer, "os_release")
    docker = answer["docker"]
    return HostFacts(
        boot_id=_text(answer, "boot_id"),
        architecture=_text(answer, "architecture"),
        devices=_texts(answer, "devices"),
        routes=_texts(answer, "routes"),
        images=_texts(answer, "images"),
        paths=_texts(answer, "paths"),
        docker=None if docker is None else _text(answer, "docker"),
        memory_total=_count(answer, "memory_total"),
        hashes=_texts(answer, "hashes"),
        os_release=f"{release['id']} {release['version']}".strip(),
        errors=_lines(answer, "errors"),
    )


def _text(answer: Mapping[str, Any], key: str) -> str:
    value = answer[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not text")
    return value


def _count(answer: Mapping[str, Any], key: str) -> int:
    value = answer[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} is not a number of bytes")
    return value


def _texts(answer: Mapping[str, Any], key: str) -> dict[str, str]:
    value = answer[key]
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise TypeError(f"{key} does not map texts to texts")
    return dict(value)


def _lines(answer: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = answer[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{key} is not a list of texts")
    return tuple(value)


def _paths(deployment: Deployment) -> tuple[str, ...]:
    return (deployment.model_path, *(mount.path for mount in deployment.mounts))


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
