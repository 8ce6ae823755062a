"""What the rest of a choice says against another placement of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import PoolChoice
from kimi_infra.domain.recipe import Rule
from kimi_infra.errors import Fault
from kimi_infra.planning.refusals import asked, features, options, terms
from kimi_infra.planning.refusals.asked import Asked


def objections(
    it: Asked, profile: HardwareProfile, strategy: str, nodes: int, pools: Mapping[str, int]
) -> int:
    """Count what speaks against the features, dcp and KV offload of a choice on another placement."""
    choice = dataclasses.replace(
        it.choice,
        hardware=profile.key,
        strategy=strategy,
        nodes=nodes,
        pools={role: PoolChoice(nodes=size) for role, size in pools.items()} or None,
    )
    # Features that the recipe chooses by itself may be others there.
    other = asked.of(it.catalogue, choice, it.recipe)
    return len(tuple(_rules(other))) + len(tuple(_parts(other)))


def _rules(other: Asked) -> Iterator[Rule]:
    facts = terms.facts(other)
    for rule in other.recipe.rules:
        # What kind of rule it is, is asked last: few are broken.
        if terms.broken(rule, facts) and not terms.on_placement(rule) and not terms.on_command(rule):
            yield rule


def _parts(other: Asked) -> Iterator[Fault]:
    yield from features.faults(other)
    yield from features.modes(other)
    yield from options.kv_offload(other)
    # A size that is offered nowhere speaks against no placement.
    offered = other.choice.dcp in options.dcp_sizes(other.recipe)
    undivided = options.dcp_divides(other) if offered else None
    yield from (undivided,) if undivided else ()
