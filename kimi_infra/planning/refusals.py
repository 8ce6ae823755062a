"""What does not go together: each refusal names the two things that conflict and what works instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeVar

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Catalogue, DeployType, Layout, Recipe, Strategy, Variant, unknown_name
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import images, parallel

T = TypeVar("T")


def check(catalogue: Catalogue, choice: Choice) -> None:
    """Refuse a choice that cannot be compiled.

    Raises:
        SpecError: every fault found, in the order of the choice's fields.
    """
    order = [field.name for field in dataclasses.fields(Choice)]
    faults = sorted(_faults(catalogue, choice), key=lambda it: order.index(it.where.partition("[")[0]))
    if faults:
        raise SpecError(tuple(faults))


def _faults(catalogue: Catalogue, choice: Choice) -> Iterator[Fault]:
    faults: list[Fault] = []
    recipe = _looked_up(catalogue.recipe, choice.model, faults)
    profile = _looked_up(catalogue.hardware, choice.hardware, faults)
    if recipe is None:
        _looked_up(catalogue.strategy, choice.strategy, faults)
    yield from faults
    if choice.nodes < 1:
        yield _fault("nodes", "an engine needs at least one node", str(choice.nodes), "give at least 1")
    if recipe is None:
        return
    yield from _features(recipe, choice)
    variant = recipe.variants.get(choice.variant)
    if variant is None:
        yield unknown_name("variant", "variant", choice.variant, recipe.variants)
    if choice.strategy not in recipe.strategies:
        yield _strategy_not_offered(catalogue, recipe, choice)
    if profile is None:
        return
    hardware_fault = _hardware_not_offered(catalogue, recipe, variant, choice)
    if hardware_fault:
        yield hardware_fault
    elif choice.strategy in recipe.strategies and choice.nodes > 0:
        yield from _placement(catalogue, recipe, choice, profile)
    if profile.preview and not choice.accept_preview:
        yield _preview(choice)


def _looked_up(find: Callable[[str], T], name: str, faults: list[Fault]) -> T | None:
    try:
        return find(name)
    except SpecError as error:
        faults.extend(error.faults)
        return None


def _features(recipe: Recipe, choice: Choice) -> Iterator[Fault]:
    chosen = recipe.default_features(choice.strategy) if choice.features is None else choice.features
    for index, name in enumerate(chosen):
        where = f"features[{index}]"
        feature = recipe.features.get(name)
        if feature is None:
            yield unknown_name(where, "feature", name, recipe.features)
        elif name in chosen[:index]:
            yield _fault(where, f"feature {name} is named twice", name, "name it once")
        elif feature.unknown:
            what = f"feature {name} is not compiled in this version: nobody has published {feature.unknown}"
            yield _fault(where, what, name, "leave it out")
        elif feature.strategies is not None and choice.strategy not in feature.strategies:
            what = f"feature {name} does not work with strategy {choice.strategy}"
            yield _fault(where, what, name, f"leave it out, or choose strategy {_any_of(feature.strategies)}")


def _strategy_not_offered(catalogue: Catalogue, recipe: Recipe, choice: Choice) -> Fault:
    offered_anywhere = {name for other in catalogue.recipes.values() for name in other.strategies}
    if choice.strategy not in offered_anywhere | set(catalogue.strategies):
        return unknown_name("strategy", "strategy", choice.strategy, recipe.strategies)
    what = f"{choice.model} does not offer strategy {choice.strategy}"
    compiled = {layout.strategy for layout in recipe.layouts or ()} or set(recipe.strategies)
    works = tuple(name for name in recipe.strategies if name in compiled)
    return _fault("strategy", what, choice.strategy, f"choose {_any_of(works)}")


def _hardware_not_offered(
    catalogue: Catalogue, recipe: Recipe, variant: Variant | None, choice: Choice
) -> Fault | None:
    allowed = (variant.supported_hardware if variant else ()) or tuple(catalogue.profiles)
    offered = tuple(key for key in allowed if key not in recipe.unsupported_hardware)
    if choice.hardware in offered:
        return None
    what = f"{choice.model} is not offered on {choice.hardware}"
    compiled = {layout.hardware for layout in recipe.layouts or ()} or set(offered)
    works = tuple(key for key in offered if key in compiled)
    return _fault("hardware", what, choice.hardware, f"choose {_any_of(works)}")


def _placement(
    catalogue: Catalogue, recipe: Recipe, choice: Choice, profile: HardwareProfile
) -> Iterator[Fault]:
    strategy = catalogue.strategies.get(choice.strategy)
    layouts = [it for it in recipe.layouts or () if it.strategy in parallel.STRATEGIES]
    fitting = [it for it in layouts if (it.strategy, it.hardware) == (choice.strategy, choice.hardware)]
    known = strategy and choice.strategy in parallel.STRATEGIES and images.compiled(profile)
    if not known or (recipe.layouts is not None and not fitting):
        yield _not_compiled(choice, layouts)
    elif fitting and choice.nodes not in fitting[0].nodes:
        yield _wrong_nodes(choice, fitting[0])
    elif strategy and not fitting:
        yield from _deploy_type(strategy, choice)


def _not_compiled(choice: Choice, layouts: list[Layout]) -> Fault:
    what = f"strategy {choice.strategy} on hardware {choice.hardware} is not compiled in this version"
    # The same hardware first: hosts are harder to change than a strategy.
    works = sorted(layouts, key=lambda it: (it.hardware != choice.hardware, it.strategy != choice.strategy))
    remedy = f"choose {_described(works[0])}" if works else f"choose {_any_of(tuple(parallel.STRATEGIES))}"
    return _fault("strategy", what, choice.strategy, remedy)


def _wrong_nodes(choice: Choice, layout: Layout) -> Fault:
    nearest = min(layout.nodes, key=lambda nodes: abs(nodes - choice.nodes))
    what = f"{choice.nodes} nodes do not fit strategy {choice.strategy} on hardware {choice.hardware}"
    return _fault("nodes", what, str(choice.nodes), f"give {nearest}")


def _deploy_type(strategy: Strategy, choice: Choice) -> Iterator[Fault]:
    """Hold a recipe without layouts to its strategy's own rule."""
    single = strategy.deploy_type is DeployType.SINGLE_NODE
    if single != (choice.nodes == 1):
        what = f"{choice.nodes} nodes do not fit strategy {choice.strategy}"
        remedy = "give 1, or choose a multi-node strategy" if single else "give at least 2"
        yield _fault("nodes", what, str(choice.nodes), remedy)


def _preview(choice: Choice) -> Fault:
    what = f"hardware {choice.hardware} is a preview, published as neither tuned nor verified"
    remedy = "write accept_preview: true, or choose other hardware"
    return _fault("accept_preview", what, "false", remedy)


def _described(layout: Layout) -> str:
    nodes = _any_of(tuple(str(number) for number in layout.nodes))
    noun = "node" if layout.nodes == (1,) else "nodes"
    return f"{layout.strategy} on {layout.hardware} with {nodes} {noun}"


def _any_of(names: tuple[str, ...]) -> str:
    return " or ".join(names) if names else "another model: there is none"


def _fault(where: str, what: str, got: str, remedy: str) -> Fault:
    return Fault(where=where, what=what, got=got, remedy=remedy)
