"""Preset, decode context parallelism, KV offload and the instances of a KV store."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from kimi_infra.domain.recipe import BASELINE, DeployType, KvOption, KvStore, Preset, Recipe
from kimi_infra.errors import Fault
from kimi_infra.planning import parallel
from kimi_infra.planning.refusals import terms, wording
from kimi_infra.planning.refusals.asked import Asked
from kimi_infra.planning.refusals.terms import Facts

_STORE_BRANDS = ("NVIDIA", "AMD")
"""Brands for which the public page offers KV stores."""
_PAGE_SIZES = (8,)
"""Sizes that the public page offers where a recipe has no row of its own."""


def preset(asked: Asked) -> Iterator[Fault]:
    """Yield what contradicts the preset."""
    name = asked.choice.preset
    if name is None or name == BASELINE:
        return
    found = asked.recipe.presets.get(name)
    if found is None:
        yield wording.unknown("preset", "preset", name, (*asked.recipe.presets, BASELINE))
        return
    apart = tuple(_apart(asked, found))
    if apart:
        sets = wording.all_of([f"{field} {own}" for field, own, _ in apart])
        chosen = wording.all_of([f"{field} {other}" if other else f"no {field}" for field, _, other in apart])
        what = f"preset {name} sets {sets}, and {chosen} was chosen"
        wrong = {field: own for field, own, _ in apart}
        if _foreign(asked, found):  # its own placement is what works, whatever the other hardware would take
            placed = {"hardware": found.hardware, "strategy": found.strategy, "nodes": found.nodes}
            wrong = placed | wrong
        works = wording.all_of([f"{field} {own}" for field, own in wrong.items()])
        yield wording.fault("preset", what, name, f"choose {works}, or leave preset out")


def brought(asked: Asked, where: str) -> bool:
    """Tell whether a fault blames what a preset brought along to hardware that is not its own.

    The preset is what does not go with such hardware; nobody asked for its parts by themselves.
    """
    found, choice = asked.preset, asked.choice
    if found is None or not _foreign(asked, found):
        return False
    parts = {f"features[{index}]": name in found.features for index, name in enumerate(asked.features)}
    parts["strategy"] = choice.strategy == found.strategy
    parts["nodes"] = choice.nodes == found.nodes
    parts["dcp"] = choice.dcp == found.dcp
    parts["kv_offload"] = choice.kv_offload == found.kv_offload
    return parts.get(where, False)


def _foreign(asked: Asked, found: Preset) -> bool:
    return asked.profile is not None and asked.choice.hardware != found.hardware


def dcp_sizes(recipe: Recipe) -> tuple[int, ...]:
    """Return the sizes of decode context parallelism that a recipe offers."""
    if recipe.dcp:
        return recipe.dcp.sizes
    return _PAGE_SIZES if recipe.supports_dcp else ()


def dcp_offered(asked: Asked, facts: Facts) -> Iterator[Fault]:
    """Yield what is wrong with the size of decode context parallelism in itself."""
    size = asked.choice.dcp
    if size is None:
        return
    sizes = dcp_sizes(asked.recipe)
    if not sizes:
        what = f"{asked.choice.model} does not offer decode context parallelism"
        yield wording.fault("dcp", what, str(size), "leave dcp out")
    elif size not in sizes:
        what = f"dcp {size} is not offered{wording.said(terms.said_of(asked.recipe, 'dcp', facts))}"
        works = [str(other) for other in sizes if _takes(asked, other, facts)]
        remedy = f"give {wording.any_of(works)}" if works else "leave dcp out"
        yield wording.fault("dcp", what, str(size), remedy)


def _takes(asked: Asked, size: int, facts: Facts) -> bool:
    """Tell whether nothing in a choice speaks against an offered size of decode context parallelism."""
    ruled = {**facts, "dcp": (str(size),)}
    if any(terms.broken(rule, ruled) and terms.on(rule, "dcp") for rule in asked.recipe.rules):
        return False
    other = dataclasses.replace(asked, choice=dataclasses.replace(asked.choice, dcp=size))
    return not asked.described or dcp_divides(other) is None


def dcp_divides(asked: Asked) -> Fault | None:
    """Return what is wrong with dcp in the TP group of one engine; pools are seen when they are compiled."""
    size, strategy, profile = asked.choice.dcp, asked.strategy, asked.profile
    if size is None or strategy is None or profile is None or asked.variant is None or asked.clustered:
        return None
    shape = parallel.engine(asked.recipe, asked.variant, strategy, profile, asked.choice.nodes)
    words = [word.text for word in parallel.engine_words(shape, 0)]
    sizes = [value for word, value in itertools.pairwise(words) if word == parallel.TENSOR_PARALLEL]
    group = int(sizes[-1]) if sizes else 1
    return undivided(size, group, f"strategy {strategy.name}") if group % size else None


def undivided(size: int, group: int, whose: str) -> Fault:
    """Build the fault of a size that does not divide the tensor-parallel group."""
    what = f"dcp {size} does not divide the tensor-parallel size {group} of {whose}"
    return wording.fault("dcp", what, str(size), "leave dcp out, or choose a strategy whose TP it divides")


def kv_offload(asked: Asked) -> Iterator[Fault]:
    """Yield what is wrong with the KV offload."""
    name, catalogue = asked.choice.kv_offload, asked.catalogue
    if name is None:
        return
    option, store = catalogue.kv_options.get(name), catalogue.kv_stores.get(name)
    if option is None and store is None:
        yield wording.unknown("kv_offload", "KV offload", name, (*catalogue.kv_options, *catalogue.kv_stores))
        return
    objections = _option(asked, option) if option else _store(asked, store) if store else iter(())
    for what in objections:
        works = [key for key, it in catalogue.kv_options.items() if next(_option(asked, it), None) is None]
        others = f", or choose {wording.any_of(works[: wording.SHOWN])}" if works else ""
        yield wording.fault("kv_offload", what, name, f"leave kv_offload out{others}")


def kv_instances(asked: Asked) -> Iterator[Fault]:
    """Yield what is wrong with the engines around a KV store."""
    asks = asked.choice.kv_instances
    if asks is None:
        return
    store = asked.catalogue.kv_stores.get(asked.choice.kv_offload or "")
    if store is None:
        chosen = f"kv_offload {asked.choice.kv_offload}" if asked.choice.kv_offload else "no kv_offload"
        what = f"instances stand around a KV store, and {chosen} was chosen"
        stores = wording.any_of(tuple(asked.catalogue.kv_stores)[: wording.SHOWN])
        remedy = "leave kv_instances out" + (f", or choose kv_offload {stores}" if stores else "")
        yield wording.fault("kv_instances", what, None, remedy)
        return
    if asked.clustered:
        what = f"instances are engines of their own, and strategy {asked.choice.strategy} has pools instead"
        yield wording.fault("kv_instances", what, None, "leave kv_instances out")
        return
    count = store.default_instances if asks.count is None else asks.count
    if count < 1:
        what = "a KV store needs at least one engine"
        yield wording.fault("kv_instances.count", what, str(count), "give at least 1")
    elif not 0 <= asks.current < count:
        what = f"{wording.counted(count, 'instance')} of {store.name} are counted from 0"
        remedy = f"give a number from 0 to {count - 1}"
        yield wording.fault("kv_instances.current", what, str(asks.current), remedy)


def _apart(asked: Asked, found: Preset) -> Iterator[tuple[str, object, object]]:
    choice = asked.choice
    for field, own, chosen in (
        ("hardware", found.hardware if asked.profile else None, choice.hardware),
        ("strategy", found.strategy if asked.strategy else None, choice.strategy),
        ("nodes", found.nodes if choice.nodes > 0 else None, choice.nodes),
        ("dcp", found.dcp, choice.dcp),
        ("kv_offload", found.kv_offload, choice.kv_offload),
    ):
        if own is not None and own != chosen:
            yield field, own, chosen


def _option(asked: Asked, option: KvOption) -> Iterator[str]:
    support = asked.recipe.kv_offload_support.get(option.name)
    who = f"kv_offload {option.name}"
    if support == "unsupported":
        yield f"{who} is marked as unsupported by {asked.recipe.key}"
    elif option.requires_opt_in and support != "verified":
        yield f"{who} works only where a recipe says that it was verified, and {asked.recipe.key} does not"
    if asked.profile and option.brands and asked.profile.brand not in option.brands:
        brands = wording.any_of(option.brands)
        yield f"{who} works on {brands} only, and hardware {asked.profile.key} is {asked.profile.brand}"
    if asked.strategy is None:
        return
    name = asked.strategy.name
    if asked.clustered:
        if not option.pools:
            yield f"{who} has no pool of strategy {name} that takes it"
    elif option.strategies and name not in option.strategies:
        yield f"{who} works with strategy {wording.any_of(option.strategies)} only, and {name} was chosen"
    elif option.companion and asked.strategy.deploy_type is not DeployType.SINGLE_NODE:
        yield f"{who} needs a helper process beside the engine, and strategy {name} has no place for one"


def _store(asked: Asked, store: KvStore) -> Iterator[str]:
    who = f"KV store {store.name}"
    profile = asked.profile
    if profile:
        mark = asked.recipe.kv_store_hardware.get(store.name, {}).get(profile.key)
        if mark == "unsupported":
            yield f"{who} is marked as unsupported on hardware {profile.key} by {asked.recipe.key}"
        elif profile.brand not in _STORE_BRANDS:
            brands = wording.any_of(_STORE_BRANDS)
            yield f"{who} works on {brands} only, and hardware {profile.key} is {profile.brand}"
    if asked.clustered and not store.pools:
        yield f"{who} says nothing of the pools of strategy {asked.choice.strategy}"
