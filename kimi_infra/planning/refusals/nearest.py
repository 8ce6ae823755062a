"""The nearest placement that works: same hardware first, as hosts are harder to change than a strategy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.recipe import POOLS, DeployType, Strategy
from kimi_infra.planning import defaults, merge
from kimi_infra.planning.refusals import offers, terms, wording
from kimi_infra.planning.refusals.asked import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A strategy on a number of nodes."""

    profile: HardwareProfile
    strategy: str
    nodes: int
    pools: Mapping[str, int] = field(default_factory=dict)

    def described(self, asked: Asked) -> str:
        """Say how to choose it."""
        many = wording.pools(self.pools) if self.pools else wording.counted(self.nodes, "node")
        if self.profile.key == asked.choice.hardware:
            return f"choose strategy {self.strategy} with {many}"
        return f"choose hardware {self.profile.key} with strategy {self.strategy} and {many}"


def remedy(asked: Asked) -> str:
    """Say which placement is the nearest to what was asked for."""
    found = _sorted(asked)
    return found[0].described(asked) if found else "choose another model"


def hardware(asked: Asked) -> tuple[str, ...]:
    """Return hardware that works, the nearest first: with the same strategy where there is any."""
    found = _sorted(asked)
    same = [it for it in found if it.strategy == asked.choice.strategy]
    return tuple(dict.fromkeys(it.profile.key for it in same or found))[: wording.SHOWN]


def strategies(asked: Asked, profile: HardwareProfile | None) -> tuple[str, ...]:
    """Return strategies that work on a kind of hardware, or on any, the nearest first."""
    works = [it.strategy for it in _sorted(asked) if profile is None or it.profile.key == profile.key]
    return tuple(dict.fromkeys(works))[: wording.SHOWN]


def fitting_nodes(asked: Asked, profile: HardwareProfile, mode: str) -> int:
    """Return the smallest number of nodes that holds the weights and a strategy's, or a pool mode's, GPUs."""
    floor = defaults.floor(asked.recipe, mode, profile.key)
    least = asked.variant.vram_minimum_gb if asked.variant else 0
    held = math.ceil(least / profile.vram_gb) if profile.vram_gb else 1
    return max(1, math.ceil(floor / profile.gpus_per_node), held)


def pool_mode(asked: Asked, found: Strategy, role: str) -> str:
    """Return the mode that a pool is asked to have: the choice's, the recipe's, else the strategy's."""
    stated = asked.pools.get(role)
    override = asked.recipe.strategy_overrides.get(found.name)
    of_recipe = override.roles.get(role) if override else None
    of_strategy = found.roles.get(role)
    modes = (it.parallelism for it in (stated, of_recipe, of_strategy) if it is not None)
    return next((mode for mode in modes if mode is not None), "tp")


def pool_nodes(asked: Asked, found: Strategy, profile: HardwareProfile, role: str) -> int:
    """Return the nodes that a pool takes: the recipe's number, else the smallest."""
    override = asked.recipe.strategy_overrides.get(found.name)
    of_recipe = override.roles.get(role) if override else None
    stated = merge.by_hardware(of_recipe.nodes, profile) if of_recipe else None
    return stated or fitting_nodes(asked, profile, pool_mode(asked, found, role))


def _sorted(asked: Asked) -> list[Placement]:
    return sorted(_all(asked), key=lambda it: _distance(asked, it))


def _all(asked: Asked) -> Iterator[Placement]:
    for profile in asked.catalogue.profiles.values():
        if offers.objection(asked.recipe, asked.choice.variant, asked.variant, profile) is None:
            for name in offers.strategies(asked.catalogue, asked.recipe, profile):
                if terms.allowed(asked.recipe, profile, name):
                    yield from _placements(asked, profile, asked.catalogue.strategies[name])


def _placements(asked: Asked, profile: HardwareProfile, found: Strategy) -> Iterator[Placement]:
    if asked.recipe.layouts is None:
        yield from _by_rules(asked, profile, found)
        return
    for layout in asked.recipe.layouts:
        if (layout.strategy, layout.hardware) == (found.name, profile.key):
            least = fitting_nodes(asked, profile, found.name)
            for nodes in (it for it in layout.nodes if layout.pools or it >= least):
                yield Placement(profile=profile, strategy=found.name, nodes=nodes, pools=layout.pools)


def _by_rules(asked: Asked, profile: HardwareProfile, found: Strategy) -> Iterator[Placement]:
    if found.deploy_type is DeployType.PD_CLUSTER:
        pools = {role: pool_nodes(asked, found, profile, role) for role in POOLS}
        if profile.scalable and max(pools.values()) <= defaults.NODES_MAX:
            yield Placement(profile=profile, strategy=found.name, nodes=sum(pools.values()), pools=pools)
        return
    least = fitting_nodes(asked, profile, found.name)
    several = found.deploy_type is DeployType.MULTI_NODE
    nodes = max(least, 2) if several else least
    if nodes <= (defaults.NODES_MAX if several and profile.scalable else 1):
        yield Placement(profile=profile, strategy=found.name, nodes=nodes)


def _distance(asked: Asked, placement: Placement) -> tuple[bool | int, ...]:
    choice = asked.choice
    profile = placement.profile
    chosen = asked.catalogue.profiles.get(choice.hardware, profile)
    return (
        profile.key != chosen.key,
        profile.preview and not choice.accept_preview,
        profile.brand != chosen.brand,
        profile.generation != chosen.generation,
        placement.strategy != choice.strategy,
        _family(placement.strategy) != _family(choice.strategy),
        abs(placement.nodes - choice.nodes),
    )


def _family(strategy: str) -> str:
    return strategy.removeprefix("single_node_").removeprefix("multi_node_")
