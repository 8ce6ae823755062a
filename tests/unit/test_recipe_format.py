"""Every key of the recipe format is read; what of each becomes which value is written out by hand."""

from __future__ import annotations

import pathlib
import types
import typing
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest
import yaml

from kimi_infra.config import recipe_schema, recipe_shared, recipes
from tests.unit.recipe_format import expected, expected_shared

pytestmark = pytest.mark.compiler

ROOT = pathlib.Path(__file__).parent / "recipe_format"
GLACIER, PEBBLE, MURMUR = "acme/Glacier-72B", "acme/Pebble-1B", "acme/Murmur-Omni"

KEYS = """
meta.title meta.slug meta.provider meta.description meta.difficulty meta.date_added meta.date_updated
meta.performance_headline meta.related_recipes meta.tasks meta.hardware.* meta.default_hardware
model.model_id model.min_vllm_version model.nightly_required model.docker_image model.install.pip
model.install.docker model.architecture model.parameter_count model.active_parameters model.context_length
model.base_args model.base_env.* model.supports_dcp
dependencies.0.command dependencies.0.note dependencies.0.optional dependencies.0.brand
dependencies.0.install_modes
features.*.args features.*.description features.*.hardware_overrides.*.args features.*.strategies
features.*.modes.*.args features.*.modes.*.variants features.*.modes.*.hardware.*
features.*.modes.*.hardware_overrides.*.args features.*.default_mode features.*.companion.command
opt_in_features hardware_opt_in_features.*
variants.*.precision variants.*.vram_minimum_gb variants.*.model_id variants.*.extra_args
variants.*.extra_env.* variants.*.tp variants.*.supported_hardware variants.*.precision_hardware.brand
variants.*.precision_hardware.generation variants.*.hardware_overrides.*.extra_args
variants.*.hardware_overrides.*.extra_env.* variants.*.hardware_overrides.*.docker_image
variants.*.default_modes.* variants.*.min_vllm_version variants.*.docker_image variants.*.label
variants.*.description variants.*.guide
compatible_strategies default_strategy strategy_hardware.*.* strategy_min_gpus.*
hardware_overrides.*.extra_args hardware_overrides.*.extra_env.*
strategy_overrides.*.extra_args strategy_overrides.*.vllm_args strategy_overrides.*.env.*
strategy_overrides.*.extra_env.* strategy_overrides.*.hardware_overrides.*.extra_args
strategy_overrides.*.hardware_overrides.*.extra_env.* strategy_overrides.*.tp
strategy_overrides.pd_cluster.prefill.parallelism strategy_overrides.pd_cluster.prefill.nodes
strategy_overrides.pd_cluster.decode.tp strategy_overrides.pd_cluster.prefill.extra_args
strategy_overrides.pd_cluster.prefill.vllm_args strategy_overrides.pd_cluster.prefill.env.*
strategy_overrides.pd_cluster.prefill.hardware_overrides.*.extra_args
strategy_overrides.pd_cluster.router.intra_node_data_parallel_size strategy_overrides.pd_cluster.pool_modes
kv_offload_support.* kv_cache_strategy_hardware.*.* advanced_options.0.id advanced_options.0.label
advanced_options.0.args hardware_notes.* guide omni.port omni.tasks
"""
"""The keys of the public format's description of a recipe."""


def content(file: pathlib.Path) -> Any:
    """Return a file as plain data."""
    return yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def held(data: Any, path: list[str]) -> bool:
    """Tell whether data has a key at a dotted path."""
    if not path:
        return True
    if isinstance(data, list):
        return path[0] == "0" and bool(data) and held(data[0], path[1:])
    if not isinstance(data, dict):
        return False
    below = list(data.values()) if path[0] == "*" else [data[path[0]]] if path[0] in data else []
    return any(held(value, path[1:]) for value in below)


