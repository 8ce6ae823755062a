"""A catalogue of recipes in the public layout, checked and without a file format.

Override maps are keyed as in the files: by an exact hardware key, by a generation, or by ``nvidia``;
a *hardware map* also by brand in lower case and by ``default``.
Which key counts where is the compiler's knowledge (:mod:`kimi_infra.planning.merge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from kimi_infra.domain import names
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import Companion, EnvEntry
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.errors import Fault, SpecError

T = TypeVar("T")

BASELINE = "baseline"
"""The word that stands for no preset, for recipes that have a default one."""
PREFILL, DECODE = "prefill", "decode"
"""The two pools of a prefill/decode cluster, in the order in which they are listed."""
POOLS = (PREFILL, DECODE)


class DeployType(Enum):
    """How many hosts a strategy spreads one engine over."""

    SINGLE_NODE = "single_node"
    MULTI_NODE = "multi_node"
    PD_CLUSTER = "pd_cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command line; ``<value:NAME>`` in it stands for an entry of :attr:`Recipe.values`."""

    text: str
    provenance: Provenance


Words = tuple[Word, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one place of a recipe adds to a command."""

    args: Words = ()
    env: tuple[EnvEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One of the ways in which a pick-one feature works."""

    args: Words = ()
    hardware_overrides: Mapping[str, Words] = field(default_factory=dict)
    """A hardware map; replaces :attr:`args` there."""
    variants: tuple[str, ...] = ()
    """Variants that have it; empty is all."""
    unsupported_hardware: frozenset[str] = frozenset()
    """Generations and exact hardware keys that cannot run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Arguments that a choice switches on; features never set environment."""

    args: Words = ()
    hardware_overrides: Mapping[str, Words] = field(default_factory=dict)
    """By generation or ``nvidia``; replaces :attr:`args` there."""
    strategies: tuple[str, ...] = ()
    """Where it applies; empty is everywhere."""
    modes: Mapping[str, Mode] = field(default_factory=dict)
    """In the order of the file; when there are any, they alone give the arguments."""
    default_mode: str | None = None
    companion: Companion | None = None

    def applies_under(self, strategy: str) -> bool:
        """Tell whether the feature works with a strategy."""
        return not self.strategies or strategy in self.strategies


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareOverride:
    """A variant's additions on one kind of hardware."""

    settings: Settings = Settings()
    image: str | None = None
    """Counts for an exact hardware key only; may hold ``<value:NAME>``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Hardware that a precision needs."""

    brand: str | None = None
    generation: str | None = None

    def fits(self, profile: HardwareProfile) -> bool:
        """Tell whether a kind of node fulfils it."""
        brand = self.brand is None or self.brand == profile.brand
        return brand and (self.generation is None or self.generation == profile.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One checkpoint of a model."""

    precision: str = ""
    vram_minimum_gb: float = 0
    """GB that the weights and a usable cache need; 0 fits everywhere."""
    model_id: str | None = None
    """Replaces the recipe's."""
    settings: Settings = Settings()
    images: Mapping[str, str] = field(default_factory=dict)
    """Brand key -> image, before the recipe's."""
    tp: Mapping[str, int] = field(default_factory=dict)
    """Hardware map of the tensor-parallel size of ``single_node_tp``; a plain number is ``default``."""
    supported_hardware: tuple[str, ...] = ()
    """Hardware keys; empty is all."""
    precision_hardware: Constraint | None = None
    """In place of the constraint that the precision has by itself."""
    default_modes: Mapping[str, str] = field(default_factory=dict)
    """Feature -> mode: switches the feature on by default and picks its mode."""
    hardware_overrides: Mapping[str, HardwareOverride] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOverride:
    """What a recipe adds to one pool of a prefill/decode cluster."""

    parallelism: str | None = None
    """``tp``, ``tep`` or ``dep``."""
    parallel_flag: str | None = None
    tp: int | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Hardware map of exact keys and ``default``: nodes that the page gives the pool."""
    args: Words = ()
    env: tuple[EnvEntry, ...] = ()
    hardware_overrides: Mapping[str, Settings] = field(default_factory=dict)
    """By exact hardware; adds, last of the hardware group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOverride:
    """A recipe's additions under one strategy."""

    extra_args: Words = ()
    vllm_args: Words = ()
    """After :attr:`extra_args`."""
    env: tuple[EnvEntry, ...] = ()
    extra_env: tuple[EnvEntry, ...] = ()
    """After :attr:`env`; not under a prefill/decode cluster."""
    hardware_overrides: Mapping[str, Settings] = field(default_factory=dict)
    """By generation or ``nvidia``: replaces the recipe's and the variant's; by exact hardware: adds."""
    tp: Mapping[str, int] = field(default_factory=dict)
    """As :attr:`Variant.tp`, where the variant gives none."""
    roles: Mapping[str, RoleOverride] = field(default_factory=dict)
    """By pool."""
    router_dp: int | None = None
    """Pins the router's ``--intra-node-data-parallel-size``."""
    pool_modes: tuple[str, ...] = ()
    """Narrows the pools' modes; empty does not."""
    own_pool_modes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ours (``x-pool-modes``): a pool's modes as published, whatever the offered strategies say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A placement that the publisher describes (key ``x-layouts``)."""

    strategy: str
    hardware: str
    nodes: tuple[int, ...] = ()
    """Numbers of nodes, the smallest first; of a prefill/decode cluster the sum of its pools."""
    pools: Mapping[str, int] = field(default_factory=dict)
    """Nodes by pool."""
    parallelism: str | None = None
    """``tp_pp`` or ``tp_dp`` where the strategy's own shape is not the published one."""
    note: str | None = None
    """What the publisher says against it, for example that nobody has run it."""
    unless_preset: str | None = None
    """The preset for which :attr:`note` does not hold."""


class ValueKind(Enum):
    """What a value that is not published stands for."""

    TEXT = "text"
    """Text within a word."""
    INTEGER = "integer"
    """A number within a JSON word."""
    ARGS = "args"
    """Any number of words; a word of the recipe by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Something that a recipe needs and that nobody has published (key ``x-values``)."""

    name: str
    what: str
    """What is needed, for people."""
    find: str
    """Where an operator finds it."""
    kind: ValueKind = ValueKind.TEXT
    origin: Origin = Origin.UNKNOWN
    """``unknown``, or ``measured`` for what is found on hosts."""

    @property
    def placeholder(self) -> str:
        """What stands in a rendered command until the value is given."""
        kind = "measured" if self.origin is Origin.MEASURED else "operator"
        return f"<{kind}: {self.what}; {self.find}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Parts of a choice, each with the words that meet it; a choice meets all of them or not."""

    meets: Mapping[str, tuple[str, ...]]
    """Dimension -> words. ``hardware``, ``brand``, ``strategy``, ``variant``, ``preset``, ``kv_offload``
    and ``dcp`` are met by one of the words, ``features`` by one that is switched on.
    The word ``none`` is met by what is not chosen.
    ``flags`` is judged on a compiled command, whose spelling does not matter: ``--flag``, ``--flag=value``,
    ``--flag.key=value`` or ``--flag.key>N`` of a key inside a JSON value, ``NAME=value`` of a variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Two things that go together only, or do not go together at all (key ``x-rules``)."""

    when: Terms
    needs: Terms | None
    """Must be met whenever :attr:`when` is."""
    excludes: Terms | None
    """Must not be met whenever :attr:`when` is."""
    because: str
    """The statement behind it, with its origin: ``seed: ...`` or ``vllm: ...``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Something that the publisher says against a choice without ruling it out (key ``x-notes``)."""

    when: Terms
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A tuned configuration (key ``x-presets``); it decides hardware, strategy and nodes."""

    name: str
    title: str
    hardware: str
    strategy: str
    nodes: int
    features: tuple[str, ...]
    """Switched on in addition to those chosen."""
    dcp: int | None
    kv_offload: str | None
    args: Words
    provenance: Provenance
    """Who vouches for what it adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParallel:
    """The row that shards the cache over the ranks of a tensor-parallel group (key ``x-dcp``)."""

    sizes: tuple[int, ...]
    args: Words
    """Beside ``--decode-context-parallel-size``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvancedOption:
    """A further switch of the page."""

    id: str
    label: str
    args: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """What a model's KV cache and weights take (key ``x-cache``); the capacity model's only numbers of it."""

    layers: int
    """Full-attention layers, each with a latent and an index key per token."""
    latent_bytes: Mapping[str, int]
    """Format -> bytes per token and layer, the default format first."""
    index_bytes: Mapping[str, int]
    """The same of index keys."""
    formats: Mapping[str, tuple[str, str]]
    """Feature -> (``latent`` or ``index``, the format that it switches to)."""
    state_layers: int
    """Layers with a state per sequence instead of a cache per token."""
    state_bytes: int | None
    """Bytes of that state per sequence and layer over all ranks, None where nobody has published it."""
    context: int
    """Tokens of a full context."""
    weights_bytes: int
    """Of the whole checkpoint."""
    provenance: Mapping[str, Provenance]
    """Field name (for maps ``field.key``) -> who vouches for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One model and how it is served."""

    key: str
    """``ORG/REPO``: the path of its file."""
    model_id: str
    title: str
    tasks: tuple[str, ...] = ()
    minimum_version: str | None = None
    """Of vLLM, as the page's text names it."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Brand key (``nvidia``, ``amd``, ``intel``, ``tpu``) -> image with its tag."""
    image_origins: Mapping[str, Provenance] = field(default_factory=dict)
    """Dotted place of each image in the file -> who vouches for it."""
    nightly: bool = False
    """No release serves the model yet: images without a pin take the nightly tag."""
    base: Settings = Settings()
    supports_dcp: bool = False
    features: Mapping[str, Feature] = field(default_factory=dict)
    """In the order of the file, which is the order of the default list."""
    opt_in_features: frozenset[str] = frozenset()
    hardware_opt_in_features: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Exact hardware key -> features that are also off by default there."""
    variants: Mapping[str, Variant] = field(default_factory=dict)
    strategies: tuple[str, ...] = ()
    """Listed ones, in the order of the file."""
    default_strategy: str | None = None
    default_hardware: str | None = None
    strategy_hardware: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Strategy -> hardware map of ``supported`` and ``unsupported``."""
    strategy_min_gpus: Mapping[str, int | Mapping[str, int]] = field(default_factory=dict)
    """Strategy id -> GPUs it needs; an exact hardware key sets a floor of its own, for all strategies
    or by strategy. A plain number is the key ``*``."""
    hardware_marks: Mapping[str, str] = field(default_factory=dict)
    """``verified`` or ``unsupported`` by exact hardware key."""
    hardware_overrides: Mapping[str, Settings] = field(default_factory=dict)
    strategy_overrides: Mapping[str, StrategyOverride] = field(default_factory=dict)
    kv_offload_support: Mapping[str, str] = field(default_factory=dict)
    kv_store_hardware: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """KV store -> exact hardware key -> ``unsupported``."""
    advanced_options: tuple[AdvancedOption, ...] = ()
    layouts: tuple[Layout, ...] | None = None
    """None where the file names no layouts: then the strategy's own rules are all that is asked."""
    rules: tuple[Rule, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    presets: Mapping[str, Preset] = field(default_factory=dict)
    dcp: ContextParallel | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    cache: CacheFacts | None = None

    @property
    def unsupported_hardware(self) -> frozenset[str]:
        """Exact hardware keys that the recipe opts out of."""
        return frozenset(key for key, mark in self.hardware_marks.items() if mark == "unsupported")

    @property
    def omni(self) -> bool:
        """Whether the recipe belongs to the page's other resolver, which we have no part in."""
        return "omni" in self.tasks

    @property
    def offered_strategies(self) -> tuple[str, ...]:
        """Listed strategies, then those that are granted on some hardware only."""
        granted = (name for name, grants in self.strategy_hardware.items() if "supported" in grants.values())
        return tuple(dict.fromkeys((*self.strategies, *granted)))

    def default_features(
        self, strategy: str, hardware: str = "", variant: str = "default"
    ) -> tuple[str, ...]:
        """Names of the features that are on when nothing is chosen, in emission order."""
        off = self.opt_in_features | self.hardware_opt_in_features.get(hardware, frozenset())
        chosen = self.variants.get(variant) or self.variants.get("default")
        switched = chosen.default_modes if chosen else {}
        return tuple(
            name
            for name, feature in self.features.items()
            if (name not in off or name in switched) and feature.applies_under(strategy)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSettings:
    """What a strategy gives one pool of a prefill/decode cluster."""

    settings: Settings = Settings()
    parallelism: str | None = None
    parallel_flag: str | None = None
    tp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to spread a model over accelerators."""

    name: str
    title: str
    deploy_type: DeployType
    settings: Settings = Settings()
    parallel_flag: str = "--tensor-parallel-size"
    parallelism: str | None = None
    """``tp_pp`` or ``tp_dp``; None is one dimension over all GPUs."""
    roles: Mapping[str, RoleSettings] = field(default_factory=dict)
    router_policy: str = "round_robin"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvOption:
    """A KV offload option that composes with a strategy."""

    name: str
    settings: Settings
    strategies: tuple[str, ...] = ()
    """Where it works; empty is everywhere but prefill/decode clusters."""
    brands: tuple[str, ...] = ()
    """Empty is all."""
    requires_opt_in: bool = False
    """Works only where a recipe says that it was verified."""
    companion: Companion | None = None
    pools: tuple[str, ...] = ()
    """Ours (``x-pools``): pools of a prefill/decode cluster that take it, beside their own connector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvStore:
    """A KV store that is deployed around engines of any strategy."""

    name: str
    settings: Settings
    """What each engine gets."""
    pools: Mapping[str, Words]
    """What the pools of a prefill/decode cluster get instead."""
    default_instances: int
    router_policy: str
    port: int
    """Of each engine, where the router finds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything that a choice can name."""

    recipes: Mapping[str, Recipe]
    """By ``ORG/REPO``; a lookup may read its file and raise :class:`~kimi_infra.errors.SpecError`."""
    strategies: Mapping[str, Strategy]
    profiles: Mapping[str, HardwareProfile]
    kv_options: Mapping[str, KvOption] = field(default_factory=dict)
    kv_stores: Mapping[str, KvStore] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    """Values that options of the taxonomy need; a recipe's of the same name come first."""

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
