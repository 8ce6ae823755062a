"""The nearest placement that works: same hardware first, as hosts are harder to change than a strategy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.recipe import POOLS, DeployType, Strategy
from kimi_infra.planning import defaults, merge
from kimi_infra.planning.refusals import offers, rest, terms, wording
from kimi_infra.planning.refusals.asked import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A strategy on a number of nodes."""

    profile: HardwareProfile
    strategy: str
    nodes: int
    pools: Mapping[str, int] = field(default_factory=dict)

    @property
    def many(self) -> str:
        """Its nodes, for people."""
        return wording.pools(self.pools) if self.pools else wording.counted(self.nodes, "node")

    def described(self, asked: Asked) -> str:
        """Say how to choose it."""
        if self.profile.key == asked.choice.hardware:
            return f"choose strategy {self.strategy} with {self.many}"
        return f"choose hardware {self.profile.key} with strategy {self.strategy} and {self.many}"


def remedy(asked: Asked) -> str:
    """Say which placement is the nearest to what was asked for."""
    found = _first(asked, _all(asked))
    return found.described(asked) if found else "choose another model"


def hardware(asked: Asked) -> tuple[str, ...]:
    """Return hardware that works, the nearest first: with the same strategy where there is any."""
    found = _sorted(asked, _all(asked))
    same = [it for it in found if it.strategy == asked.choice.strategy]
    return tuple(dict.fromkeys(it.profile.key for it in same or found))[: wording.SHOWN]


def strategies(asked: Asked, profile: HardwareProfile | None) -> tuple[str, ...]:
    """Return strategies that work with the rest of a choice, the nearest first.

    On a kind of hardware each is told with its nodes; without one it is any strategy that works anywhere.
    """
    found = _sorted(asked, (it for it in _all(asked) if profile is None or it.profile.key == profile.key))
    counts = [_against(asked, it) for it in found]
    works = [it for it, count in zip(found, counts, strict=True) if count == min(counts)]
    nearest = {it.strategy: it for it in reversed(works)}
    names = tuple(dict.fromkeys(it.strategy for it in works))[: wording.SHOWN]
    return tuple(name if profile is None else f"{name} with {nearest[name].many}" for name in names)


def of_strategies(asked: Asked, profile: HardwareProfile, names: tuple[str, ...]) -> Placement | None:
    """Return the nearest placement of some strategies on a kind of hardware, None where there is none."""
    named = (it for it in _all(asked) if it.profile.key == profile.key and it.strategy in names)
    return _first(asked, named)


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


def _sorted(asked: Asked, found: Iterable[Placement]) -> list[Placement]:
    return sorted(found, key=lambda it: _distance(asked, it))


def _first(asked: Asked, found: Iterable[Placement]) -> Placement | None:
    """Return the nearest; what speaks against a placement is asked of those on the nearest hardware only."""
    apart: dict[tuple[bool, ...], list[Placement]] = {}
    for it in found:
        apart.setdefault(_apart(asked, it), []).append(it)
    return min(apart[min(apart)], key=lambda it: _distance(asked, it)) if apart else None


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
    return (
        *_apart(asked, placement),
        _against(asked, placement),
        placement.strategy != choice.strategy,
        _family(placement.strategy) != _family(choice.strategy),
        abs(placement.nodes - choice.nodes),
    )


def _apart(asked: Asked, placement: Placement) -> tuple[bool, ...]:
    """Return how far a placement's hardware is from the chosen one."""
    choice, preset = asked.choice, asked.preset
    profile = placement.profile
    chosen = asked.catalogue.profiles.get(choice.hardware, profile)
    return (
        preset is not None and (preset.hardware, preset.strategy) != (profile.key, placement.strategy),
        profile.key != chosen.key,
        profile.preview and not choice.accept_preview,
        profile.brand != chosen.brand,
        profile.generation != chosen.generation,
    )


def _against(asked: Asked, it: Placement) -> int:
    return rest.objections(asked, it.profile, it.strategy, it.nodes, it.pools)


def _family(strategy: str) -> str:
    return strategy.removeprefix("single_node_").removeprefix("multi_node_")
