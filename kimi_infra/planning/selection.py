"""A choice with its names looked up: what is unknown or does not apply is left out, as on the public page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice, Instances
from kimi_infra.domain.recipe import (
    Catalogue,
    DeployType,
    Feature,
    KvOption,
    KvStore,
    Preset,
    Recipe,
    Strategy,
    StrategyOverride,
    Variant,
    Words,
)
from kimi_infra.planning import merge, presets
from kimi_infra.planning.values import Filling

_NO_OVERRIDE = StrategyOverride()
_NO_VARIANT = Variant()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """A choice with its names looked up; what is unknown is replaced by the public rules' nothing."""

    choice: Choice
    recipe: Recipe
    variant: Variant
    strategy: Strategy
    override: StrategyOverride
    profile: HardwareProfile
    features: tuple[Feature, ...]
    """Switched on and applying under the strategy."""
    feature_args: Words
    kv_option: KvOption | None
    kv_store: KvStore | None
    preset: Preset | None
    filling: Filling
    strict: bool
    """Whether several KV connectors are composed; the public rule keeps the last one."""

    @property
    def cluster(self) -> bool:
        """Whether prefill and decode run apart."""
        return self.strategy.deploy_type is DeployType.PD_CLUSTER

    @property
    def instances(self) -> tuple[int, int]:
        """Engines behind a KV store's router, and the index of the one that is asked for."""
        asked = self.choice.kv_instances or Instances()
        default = self.kv_store.default_instances if self.kv_store else 1
        count = asked.count if asked.count is not None and asked.count >= 1 else default
        return count, max(0, min(count - 1, asked.current))


def selected(catalogue: Catalogue, choice: Choice, *, strict: bool) -> Selected:
    """Look up the names of a choice.

    Raises:
        SpecError: the recipe is unknown or cannot be read.
    """
    recipe = catalogue.recipe(choice.model)
    variant = recipe.variants.get(choice.variant) or recipe.variants.get("default") or _NO_VARIANT
    profile = catalogue.profiles.get(choice.hardware) or _nothing_known(choice.hardware)
    strategy = catalogue.strategies.get(choice.strategy) or Strategy(
        name=choice.strategy, title=choice.strategy, deploy_type=DeployType.SINGLE_NODE
    )
    store = catalogue.kv_stores.get(choice.kv_offload) if choice.kv_offload else None
    composing = store is not None and strategy.deploy_type is not DeployType.PD_CLUSTER
    features = tuple(_features(recipe, choice, composing=composing))
    return Selected(
        choice=choice,
        recipe=recipe,
        variant=variant,
        strategy=strategy,
        override=recipe.strategy_overrides.get(choice.strategy, _NO_OVERRIDE),
        profile=profile,
        features=tuple(feature for _, feature in features),
        feature_args=tuple(
            word
            for name, feature in features
            for word in _feature_words(name, feature, variant, profile, choice)
        ),
        kv_option=_kv_option(catalogue, recipe, strategy, profile, choice),
        kv_store=store,
        preset=presets.chosen(catalogue, choice),
        filling=Filling(known={**catalogue.values, **recipe.values}, given=choice.values),
        strict=strict,
    )


def mode_of(
    feature: str, found: Feature, variant: Variant, profile: HardwareProfile, choice: Choice
) -> str | None:
    """Return the mode in which a pick-one feature works, None when none is allowed here."""
    allowed = [
        key
        for key, mode in found.modes.items()
        if (not mode.variants or choice.variant in mode.variants)
        and not mode.unsupported_hardware & {profile.generation, profile.key}
    ]
    picks = (choice.feature_modes.get(feature), variant.default_modes.get(feature), found.default_mode)
    return next((pick for pick in (*picks, *allowed) if pick in allowed), None)


def _nothing_known(key: str) -> HardwareProfile:
    return HardwareProfile(key=key, title=key, brand="", generation="", gpus_per_node=1)


def _features(recipe: Recipe, choice: Choice, *, composing: bool) -> Iterator[tuple[str, Feature]]:
    names = choice.features
    if names is None:
        names = recipe.default_features(choice.strategy, choice.hardware, choice.variant)
    for name in names:
        feature = recipe.features.get(name)
        # A KV store's deployment has no place for a feature's helper process.
        hidden = feature is not None and composing and feature.companion is not None
        if feature is not None and feature.applies_under(choice.strategy) and not hidden:
            yield name, feature


def _feature_words(
    name: str, feature: Feature, variant: Variant, profile: HardwareProfile, choice: Choice
) -> Words:
    if feature.modes:
        key = mode_of(name, feature, variant, profile, choice)
        if key is None:
            return ()
        mode = feature.modes[key]
        replaced = merge.by_hardware(mode.hardware_overrides, profile)
        return mode.args if replaced is None else replaced
    replaced = merge.by_generation(feature.hardware_overrides, profile)
    return feature.args if replaced is None else replaced


def _kv_option(
    catalogue: Catalogue, recipe: Recipe, strategy: Strategy, profile: HardwareProfile, choice: Choice
) -> KvOption | None:
    option = catalogue.kv_options.get(choice.kv_offload) if choice.kv_offload else None
    # A KV store asked for as a strategy deploys no engine of its own, which an option could be put into.
    if option is None or strategy.name in catalogue.kv_stores:
        return None
    support = recipe.kv_offload_support.get(option.name)
    works = support == "verified" if option.requires_opt_in else support != "unsupported"
    if not works or (option.brands and profile.brand not in option.brands):
        return None
    if strategy.deploy_type is DeployType.PD_CLUSTER:
        return option if option.pools else None
    return option if not option.strategies or strategy.name in option.strategies else None
