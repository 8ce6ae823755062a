"""Names in a catalogue's files that nothing in the catalogue has.

The public page ignores them; here each is a fault with the closest name that exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kimi_infra.config import recipe_schema as schema
from kimi_infra.config import recipe_shared as shared
from kimi_infra.config.recipe_extensions import Terms
from kimi_infra.config.recipe_files import spot
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import recipe as domain
from kimi_infra.errors import Fault

_NONE = "none"
"""In a rule: what is not chosen."""
_MODES = ("tp", "tep", "dep")
_SHAPES = ("tp_pp", "tp_dp")
_TASKS = ("text", "multimodal", "omni", "embedding")
_BADGES = ("verified", "unsupported")
_GRANTS = ("supported", "unsupported")

_Use = tuple[tuple[str | int, ...], str, str]
"""Path, noun and name of one mention; a path that ends in the name is that of a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """All that recipes can name; what a catalogue has none of is not checked."""

    strategies: Collection[str]
    profiles: Mapping[str, shared.HardwareProfile]
    options: Collection[str]
    stores: Collection[str]

    @property
    def brands(self) -> set[str]:
        """Brands as the taxonomy writes them."""
        return {profile.brand for profile in self.profiles.values()}

    @property
    def generations(self) -> set[str]:
        """Keys of generation-wide blocks."""
        return {profile.generation[0] for profile in self.profiles.values()}

    @property
    def vocabulary(self) -> dict[str, Collection[str]]:
        """Names by noun."""
        brands, generations = self.brands, self.generations
        offload = {*self.options, *self.stores}
        return {
            "strategy": self.strategies,
            "hardware": self.profiles,
            "hardware key": self.profiles
            and {*self.profiles, *generations, *(brand.lower() for brand in brands), "default"},
            "hardware or generation": {*self.profiles, *generations},
            "strategy or hardware": self.strategies and {*self.strategies, *self.profiles, *_MODES, "*"},
            "brand": brands,
            "generation": generations,
            "KV offload": offload,
            "KV store": self.stores,
            "pool mode": _MODES,
            "parallelism": _SHAPES,
            "task": _TASKS,
            "mark": _BADGES,
            "grant": _GRANTS,
            "mark of a mode": (*_GRANTS, *_BADGES[:1]),
        }


def of_taxonomy(root: Place, read: shared.Taxonomy, known: Known) -> Iterator[Fault]:
    """Yield the faults of the taxonomy."""
    uses: list[_Use] = []
    for name, option in read.kv_offload.items():
        path = ("kv_offload", name)
        uses += _listed((*path, "strategies"), "strategy", option.strategies)
        uses += _listed((*path, "brands"), "brand", option.brands)
    return _unknown(root, uses, known.vocabulary)


def of_strategy(root: Place, read: shared.Strategy, known: Known) -> Iterator[Fault]:
    """Yield the faults of a strategy."""
    uses = _one(("parallelism",), "parallelism", read.parallelism)
    for pool in domain.POOLS:
        role = getattr(read, pool)
        uses += _one((pool, "parallelism"), "pool mode", role and role.parallelism)
    return _unknown(root, uses, known.vocabulary)


def of_recipe(root: Place, read: schema.Recipe, known: Known) -> Iterator[Fault]:
    """Yield the faults of a recipe."""
    vocabulary = known.vocabulary | {
        "feature": read.features,
        "variant": read.variants,
        "preset": read.presets,
        "DCP size": [str(size) for size in read.dcp.sizes] if read.dcp else [],
    }
    uses = [
        *_head(read),
        *_features(read),
        *_variants(read),
        *_strategies(read),
        *_kv_offload(read),
        *_ours(read),
    ]
    yield from _unknown(root, uses, vocabulary)
    yield from _modes(root, read)
    for index, rule in enumerate(read.rules):
        for side in ("when", "needs", "excludes"):
            yield from _terms(root, ("x-rules", index, side), getattr(rule, side), vocabulary)
    for index, reservation in enumerate(read.reservations):
        yield from _terms(root, ("x-notes", index, "when"), reservation.when, vocabulary)
    yield from _formats(root, read)