def bare(annotation: Any) -> Any:
    """Take away what a type is annotated with, and that it may be None."""
    while typing.get_origin(annotation) in {typing.Annotated, typing.Union, types.UnionType}:
        annotation = typing.get_args(annotation)[0]
    return annotation


def keys(annotation: Any, data: Any = None) -> Iterator[str]:
    """Yield MODEL.KEY for each key of a type and of the types below it; with data, only those that it has."""
    kind = bare(annotation)
    if not isinstance(kind, type) or not issubclass(kind, pydantic.BaseModel):
        below = data.values() if isinstance(data, dict) else data if isinstance(data, list) else [None]
        for part in below if typing.get_args(kind) else ():
            yield from keys(typing.get_args(kind)[-1], part)
        return
    for name, field in kind.model_fields.items():
        key = field.alias or name
        if data is None or (isinstance(data, dict) and key in data):
            yield f"{kind.__name__}.{key}"
            yield from keys(field.annotation, None if data is None else data[key])


MODELS = {
    "taxonomy": recipe_shared.Taxonomy,
    "strategies/*": recipe_shared.Strategy,
    "kv_store/*": recipe_shared.KvStore,
    "models/acme/*": recipe_schema.Recipe,
}


def test_the_fixture_has_every_key_of_the_format() -> None:
    """What the tests of this file say of the fixture, they say of the whole format."""
    files = {pattern: sorted(ROOT.glob(f"{pattern}.yaml")) for pattern in MODELS}
    used = {
        key
        for pattern, model in MODELS.items()
        for file in files[pattern]
        for key in keys(model, content(file))
    }
    assert {key for model in MODELS.values() for key in keys(model)} - used == set()
    recipes_read = [content(file) for file in files["models/acme/*"]]
    described = [
        key for key in KEYS.split() if not any(held(recipe, key.split(".")) for recipe in recipes_read)
    ]
    assert described == []


def test_every_key_of_a_recipe_lands_in_its_value() -> None:
    """The whole recipe is the value that is written out by hand, and its mappings keep their order."""
    read = recipes.read_catalogue(ROOT).recipe(GLACIER)
    assert read == expected.GLACIER
    assert [list(getattr(read, name)) for name in ("features", "variants", "strategy_overrides")] == [
        list(getattr(expected.GLACIER, name)) for name in ("features", "variants", "strategy_overrides")
    ]


def test_short_spellings_and_another_resolver_s_recipe() -> None:
    """A plain number or text stands for the whole spelling; an omni recipe is known and no more."""
    read = recipes.read_catalogue(ROOT)
    assert read.recipe(PEBBLE) == expected_shared.PEBBLE
    assert read.recipe(MURMUR) == expected_shared.MURMUR
    assert read.recipe(MURMUR).omni


def test_what_recipes_share_lands_in_its_values() -> None:
    """Kinds of nodes, strategies, KV offload options and KV stores are those written out by hand."""
    read = recipes.read_catalogue(ROOT)
    assert read.profiles == expected_shared.PROFILES
    assert read.strategies == expected_shared.STRATEGIES
    assert read.kv_options == expected_shared.OPTIONS
    assert read.kv_stores == expected_shared.STORES
    assert read.values == expected_shared.VALUES


def test_words_of_one_origin_share_it() -> None:
    """A recipe of thousands of words holds one object for each place and origin."""
    read = recipes.read_catalogue(ROOT).recipe(GLACIER)
    first, flag, last = (word.provenance for word in read.base.args)
    assert first is last
    assert flag is not first
    variables = read.variants["fp8"].settings.env
    assert variables[0].provenance is not read.variants["fp8"].settings.args[0].provenance


def test_the_shipped_catalogue_is_sound_and_read_lazily() -> None:
    """What is trusted at start-up is judged here, and is the same however it is read."""
    whole = recipes.read_catalogue(recipes._SHIPPED)
    lazy = recipes.load_catalogue()
    assert {key: lazy.recipe(key) for key in lazy.recipes} == dict(whole.recipes)
    assert lazy.strategies == whole.strategies
