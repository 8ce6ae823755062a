"""A catalogue of recipes in the public layout, checked and without a file format.

Override maps are keyed as in the files: by an exact hardware key, by a generation, or by ``nvidia``.
Which of them counts where is the resolver's knowledge (:mod:`kimi_infra.planning.resolve`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from kimi_infra.domain import names
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import EnvEntry
from kimi_infra.domain.provenance import Provenance
from kimi_infra.errors import Fault, SpecError

T = TypeVar("T")


class DeployType(Enum):
    """How many hosts a strategy spreads one engine over."""

    SINGLE_NODE = "single_node"
    MULTI_NODE = "multi_node"
    PD_CLUSTER = "pd_cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command line."""

    text: str
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one place of a recipe adds to a command."""

    args: tuple[Word, ...] = ()
    env: tuple[EnvEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Arguments that a choice switches on; features never set environment."""

    args: tuple[Word, ...]
    hardware_overrides: Mapping[str, tuple[Word, ...]]
    """By generation or ``nvidia``; replaces :attr:`args` there."""
    strategies: tuple[str, ...] | None
    """Where it applies; None is everywhere."""
    unknown: str | None
    """What nobody has published yet and the feature cannot be rendered without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareOverride:
    """A variant's additions on one kind of hardware."""

    settings: Settings
    image: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One checkpoint of a model."""

    precision: str
    vram_minimum_gb: int
    """GB that the weights and a usable cache need; 0 fits everywhere."""
    model_id: str | None
    """Replaces the recipe's."""
    settings: Settings
    supported_hardware: tuple[str, ...]
    """Hardware keys; empty is all."""
    hardware_overrides: Mapping[str, HardwareOverride]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOverride:
    """A recipe's additions under one strategy."""

    settings: Settings
    hardware_overrides: Mapping[str, Settings]
    """By generation or ``nvidia``: replaces the recipe's and the variant's; by exact hardware: adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A placement that was published and that this version compiles (key ``x-layouts``)."""

    strategy: str
    hardware: str
    nodes: tuple[int, ...]
    """Numbers of nodes, the smallest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One model and how it is served."""

    model_id: str
    title: str
    images: Mapping[str, str]
    """Brand key (``nvidia``, ``amd``, ``intel``, ``tpu``) -> image with its tag."""
    nightly: bool
    """No release serves the model yet: images without a pin take the nightly tag."""
    base: Settings
    features: Mapping[str, Feature]
    """In the order of the file, which is the order of the default list."""
    opt_in_features: frozenset[str]
    variants: Mapping[str, Variant]
    strategies: tuple[str, ...]
    """Offered ones, in the order of the file."""
    unsupported_hardware: frozenset[str]
    hardware_overrides: Mapping[str, Settings]
    strategy_overrides: Mapping[str, StrategyOverride]
    layouts: tuple[Layout, ...] | None
    """None where the file names no layouts: then the strategy's own rules are all that is asked."""

    def default_features(self, strategy: str) -> tuple[str, ...]:
        """Names of the features that are on when nothing is chosen, in emission order."""
        return tuple(
            name
            for name, feature in self.features.items()
            if name not in self.opt_in_features
            and (feature.strategies is None or strategy in feature.strategies)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to spread a model over accelerators."""

    name: str
    title: str
    deploy_type: DeployType
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything that a choice can name."""

    recipes: Mapping[str, Recipe]
    strategies: Mapping[str, Strategy]
    profiles: Mapping[str, HardwareProfile]

    def recipe(self, model_id: str) -> Recipe:
        """Return a model's recipe.

        Raises:
            SpecError: no recipe has this id; the fault's place is ``model``.
        """
        return _find(self.recipes, model_id, "model")

    def strategy(self, name: str) -> Strategy:
        """Return a strategy; raises as :meth:`recipe` does, the place is ``strategy``."""
        return _find(self.strategies, name, "strategy")

    def hardware(self, key: str) -> HardwareProfile:
        """Return a kind of node; raises as :meth:`recipe` does, the place is ``hardware``."""
        return _find(self.profiles, key, "hardware")


def unknown_name(where: str, noun: str, name: str, valid: Iterable[str]) -> Fault:
    """Build the fault of a name that is not among the valid ones."""
    return Fault(
        where=where,
        what=f"no such {noun} is known",
        got=name,
        remedy=names.closest(name, valid),
    )


def _find(known: Mapping[str, T], name: str, where: str) -> T:
    if name not in known:
        raise SpecError((unknown_name(where, where, name, known),))
    return known[name]