def _head(read: schema.Recipe) -> list[_Use]:
    return [
        *_listed(("meta", "tasks"), "task", read.meta.tasks),
        *_keys(("meta", "hardware"), "hardware", read.meta.hardware),
        *_marks(("meta", "hardware"), "mark", read.meta.hardware),
        *_one(("meta", "default_hardware"), "hardware", read.meta.default_hardware),
        *_listed(("opt_in_features",), "feature", read.opt_in_features),
        *_keys(("hardware_opt_in_features",), "hardware", read.hardware_opt_in_features),
        *(
            use
            for key, features in read.hardware_opt_in_features.items()
            for use in _listed(("hardware_opt_in_features", key), "feature", features)
        ),
        *_keys(("hardware_overrides",), "hardware key", read.hardware_overrides),
        *_keys(("hardware_notes",), "hardware", read.hardware_notes),
    ]


def _features(read: schema.Recipe) -> Iterator[_Use]:
    for name, feature in read.features.items():
        path = ("features", name)
        yield from _keys((*path, "hardware_overrides"), "hardware key", feature.hardware_overrides)
        yield from _listed((*path, "strategies"), "strategy", feature.strategies)
        for mode_name, mode in (feature.modes or {}).items():
            below = (*path, "modes", mode_name)
            yield from _keys((*below, "hardware_overrides"), "hardware key", mode.hardware_overrides)
            yield from _listed((*below, "variants"), "variant", mode.variants)
            yield from _keys((*below, "hardware"), "hardware or generation", mode.hardware)
            yield from _marks((*below, "hardware"), "mark of a mode", mode.hardware)


def _variants(read: schema.Recipe) -> Iterator[_Use]:
    for name, variant in read.variants.items():
        path = ("variants", name)
        yield from _keys((*path, "tp"), "hardware key", variant.tp)
        yield from _listed((*path, "supported_hardware"), "hardware", variant.supported_hardware)
        yield from _keys((*path, "hardware_overrides"), "hardware key", variant.hardware_overrides)
        yield from _keys((*path, "default_modes"), "feature", variant.default_modes)
        if variant.precision_hardware:
            below = (*path, "precision_hardware")
            yield from _one((*below, "brand"), "brand", variant.precision_hardware.brand)
            yield from _one((*below, "generation"), "generation", variant.precision_hardware.generation)


def _strategies(read: schema.Recipe) -> Iterator[_Use]:
    yield from _listed(("compatible_strategies",), "strategy", read.compatible_strategies)
    yield from _one(("default_strategy",), "strategy", read.default_strategy)
    yield from _keys(("strategy_hardware",), "strategy", read.strategy_hardware)
    for name, grants in read.strategy_hardware.items():
        yield from _keys(("strategy_hardware", name), "hardware key", grants)
        yield from _marks(("strategy_hardware", name), "grant", grants)
    yield from _keys(("strategy_min_gpus",), "strategy or hardware", read.strategy_min_gpus)
    for name, floor in read.strategy_min_gpus.items():
        yield from _keys(("strategy_min_gpus", name), "strategy or hardware", floor)
    yield from _keys(("strategy_overrides",), "strategy", read.strategy_overrides)
    for name, override in read.strategy_overrides.items():
        path = ("strategy_overrides", name)
        yield from _keys((*path, "hardware_overrides"), "hardware key", override.hardware_overrides)
        yield from _keys((*path, "tp"), "hardware key", override.tp)
        yield from _listed((*path, "pool_modes"), "pool mode", override.pool_modes)
        for pool in domain.POOLS:
            if role := getattr(override, pool):
                yield from _role((*path, pool), role)


def _role(path: tuple[str, ...], role: schema.RoleOverride) -> Iterator[_Use]:
    yield from _one((*path, "parallelism"), "pool mode", role.parallelism)
    yield from _keys((*path, "nodes"), "hardware key", role.nodes)
    yield from _keys((*path, "hardware_overrides"), "hardware key", role.hardware_overrides)


