"""Recipe + choice → what each rank runs, in the recipe page's own terms.

The order of the groups is the public format's. Unlike the public page, nothing is dropped in silence:
what does not go together is refused (:mod:`kimi_infra.planning.refusals`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Launch, Role
from kimi_infra.domain.recipe import (
    Catalogue,
    Feature,
    Recipe,
    Settings,
    Strategy,
    StrategyOverride,
    Variant,
    Word,
)
from kimi_infra.planning import images, merge, parallel, refusals

_NOTHING = Settings()
_NO_OVERRIDE = StrategyOverride(settings=_NOTHING, hardware_overrides={})


def resolve(catalogue: Catalogue, choice: Choice) -> tuple[Launch, ...]:
    """Return one launch a node, in the order of their ranks.

    Raises:
        SpecError: every reason for which the choice is refused; a fault's place is a field of
            :class:`~kimi_infra.domain.inventory.Choice`, for example ``strategy`` or ``features[0]``.
    """
    refusals.check(catalogue, choice)
    chosen = _chosen(catalogue, choice)
    return tuple(_launch(chosen, rank) for rank in range(choice.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """A choice with its names looked up."""

    recipe: Recipe
    variant: Variant
    strategy: Strategy
    override: StrategyOverride
    profile: HardwareProfile
    features: tuple[Feature, ...]
    nodes: int


def _chosen(catalogue: Catalogue, choice: Choice) -> _Chosen:
    recipe = catalogue.recipe(choice.model)
    names = recipe.default_features(choice.strategy) if choice.features is None else choice.features
    return _Chosen(
        recipe=recipe,
        variant=recipe.variants[choice.variant],
        strategy=catalogue.strategy(choice.strategy),
        override=recipe.strategy_overrides.get(choice.strategy, _NO_OVERRIDE),
        profile=catalogue.hardware(choice.hardware),
        features=tuple(recipe.features[name] for name in names),
        nodes=choice.nodes,
    )


def _launch(chosen: _Chosen, rank: int) -> Launch:
    groups = tuple(_groups(chosen, rank))
    return Launch(
        rank=rank,
        role=Role.WORKER if rank else Role.HEAD,
        model_id=chosen.variant.model_id or chosen.recipe.model_id,
        flags=merge.flags(word for group in groups for word in group.args),
        env=merge.env(entry for group in groups for entry in group.env),
        image=images.image(chosen.recipe, chosen.variant, chosen.profile),
        device_flags=images.device_flags(chosen.profile),
    )


def _groups(chosen: _Chosen, rank: int) -> Iterator[Settings]:
    """Yield all that adds to a command, in the public order."""
    yield chosen.recipe.base
    yield chosen.variant.settings
    exact = chosen.variant.hardware_overrides.get(chosen.profile.key)
    yield exact.settings if exact else _NOTHING
    yield chosen.strategy.settings
    yield Settings(args=_parallel(chosen, rank))
    yield chosen.override.settings
    yield from _hardware(chosen)
    for feature in chosen.features:
        replaced = merge.by_generation(feature.hardware_overrides, chosen.profile)
        yield Settings(args=feature.args if replaced is None else replaced)


def _parallel(chosen: _Chosen, rank: int) -> tuple[Word, ...]:
    shape = parallel.Shape(
        profile=chosen.profile,
        nodes=chosen.nodes,
        rank=rank,
        vram_minimum_gb=chosen.variant.vram_minimum_gb,
    )
    return parallel.words(chosen.strategy.name, shape)


def _hardware(chosen: _Chosen) -> Iterator[Settings]:
    """Yield the hardware group; a strategy's block ousts recipe's and variant's, even when it is empty."""
    profile = chosen.profile
    strategy_block = merge.by_generation(chosen.override.hardware_overrides, profile)
    if strategy_block is not None:
        yield strategy_block
    else:
        yield merge.by_generation(chosen.recipe.hardware_overrides, profile) or _NOTHING
        variant_block = merge.by_generation(chosen.variant.hardware_overrides, profile)
        yield variant_block.settings if variant_block else _NOTHING
    yield chosen.override.hardware_overrides.get(profile.key, _NOTHING)
