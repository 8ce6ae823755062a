"""A choice with what its names stand for, as far as they may be used at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice, PoolChoice
from kimi_infra.domain.recipe import Catalogue, DeployType, Layout, Preset, Recipe, Strategy, Variant

_PLAIN = Variant()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of a recipe; what is refused by itself is None, so that nothing follows from it."""

    catalogue: Catalogue
    choice: Choice
    recipe: Recipe
    variant: Variant | None
    """None where it is unknown."""
    profile: HardwareProfile | None
    """None where it is unknown, or the recipe is not offered on it."""
    strategy: Strategy | None
    """None where it is unknown, not offered, or not supported on the hardware."""
    features: tuple[str, ...]
    """Switched on, whether known or not."""
    layouts: tuple[Layout, ...]
    """The publisher's, of this strategy on this hardware."""

    @property
    def pools(self) -> Mapping[str, PoolChoice]:
        """The pools that are asked for; none is as good as none given."""
        return self.choice.pools or {}

    @property
    def clustered(self) -> bool:
        """Whether prefill and decode run apart."""
        return self.strategy is not None and self.strategy.deploy_type is DeployType.PD_CLUSTER

    @property
    def preset(self) -> Preset | None:
        """The preset, where it is known."""
        return self.recipe.presets.get(self.choice.preset or "")

    @property
    def described(self) -> bool:
        """Whether the placement is one of the publisher's, where he describes any."""
        return self.recipe.layouts is None or bool(self.layouts)


def of(catalogue: Catalogue, choice: Choice, recipe: Recipe) -> Asked:
    """Look up the names of a choice; what is unknown is None, what is not offered is not seen yet."""
    return Asked(
        catalogue=catalogue,
        choice=choice,
        recipe=recipe,
        variant=variant(recipe, choice.variant),
        profile=catalogue.profiles.get(choice.hardware),
        strategy=catalogue.strategies.get(choice.strategy),
        features=features(recipe, choice),
        layouts=layouts(recipe, choice.strategy, choice.hardware),
    )


def variant(recipe: Recipe, name: str) -> Variant | None:
    """Return a variant; a recipe that names none has the plain one."""
    if not recipe.variants and name == "default":
        return _PLAIN
    return recipe.variants.get(name)


def features(recipe: Recipe, choice: Choice) -> tuple[str, ...]:
    """Return the names of the features that are on."""
    if choice.features is not None:
        return choice.features
    return recipe.default_features(choice.strategy, choice.hardware, choice.variant)


def layouts(recipe: Recipe, strategy: str, hardware: str) -> tuple[Layout, ...]:
    """Return the placements that the publisher describes for a strategy on a kind of hardware."""
    return tuple(_fitting(recipe.layouts or (), strategy, hardware))


def _fitting(described: Iterable[Layout], strategy: str, hardware: str) -> Iterable[Layout]:
    return (it for it in described if it.strategy == strategy and it.hardware == hardware)
