"""What a choice leaves open: hardware, strategy and number of nodes as the public page opens with them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice, PoolChoice
from kimi_infra.domain.recipe import Catalogue, Constraint, DeployType, Layout, Recipe, Variant
from kimi_infra.planning import presets

NODES_MAX = 16
"""Most nodes that the page grows an engine to."""

_BLACKWELL = Constraint(brand="NVIDIA", generation="blackwell")
_PRECISIONS: Mapping[str, Constraint] = {"nvfp4": _BLACKWELL, "fp4": _BLACKWELL}
_FIRST_OF_BLACKWELL = ("b200", "gb200")
_FIRST = "h200"
_BRANDS = ("NVIDIA", "AMD")
"""Order of the page's last resort; other brands follow, each by the keys of its hardware."""
_FAMILIES = ("multi_node_tp", "multi_node_dep", "multi_node_tep")
"""Order in which several nodes are put to use where the recipe recommends nothing."""
_SINGLE = "single_node_"


def filled(catalogue: Catalogue, choice: Choice, absent: AbstractSet[str]) -> Choice:
    """Fill in the fields that were left out, as the public page does.

    Args:
        catalogue: The recipes.
        choice: With any stand-in in the fields of ``absent``.
        absent: Of ``hardware``, ``strategy`` and ``nodes``.

    Raises:
        SpecError: the recipe is unknown or cannot be read.
    """
    recipe = catalogue.recipe(choice.model)
    variant = recipe.variants.get(choice.variant) or recipe.variants.get("default") or Variant()
    if "hardware" in absent:
        choice = dataclasses.replace(choice, hardware=hardware(catalogue, recipe, variant))
    if "nodes" in absent:
        asked = None if "strategy" in absent else choice.strategy
        choice = dataclasses.replace(choice, nodes=_nodes(catalogue, recipe, variant, choice, asked))
    if "strategy" in absent:
        choice = dataclasses.replace(choice, strategy=strategy(recipe, choice.nodes))
    return choice


def described(catalogue: Catalogue, choice: Choice, absent: AbstractSet[str]) -> Choice:
    """Fill in what was left out from the preset and the placements that the publisher describes.

    Where neither says anything, the public page's rules do; raises as :func:`filled`.
    """
    if "nodes" in absent and choice.pools:
        choice = dataclasses.replace(choice, nodes=sum(pool.nodes or 0 for pool in choice.pools.values()))
        absent = absent - {"nodes"} if choice.nodes else absent
    recipe = catalogue.recipe(choice.model)
    preset = presets.chosen(catalogue, choice)
    if preset:
        laid = {"hardware": preset.hardware, "strategy": preset.strategy, "nodes": preset.nodes}
        return dataclasses.replace(choice, **{name: laid[name] for name in absent})  # type: ignore[arg-type]
    if "hardware" in absent:
        choice = filled(catalogue, choice, {"hardware"})
        absent -= {"hardware"}
    layout = _described(recipe, choice, absent)
    if layout is None:
        return _spread(catalogue, filled(catalogue, choice, absent), absent)
    return dataclasses.replace(
        choice,
        strategy=layout.strategy,
        nodes=layout.nodes[0] if "nodes" in absent and layout.nodes else choice.nodes,
        pools=choice.pools or _pools(layout),
    )


def hardware(catalogue: Catalogue, recipe: Recipe, variant: Variant) -> str:
    """Return the hardware that the page opens with."""
    offered = {profile.key: profile for profile in offered_hardware(catalogue, recipe, variant)}
    if recipe.default_hardware is not None and recipe.default_hardware in offered:
        return recipe.default_hardware
    needed = constraint(variant)
    first: tuple[str, ...] = _FIRST_OF_BLACKWELL if needed and needed.generation == "blackwell" else ()
    for key in (*first, _FIRST):
        if key in offered:
            return key
    return min(offered, key=lambda key: (_brand_order(offered[key].brand), key), default=_FIRST)


