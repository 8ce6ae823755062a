"""Every reason against a choice, before it is compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Catalogue, Recipe
from kimi_infra.errors import Fault
from kimi_infra.planning.refusals import (
    arguments,
    asked,
    features,
    naming,
    options,
    placement,
    pools,
    rules,
    terms,
    wording,
)

_ORDER = {field.name: index for index, field in enumerate(dataclasses.fields(Choice))}


def faults(catalogue: Catalogue, choice: Choice) -> tuple[Fault, ...]:
    """Return every reason against a choice over which its preset has been laid, in the order of its fields.

    What follows from a fault is not told beside it.

    Raises:
        SpecError: the recipe's file cannot be read.
    """
    found = tuple(_faults(catalogue, choice))
    if found and choice.preset is not None and choice.model in catalogue.recipes:
        it = asked.of(catalogue, choice, catalogue.recipe(choice.model))
        found = tuple(fault for fault in found if not options.brought(it, fault.where))
    return tuple(sorted(found, key=_place)) if len(found) > 1 else found


def _place(fault: Fault) -> tuple[int, int]:
    """Return a fault's field, and its place in a list."""
    field, _, rest = fault.where.partition("[")
    index = rest.partition("]")[0]
    return _ORDER.get(field.partition(".")[0], len(_ORDER)), int(index) if index.isdecimal() else 0


def _faults(catalogue: Catalogue, choice: Choice) -> Iterator[Fault]:
    if choice.nodes < 1 and not choice.pools:
        yield wording.fault(
            "nodes", "an engine needs at least one node", str(choice.nodes), "give at least 1"
        )
    if choice.model not in catalogue.recipes:
        yield from _without_recipe(catalogue, choice)
        return
    recipe = catalogue.recipe(choice.model)
    if recipe.omni:
        what = "omni recipes belong to the page's other resolver; they are out of scope"
        remedy = "choose a recipe whose tasks are text, multimodal or embedding"
        yield wording.fault("model", what, choice.model, remedy)
        return
    known = asked.of(catalogue, choice, recipe)
    if known.variant is None:
        yield wording.unknown("variant", "variant", choice.variant, recipe.variants)
    hardware = naming.hardware(known)
    if hardware:
        yield hardware
        known = dataclasses.replace(known, profile=None)
    strategy = naming.strategy(known, known.profile)
    if strategy:
        yield strategy
        known = dataclasses.replace(known, strategy=None)
    yield from _together(known)


def _without_recipe(catalogue: Catalogue, choice: Choice) -> Iterator[Fault]:
    """Yield what is wrong whatever the recipe: names that are unknown to the whole catalogue, and forms."""
    yield wording.unknown("model", "model", choice.model, catalogue.recipes)
    for where, name, known in (
        ("hardware", choice.hardware, catalogue.profiles),
        ("strategy", choice.strategy, catalogue.strategies),
    ):
        if name not in known:
            yield wording.unknown(where, where, name, known)
    offload = choice.kv_offload
    if offload is not None and offload not in catalogue.kv_options and offload not in catalogue.kv_stores:
        known_offloads = (*catalogue.kv_options, *catalogue.kv_stores)
        yield wording.unknown("kv_offload", "KV offload", offload, known_offloads)
    any_recipe = Recipe(key=choice.model, model_id=choice.model, title=choice.model, tasks=())
    it = asked.of(catalogue, choice, any_recipe)
    yield from placement.anywhere(it)
    yield from features.repeated(it)
    yield from pools.names(it)
    yield from arguments.advanced(it)


def _together(it: asked.Asked) -> Iterator[Fault]:
    """Yield what does not go together among what is known and offered."""
    facts = terms.facts(it)
    yield from placement.faults(it, facts)
    yield from features.faults(it)
    yield from features.modes(it)
    yield from options.preset(it)
    yield from options.kv_offload(it)
    yield from options.kv_instances(it)
    yield from pools.faults(it, facts)
    yield from arguments.advanced(it)
    yield from arguments.values(it)
    ruled = tuple(rules.faults(it, facts))
    yield from ruled
    yield from _dcp(it, facts, ruled=any(fault.where == "dcp" for fault in ruled))


def _dcp(it: asked.Asked, facts: terms.Facts, *, ruled: bool) -> Iterator[Fault]:
    offered = tuple(options.dcp_offered(it, facts))
    yield from offered
    undivided = None if offered or ruled or not it.described else options.dcp_divides(it)
    yield from (undivided,) if undivided else ()
