"""Commands to start from: the recipe page's own text, and what a test changes in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kimi_infra.domain.launch import EnvEntry, Flag, Launch, Role
from kimi_infra.domain.provenance import Origin, Provenance

SEED = Path(__file__).parents[1] / "golden" / "render" / "seed"
_HERE = Provenance(origin=Origin.OURS, source="a test")


def seed(file: str, rank: int) -> Launch:
    """Read one of the page's commands."""
    lines = (SEED / file).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    exports = [line.removeprefix("export ").partition("=") for line in lines if line.startswith("export ")]
    (command,) = (line for line in lines if line.startswith("vllm serve "))
    env = {name: value for name, _, value in exports}
    return launch(shlex.split(command)[2:], env=env, rank=rank)


def head() -> Launch:
    """Return the page's command for node 0."""
    return seed("head.txt", 0)


def worker() -> Launch:
    """Return the page's command for node 1."""
    return seed("node-1.txt", 1)


def launch(argv: Sequence[str], *, env: Mapping[str, str] | None = None, rank: int = 0) -> Launch:
    """Make a launch of words: the model, then flags with their values."""
    flags: list[Flag] = []
    for word in argv[1:]:
        if word.startswith("-"):
            flags.append(Flag(tokens=(word,), provenance=_HERE))
        else:
            flags[-1] = replace(flags[-1], tokens=(*flags[-1].tokens, word))
    return Launch(
        rank=rank,
        role=Role.WORKER if rank else Role.HEAD,
        model_id=argv[0],
        flags=tuple(flags),
        env=tuple(EnvEntry(name=name, value=it, provenance=_HERE) for name, it in (env or {}).items()),
        image=None,
    )


def with_flag(before: Launch, *tokens: str) -> Launch:
    """Give a flag in place of the one of the same name, else behind all others."""
    new = Flag(tokens=tokens, provenance=_HERE)
    if all(flag.name != new.name for flag in before.flags):
        return replace(before, flags=(*before.flags, new))
    return replace(before, flags=tuple(new if flag.name == new.name else flag for flag in before.flags))


def without_flag(before: Launch, name: str) -> Launch:
    """Take a flag away."""
    return replace(before, flags=tuple(flag for flag in before.flags if flag.name != name))


def with_env(before: Launch, name: str, value: str) -> Launch:
    """Add a variable."""
    return replace(before, env=(*before.env, EnvEntry(name=name, value=value, provenance=_HERE)))