def offered_hardware(catalogue: Catalogue, recipe: Recipe, variant: Variant) -> tuple[HardwareProfile, ...]:
    """Return the hardware that a variant can be asked for on."""
    needed = constraint(variant)
    return tuple(
        profile
        for profile in catalogue.profiles.values()
        if (needed is None or needed.fits(profile))
        and profile.key not in recipe.unsupported_hardware
        and (not variant.supported_hardware or profile.key in variant.supported_hardware)
        and (not profile.restricted or profile.key in recipe.hardware_marks)
    )


def constraint(variant: Variant) -> Constraint | None:
    """Return the hardware that a variant's precision needs."""
    return variant.precision_hardware or _PRECISIONS.get(variant.precision)


def strategy(recipe: Recipe, nodes: int) -> str:
    """Return the strategy that the page recommends for a number of nodes."""
    offered = recipe.offered_strategies
    stated = recipe.default_strategy
    if stated is not None and stated in offered:
        if nodes == 1 or not stated.startswith(_SINGLE):
            return stated
        sibling = stated.replace(_SINGLE, "multi_node_", 1)
        if sibling in offered:
            return sibling
    several = _FAMILIES if nodes > 1 else ()
    return _first_of((*several, "single_node_tp"), offered) or next(iter(offered), "") or "single_node_tp"


def floor(recipe: Recipe, strategy: str, hardware: str) -> int:
    """Return the number of GPUs that a strategy needs at least, 0 where the recipe states none."""
    stated = recipe.strategy_min_gpus
    own = stated.get(hardware, 0)
    return max(_stated(stated, strategy), _stated({"*": own} if isinstance(own, int) else own, strategy))


def _nodes(catalogue: Catalogue, recipe: Recipe, variant: Variant, choice: Choice, asked: str | None) -> int:
    profile = catalogue.profiles.get(choice.hardware)
    if profile is None or not profile.scalable:
        return 1
    scales = any(_scales(catalogue, name) for name in recipe.offered_strategies)
    fits = not profile.vram_gb or variant.vram_minimum_gb <= profile.vram_gb
    nodes = 1 if fits or not scales else 2
    name = strategy(recipe, nodes) if asked is None else asked
    if not _scales(catalogue, name):
        return nodes
    needed = math.ceil(floor(recipe, name, choice.hardware) / profile.gpus_per_node)
    return min(NODES_MAX, max(nodes, needed))


def _described(recipe: Recipe, choice: Choice, absent: AbstractSet[str]) -> Layout | None:
    """Return the placement that agrees with what was asked: the recommended strategy's, else the first."""
    fitting = [
        layout
        for layout in recipe.layouts or ()
        if layout.hardware == choice.hardware
        and ("strategy" in absent or layout.strategy == choice.strategy)
        and ("nodes" in absent or choice.nodes in layout.nodes)
    ]
    order = [strategy(recipe, 1), *recipe.offered_strategies]
    return min(fitting, key=lambda layout: _place(order, layout.strategy), default=None)


def _pools(layout: Layout) -> Mapping[str, PoolChoice] | None:
    return {role: PoolChoice(nodes=nodes) for role, nodes in layout.pools.items()} or None


def _spread(catalogue: Catalogue, choice: Choice, absent: AbstractSet[str]) -> Choice:
    """Give a strategy for several nodes two, where the number is ours to choose."""
    found = catalogue.strategies.get(choice.strategy)
    if "nodes" in absent and choice.nodes == 1 and found and found.deploy_type is DeployType.MULTI_NODE:
        return dataclasses.replace(choice, nodes=2)
    return choice


def _scales(catalogue: Catalogue, name: str) -> bool:
    found = catalogue.strategies.get(name)
    return found is not None and found.deploy_type is not DeployType.SINGLE_NODE


def _stated(block: Mapping[str, int | Mapping[str, int]], strategy: str) -> int:
    """Read one block of floors: by strategy, or by the mode of a pool."""
    for key in (strategy, f"multi_node_{strategy}", f"single_node_{strategy}", "*"):
        value = block.get(key)
        if isinstance(value, int):
            return value
    return 0


def _first_of(wanted: Iterable[str], offered: tuple[str, ...]) -> str | None:
    return next((name for name in wanted if name in offered), None)


def _place(order: list[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def _brand_order(brand: str) -> int:
    return _BRANDS.index(brand) if brand in _BRANDS else len(_BRANDS)