def _kv_offload(read: schema.Recipe) -> Iterator[_Use]:
    yield from _keys(("kv_offload_support",), "KV offload", read.kv_offload_support)
    yield from _marks(("kv_offload_support",), "mark", read.kv_offload_support)
    yield from _keys(("kv_cache_strategy_hardware",), "KV store", read.kv_cache_strategy_hardware)
    for name, grants in read.kv_cache_strategy_hardware.items():
        yield from _keys(("kv_cache_strategy_hardware", name), "hardware", grants)
        yield from _marks(("kv_cache_strategy_hardware", name), "grant", grants)


def _ours(read: schema.Recipe) -> Iterator[_Use]:
    layouts = read.layouts or {}
    yield from _keys(("x-layouts",), "strategy", layouts)
    for strategy, kinds in layouts.items():
        yield from _keys(("x-layouts", strategy), "hardware", kinds)
        for hardware, layout in kinds.items():
            yield from _one(
                ("x-layouts", strategy, hardware, "unless_preset"), "preset", layout.unless_preset
            )
    for name, preset in read.presets.items():
        path = ("x-presets", name)
        yield from _one((*path, "hardware"), "hardware", preset.hardware)
        yield from _one((*path, "strategy"), "strategy", preset.strategy)
        yield from _listed((*path, "features"), "feature", preset.features)
        yield from _one((*path, "dcp"), "DCP size", str(preset.dcp) if preset.dcp else None)
        yield from _one((*path, "kv_offload"), "KV offload", preset.kv_offload)
    if read.cache:
        yield from _keys(("x-cache", "formats"), "feature", read.cache.formats)


def _modes(root: Place, read: schema.Recipe) -> Iterator[Fault]:
    """Yield modes that their feature does not have."""
    for name, feature in read.features.items():
        uses = _one(("features", name, "default_mode"), "mode", feature.default_mode)
        for variant, chosen in read.variants.items():
            uses += _one(("variants", variant, "default_modes", name), "mode", chosen.default_modes.get(name))
        yield from _unknown(root, uses, {"mode": feature.modes or [_NONE]})


def _terms(
    root: Place, path: tuple[str | int, ...], terms: Terms | None, vocabulary: Mapping[str, Collection[str]]
) -> Iterator[Fault]:
    """Yield words of a rule that no choice can meet."""
    nouns = {"kv_offload": "KV offload", "dcp": "DCP size", "features": "feature"}
    for name, words in (terms.meets if terms else {}).items():
        if name == "flags":  # of any engine there is
            continue
        noun = nouns.get(name, name)
        known = {*vocabulary[noun], _NONE, *((domain.BASELINE,) if name == "preset" else ())}
        yield from _unknown(root, _listed((*path, name), noun, words), {noun: vocabulary[noun] and known})


def _formats(root: Place, read: schema.Recipe) -> Iterator[Fault]:
    """Yield formats of the cache whose bytes are not given."""
    if read.cache is None:
        return
    for feature, switched in read.cache.formats.items():
        kind, name = switched.switched
        sizes = read.cache.latent_bytes if kind == "latent" else read.cache.index_bytes
        uses = _one(("x-cache", "formats", feature, kind), "format", name)
        yield from _unknown(root, uses, {"format": sizes})


def _unknown(root: Place, uses: Iterable[_Use], vocabulary: Mapping[str, Collection[str]]) -> Iterator[Fault]:
    for path, noun, name in uses:
        known = vocabulary[noun]
        # A catalogue may have no strategies or stores at all; a recipe's own features are all there are.
        if name not in known and (known or noun == "feature"):
            yield domain.unknown_name(spot(root, path).where, noun, name, known)


def _one(path: tuple[str | int, ...], noun: str, name: str | None) -> list[_Use]:
    return [] if name is None else [(path, noun, name)]


def _listed(path: tuple[str | int, ...], noun: str, names: Iterable[str]) -> list[_Use]:
    return [((*path, index), noun, name) for index, name in enumerate(names)]


def _keys(path: tuple[str | int, ...], noun: str, names: Iterable[str]) -> list[_Use]:
    return [((*path, name), noun, name) for name in names]


def _marks(path: tuple[str | int, ...], noun: str, marks: Mapping[str, str]) -> list[_Use]:
    return [((*path, key), noun, mark) for key, mark in marks.items()]
