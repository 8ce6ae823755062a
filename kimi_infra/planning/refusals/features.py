"""Features and their modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kimi_infra.domain.recipe import DeployType, Feature, Mode
from kimi_infra.errors import Fault
from kimi_infra.planning.refusals import wording
from kimi_infra.planning.refusals.asked import Asked


def faults(asked: Asked) -> Iterator[Fault]:
    """Yield what is wrong with the features that are on."""
    for index, name in enumerate(asked.features):
        where = f"features[{index}]"
        feature = asked.recipe.features.get(name)
        if feature is None:
            yield wording.unknown(where, "feature", name, asked.recipe.features)
        elif name not in asked.features[:index]:
            yield from _one(asked, where, name, feature)
    yield from repeated(asked)


def repeated(asked: Asked) -> Iterator[Fault]:
    """Yield features that are named twice, whatever they are."""
    for index, name in enumerate(asked.features):
        if name in asked.features[:index]:
            yield wording.fault(f"features[{index}]", f"feature {name} is named twice", name, "name it once")


def modes(asked: Asked) -> Iterator[Fault]:
    """Yield what is wrong with the modes that are picked."""
    for name, mode in asked.choice.feature_modes.items():
        where = f"feature_modes.{name}"
        feature = asked.recipe.features.get(name)
        if feature is None:
            yield wording.unknown(where, "feature", name, asked.recipe.features)
        elif not feature.modes:
            yield wording.fault(where, f"feature {name} has no modes", mode, "leave its mode out")
        elif mode not in feature.modes:
            yield wording.unknown(where, f"mode of feature {name}", mode, feature.modes)
        elif name not in asked.features:
            what = f"feature {name} is not switched on, so that its mode decides nothing"
            yield wording.fault(where, what, mode, "switch the feature on, or leave its mode out")
        else:
            yield from _mode(asked, where, name, feature.modes)


def _one(asked: Asked, where: str, name: str, feature: Feature) -> Iterator[Fault]:
    strategy = asked.strategy
    if strategy is not None and not feature.applies_under(strategy.name):
        what = f"feature {name} does not work with strategy {strategy.name}"
        remedy = f"leave it out, or choose strategy {wording.any_of(feature.strategies)}"
        yield wording.fault(where, what, name, remedy)
    if feature.modes and all(_objection(asked, mode) for mode in feature.modes.values()):
        what = f"feature {name} has no mode for variant {asked.choice.variant} on {asked.choice.hardware}"
        yield wording.fault(where, what, name, "leave it out")
    if feature.companion:
        what = f"feature {name} needs a helper process beside the engine"
        yield from _helper(asked, where, name, what)


def _mode(asked: Asked, where: str, name: str, modes: Mapping[str, Mode]) -> Iterator[Fault]:
    mode = asked.choice.feature_modes[name]
    objection = _objection(asked, modes[mode])
    works = [key for key, other in modes.items() if _objection(asked, other) is None]
    # Where no mode is left at all, that is told of the feature.
    if objection and works:
        what = f"mode {mode} of feature {name} {objection}"
        yield wording.fault(where, what, mode, f"choose {wording.any_of(works)}")


def _objection(asked: Asked, mode: Mode) -> str | None:
    """Return why a mode cannot be had, None where it can."""
    choice, profile = asked.choice, asked.profile
    if asked.variant is not None and mode.variants and choice.variant not in mode.variants:
        return f"is not there for variant {choice.variant}"
    if profile is not None and mode.unsupported_hardware & {profile.generation, profile.key}:
        return f"does not work on hardware {profile.key}"
    return None


def _helper(asked: Asked, where: str, name: str, what: str) -> Iterator[Fault]:
    """Yield the parts of a choice that leave no place for a feature's helper process."""
    store, strategy = asked.choice.kv_offload, asked.strategy
    if store in asked.catalogue.kv_stores:
        against = f"{what}, and kv_offload {store} has no place for one"
        yield wording.fault(where, against, name, f"leave it out, or leave kv_offload {store} out")
    elif strategy is not None and strategy.deploy_type is not DeployType.SINGLE_NODE:
        against = f"{what}, and strategy {strategy.name} has no place for one"
        yield wording.fault(where, against, name, "leave it out, or choose a single-node strategy")
