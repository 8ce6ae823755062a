"""A recipe for people: what can be asked of it, where, and what nobody has published yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kimi_infra.domain.recipe import Feature, Layout, Preset, Recipe, Rule, Terms, Value, Variant, Words
from kimi_infra.rendering import shell

_VALUE = re.compile(r"<value:(\w+)>")


def listed(recipes: Sequence[Recipe], hardware: Mapping[str, Sequence[str]]) -> str:
    """Return a block a recipe: id and title, its strategies, the hardware that each can be asked for on."""
    blocks = (
        f"{recipe.key}: {recipe.title}\n"
        f"  strategies  {', '.join(recipe.offered_strategies) or 'none'}\n"
        f"  hardware    {', '.join(hardware[recipe.key]) or 'none'}\n"
        for recipe in recipes
    )
    return "".join(blocks)


def shown(recipe: Recipe, hardware: Sequence[str], kv_offload: Sequence[str]) -> str:
    """Return everything of a recipe that a choice can name, section by section; empty ones are left out."""
    sections = {
        "variants": _table(_variant(name, it) for name, it in recipe.variants.items()),
        "features (* on by default)": _table(_features(recipe)),
        "placements": _table(_layout(layout) for layout in recipe.layouts or ()),
        "strategies": [] if recipe.layouts else [", ".join(recipe.offered_strategies)],
        "hardware": [] if recipe.layouts else [", ".join(hardware)],
        "presets": _table(_preset(preset) for preset in recipe.presets.values()),
        "decode context parallelism": _dcp(recipe),
        "KV offload": _present([", ".join(kv_offload)]),
        "values that nobody has published": _table(_value(it) for it in recipe.values.values()),
        "rules": [_rule(rule) for rule in recipe.rules],
        "images": _table(images(recipe)),
    }
    head = f"{recipe.key}: {recipe.title}\n  served as {recipe.model_id}{_minimum(recipe)}\n"
    blocks = (_section(title, lines) for title, lines in sections.items() if lines)
    return head + "".join(blocks)


def images(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield each place that names an image, and the image."""
    for name, variant in recipe.variants.items():
        for key, override in variant.hardware_overrides.items():
            if override.image:
                yield f"variant {name} on {key}", override.image
        for brand, image in variant.images.items():
            yield f"variant {name} on {brand}", image
    yield from recipe.images.items()


def values_of(words: Words) -> tuple[str, ...]:
    """Return the names of the values that some words need."""
    return tuple(dict.fromkeys(name for word in words for name in _VALUE.findall(word.text)))


def feature_words(feature: Feature) -> Words:
    """Return all words that a feature can add, whatever the mode and the hardware."""
    modes = (
        word
        for mode in feature.modes.values()
        for words in (mode.args, *mode.hardware_overrides.values())
        for word in words
    )
    overrides = (word for words in feature.hardware_overrides.values() for word in words)
    return (*feature.args, *overrides, *modes)


def rule_sides(rule: Rule) -> tuple[str, str, str]:
    """Return a rule's condition, ``needs`` or ``excludes``, and the terms of that."""
    word, terms = ("needs", rule.needs) if rule.needs else ("excludes", rule.excludes)
    return _terms(rule.when), word, _terms(terms) if terms else ""


def _minimum(recipe: Recipe) -> str:
    if recipe.minimum_version is None:
        return ""
    return f" by vLLM {recipe.minimum_version} or newer{', a nightly build' if recipe.nightly else ''}"


def _variant(name: str, variant: Variant) -> tuple[str, ...]:
    memory = f"{variant.vram_minimum_gb} GB" if variant.vram_minimum_gb else "no size stated"
    allowed = ", ".join(variant.supported_hardware)
    return (name, variant.precision, memory, allowed)


def _features(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    for name, feature in recipe.features.items():
        mark = " " if name in recipe.opt_in_features else "*"
        if not feature.modes:
            yield mark, name, _limits(feature), _words(feature.args)
        for mode, it in feature.modes.items():
            chosen = f"{name}={mode}{' (default)' if mode == feature.default_mode else ''}"
            yield mark, chosen, _limits(feature), _words(it.args)
        for key, words in feature.hardware_overrides.items():
            yield "", f"  on {key}", "", _words(words)


def _limits(feature: Feature) -> str:
    missing = values_of(feature_words(feature))
    under = [f"only under {', '.join(feature.strategies)}"] if feature.strategies else []
    return "; ".join((*under, *([f"unknown: {', '.join(missing)}"] if missing else [])))


def _words(words: Words) -> str:
    return " ".join(shell.quote(word.text) for word in words) or "no flag"


def _layout(layout: Layout) -> tuple[str, ...]:
    pools = ", ".join(f"{role} {nodes}" for role, nodes in layout.pools.items())
    nodes = pools or " or ".join(map(str, layout.nodes))
    note = layout.note or ""
    if note and layout.unless_preset:
        note = f"{note}, except preset {layout.unless_preset}"
    noun = "node" if nodes == "1" else "nodes"
    return (layout.strategy, layout.hardware, f"{nodes} {noun}", layout.parallelism or "", note)


def _preset(preset: Preset) -> tuple[str, ...]:
    adds = [
        f"features {', '.join(preset.features)}" if preset.features else "",
        f"DCP {preset.dcp}" if preset.dcp else "",
        f"KV offload {preset.kv_offload}" if preset.kv_offload else "",
        _words(preset.args) if preset.args else "",
    ]
    noun = "node" if preset.nodes == 1 else "nodes"
    where = f"{preset.strategy} on {preset.nodes} {preset.hardware} {noun}"
    return (preset.name, preset.title, where, "; ".join(filter(None, adds)))


def _dcp(recipe: Recipe) -> list[str]:
    if recipe.dcp is None:
        return ["offered"] if recipe.supports_dcp else []
    return [f"size {' or '.join(map(str, recipe.dcp.sizes))}, with {_words(recipe.dcp.args)}"]


def _value(value: Value) -> tuple[str, ...]:
    return (value.name, value.kind.value, value.origin.value, f"{value.what}; {value.find}")


def _rule(rule: Rule) -> str:
    when, word, terms = rule_sides(rule)
    return f"{when} {word} {terms} ({rule.because})"


def _terms(terms: Terms) -> str:
    return " with ".join(f"{name} {' or '.join(words)}" for name, words in terms.meets.items())


def _section(title: str, lines: Iterable[str]) -> str:
    return f"  {title}\n" + "".join(f"    {line}\n" for line in lines)


def _present(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line]


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    found = list(rows)
    widths = [max(len(row[column]) for row in found) for column in range(len(found[0]))] if found else []
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in found)
    return ["  ".join(cells).rstrip() for cells in padded]
