"""A recipe for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from kimi_infra.domain.recipe import Feature, Layout, Mode, Preset, Recipe, Rule, Value, Words
from kimi_infra.rendering import recipe_text


def listed(recipes: Sequence[Recipe], hardware: Mapping[str, Sequence[str]]) -> str:
    """Return id, title, strategies and hardware of each recipe."""
    rows = [
        {
            "id": recipe.key,
            "title": recipe.title,
            "strategies": list(recipe.offered_strategies),
            "hardware": list(hardware[recipe.key]),
        }
        for recipe in recipes
    ]
    return json.dumps(rows, indent=2) + "\n"


def shown(
    recipe: Recipe,
    hardware: Sequence[str],
    kv_offload: Sequence[str],
    images: Sequence[recipe_text.Image],
) -> str:
    """Return everything of a recipe that a choice can name."""
    variants = {
        name: {"precision": it.precision, "vram_minimum_gb": it.vram_minimum_gb, "model_id": it.model_id}
        for name, it in recipe.variants.items()
    }
    whole = {
        "id": recipe.key,
        "title": recipe.title,
        "model_id": recipe.model_id,
        "minimum_version": recipe.minimum_version,
        "nightly": recipe.nightly,
        "variants": variants,
        "features": {name: _feature(recipe, name, it) for name, it in recipe.features.items()},
        "strategies": list(recipe.offered_strategies),
        "hardware": list(hardware),
        "placements": None if recipe.layouts is None else [_layout(it) for it in recipe.layouts],
        "presets": {name: _preset(it) for name, it in recipe.presets.items()},
        "dcp": list(recipe.dcp.sizes) if recipe.dcp else None,
        "kv_offload": list(kv_offload),
        "values": {name: _value(it) for name, it in recipe.values.items()},
        "rules": [_rule(it) for it in recipe.rules],
        "images": [asdict(it) for it in images],
    }
    return json.dumps(whole, indent=2) + "\n"


def _feature(recipe: Recipe, name: str, feature: Feature) -> dict[str, object]:
    return {
        "default": name not in recipe.opt_in_features,
        "strategies": list(feature.strategies),
        "default_mode": feature.default_mode,
        "modes": {key: {**_part(mode), **_mode(mode)} for key, mode in feature.modes.items()},
        # Modes alone give the arguments where there are any.
        **_part(Feature() if feature.modes else feature),
    }


def _part(part: Feature | Mode) -> dict[str, object]:
    return {
        "args": _words(part.args),
        "hardware": {key: _words(words) for key, words in part.hardware_overrides.items()},
        "unknown": list(recipe_text.values_of(recipe_text.all_words(part))),
    }


def _mode(mode: Mode) -> dict[str, object]:
    return {"variants": list(mode.variants), "unsupported_hardware": sorted(mode.unsupported_hardware)}


def _layout(layout: Layout) -> dict[str, object]:
    return {
        "strategy": layout.strategy,
        "hardware": layout.hardware,
        "nodes": list(layout.nodes),
        "pools": dict(layout.pools),
        "parallelism": layout.parallelism,
        "note": layout.note,
        "unless_preset": layout.unless_preset,
    }


def _preset(preset: Preset) -> dict[str, object]:
    return {
        "title": preset.title,
        "hardware": preset.hardware,
        "strategy": preset.strategy,
        "nodes": preset.nodes,
        "features": list(preset.features),
        "dcp": preset.dcp,
        "kv_offload": preset.kv_offload,
        "args": _words(preset.args),
    }


def _value(value: Value) -> dict[str, str]:
    return {
        "what": value.what,
        "find": value.find,
        "kind": value.kind.value,
        "origin": value.origin.value,
    }


def _rule(rule: Rule) -> dict[str, str]:
    when, word, terms = recipe_text.rule_sides(rule)
    return {"when": when, word: terms, "because": rule.because}


def _words(words: Words) -> list[str]:
    return [word.text for word in words]
