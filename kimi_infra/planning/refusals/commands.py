"""What is wrong with a choice and can be seen in its compiled commands only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Flag, Launch, Resolution, Role
from kimi_infra.domain.provenance import Origin
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import Fault
from kimi_infra.planning import connectors, parallel
from kimi_infra.planning.refusals import (
    arguments,
    asked,
    dropped,
    options,
    rules,
    settings,
    spelling,
    wording,
)

TIERS = frozenset({"SimpleCPUOffloadConnector", "OffloadingConnector"})
"""Connectors that keep the cache's prefixes in host memory."""
_NO_PREFIXES = "--no-enable-prefix-caching"
_CONTEXT_PARALLEL = "--decode-context-parallel-size"
_POOLS = (Role.PREFILL, Role.DECODE)


def after(catalogue: Catalogue, choice: Choice, resolution: Resolution) -> tuple[Fault, ...]:
    """Return every reason against a choice that shows in what it was compiled to, each once.

    Raises:
        SpecError: the recipe is unknown or cannot be read.
    """
    it = asked.of(catalogue, choice, catalogue.recipe(choice.model))
    # Nodes of one kind differ in ranks and addresses alone: what is wrong with one is wrong with all.
    kinds = {
        (launch.role, launch.env, tuple(flag.tokens[0] for flag in launch.flags)): launch
        for launch in reversed(resolution.launches)
    }
    found = [fault for launch in reversed(kinds.values()) for fault in _faults(it, launch)]
    return tuple(dict.fromkeys((*found, *dropped.values(it, resolution))))


def _faults(it: asked.Asked, launch: Launch) -> Iterator[Fault]:
    choice = it.choice
    names = [flag.tokens[0] for flag in launch.flags if flag.tokens[0].startswith("-")]
    spelt = [spelling.option(name) for name in names]
    if _CONTEXT_PARALLEL in spelt:
        yield from _undivided(choice, launch)
    if _NO_PREFIXES in names:
        yield from _idle_tier(choice, launch)
    yield from _beginnings(launch, frozenset(spelt))
    if len(set(spelt)) < len(spelt):
        yield from _contradictions(launch)
    yield from dropped.flags(it, launch)
    yield from rules.of_command(it, launch)


def _beginnings(launch: Launch, names: frozenset[str]) -> Iterator[Fault]:
    """Yield the operator's words that are mere beginnings of another flag in the same command."""
    own = [
        (flag, where)
        for flag in launch.flags
        if flag.name.startswith("-") and (where := settings.place(flag.provenance)) is not None
    ]
    cut = spelling.beginnings(names) if own else frozenset()
    for flag, where in own:
        name = spelling.option(flag.name)
        whole = spelling.cut(flag.name, tuple(sorted(names - {name}))) if name in cut else None
        if whole:
            yield arguments.beginning(where, whole, flag.name.partition("=")[0])


def _undivided(choice: Choice, launch: Launch) -> Iterator[Fault]:
    last = _last(launch, {_CONTEXT_PARALLEL, parallel.TENSOR_PARALLEL})
    size, group = last.get(_CONTEXT_PARALLEL), last.get(parallel.TENSOR_PARALLEL)
    if size is None or not _number(size):
        return
    # Of one engine's own sizes the choice was refused before it was compiled.
    derived = group is None or group.provenance.origin is Origin.DERIVED
    if choice.dcp is not None and derived and launch.role not in _POOLS:
        return
    many = _number(group) or 1
    if many % _number(size):
        yield options.undivided(_number(size), many, f"{launch.role.value} nodes")


def _idle_tier(choice: Choice, launch: Launch) -> Iterator[Fault]:
    """Yield the tier that vLLM switches off with a mere warning, as no prefixes are kept."""
    tiers = [child.name for child in _connectors(launch) if child.name in TIERS]
    if tiers:
        source = next(flag.provenance for flag in launch.flags if flag.tokens[0] == _NO_PREFIXES)
        what = (
            f"vLLM switches the KV tier {tiers[0]} off where {_NO_PREFIXES} stands in the same command, "
            f"as it does for {launch.role.value} nodes ({source})"
        )
        where = "advanced_args" if choice.kv_offload is None else "kv_offload"
        remedy = f"leave {tiers[0] if choice.kv_offload is None else where} out, or {_NO_PREFIXES}"
        yield wording.fault(where, what, choice.kv_offload or tiers[0], remedy)


def _connectors(launch: Launch) -> Iterator[connectors.Connector]:
    for flag in launch.flags:
        if spelling.option(flag.tokens[0]) == connectors.FLAG:
            read = connectors.parse(settings.value(flag))
            yield from read.children if read else ()


def _contradictions(launch: Launch) -> Iterator[Fault]:
    first: dict[str, Flag] = {}
    for flag in launch.flags:
        if not flag.tokens[0].startswith("-"):
            continue
        before = first.setdefault(spelling.option(flag.tokens[0]), flag)
        if before is not flag and _apart(before, flag):
            yield _contradiction(before, flag)


def _apart(before: Flag, flag: Flag) -> bool:
    """Tell whether two spellings of one option say different things; keys of one JSON object do not."""
    inside = spelling.dotted(before.tokens[0]), spelling.dotted(flag.tokens[0])
    if all(inside):
        return False
    negative = spelling.negative(before.tokens[0]), spelling.negative(flag.tokens[0])
    return any(inside) or negative[0] != negative[1] or settings.value(before) != settings.value(flag)


def _contradiction(before: Flag, flag: Flag) -> Fault:
    spellings = " and ".join(" ".join(it.tokens) for it in (before, flag))
    what = f"{spellings} set one option in two ways: the second is not seen as a repetition of the first"
    for own, other in ((flag, before), (before, flag)):
        where = own.provenance.source
        if settings.place(own.provenance):
            remedy = f"leave {own.tokens[0]} out, or write it as {other.tokens[0]}"
            return wording.fault(where, what, " ".join(own.tokens), remedy)
    return wording.fault("model", what, " ".join(flag.tokens), "keep one of them in the recipe")


def _last(launch: Launch, names: set[str]) -> Mapping[str, Flag]:
    return {
        name: flag for flag in launch.flags for name in (spelling.option(flag.tokens[0]),) if name in names
    }


def _number(flag: Flag | None) -> int:
    value = settings.value(flag) if flag else ""
    return int(value) if value.isdecimal() else 0
