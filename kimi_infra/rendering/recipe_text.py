"""A recipe for people: what can be asked of it, where, and what nobody has published yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kimi_infra.domain.recipe import Feature, Layout, Mode, Preset, Recipe, Rule, Terms, Value, Variant, Words
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What runs one variant on one kind of hardware."""

    hardware: str
    variant: str
    image: str | None
    """None where the public rules have none."""


def shown(recipe: Recipe, hardware: Sequence[str], kv_offload: Sequence[str], images: Sequence[Image]) -> str:
    """Return everything of a recipe that a choice can name, section by section; empty ones are left out."""
    sections = {
        "variants": _table(_variant(name, it) for name, it in recipe.variants.items()),
        "features (* on by default)": _table(_features(recipe)),
        "placements": _table(_layout(layout) for layout in recipe.layouts or ()),
        "strategies": [] if recipe.layouts else _present([", ".join(recipe.offered_strategies)]),
        "hardware": [] if recipe.layouts else _present([", ".join(hardware)]),
        "presets": _table(_preset(preset) for preset in recipe.presets.values()),
        "decode context parallelism": _dcp(recipe),
        "KV offload": _present([", ".join(kv_offload)]),
        "values that nobody has published": _table(_value(it) for it in recipe.values.values()),
        "rules": [_rule(rule) for rule in recipe.rules],
        "images": _table(_images(images)),
    }
    head = f"{recipe.key}: {recipe.title}\n  served as {recipe.model_id}{_minimum(recipe)}\n"
    blocks = (_section(title, lines) for title, lines in sections.items() if lines)
    return head + "".join(blocks)


def values_of(words: Words) -> tuple[str, ...]:
    """Return the names of the values that some words need."""
    return tuple(dict.fromkeys(name for word in words for name in _VALUE.findall(word.text)))


def all_words(part: Feature | Mode) -> Words:
    """Return all words that a feature, or one mode of it, can add by itself, whatever the hardware."""
    return (*part.args, *(word for words in part.hardware_overrides.values() for word in words))


def rule_sides(rule: Rule) -> tuple[str, str, str]:
    """Return a rule's condition, ``needs`` or ``excludes``, and the terms of that."""
    word, terms = ("needs", rule.needs) if rule.needs else ("excludes", rule.excludes)
    return _terms(rule.when), word, _terms(terms) if terms else ""


def _minimum(recipe: Recipe) -> str:
    if recipe.minimum_version is None:
        return ""
    return f" by vLLM {recipe.minimum_version} or newer{', a nightly build' if recipe.nightly else ''}"


def _variant(name: str, variant: Variant) -> tuple[str, ...]:
    memory = f"{variant.vram_minimum_gb:g} GB" if variant.vram_minimum_gb else "no size stated"
    allowed = ", ".join(variant.supported_hardware)
    return (name, variant.precision, memory, allowed)


def _features(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    for name, feature in recipe.features.items():
        mark = " " if name in recipe.opt_in_features else "*"
        under = [f"only under {', '.join(feature.strategies)}"] if feature.strategies else []
        # Modes alone give the arguments where there are any.
        if not feature.modes:
            yield from _feature(mark, name, under, feature)
        for mode, it in feature.modes.items():
            chosen = f"{name}={mode}{' (default)' if mode == feature.default_mode else ''}"
            yield from _feature(mark, chosen, [*under, *_mode_limits(it)], it)


def _feature(mark: str, name: str, limits: Sequence[str], part: Feature | Mode) -> Iterator[tuple[str, ...]]:
    yield mark, name, "; ".join((*limits, *_missing(part.args))), _words(part.args)
    for key, words in part.hardware_overrides.items():
        yield "", f"  on {key}", "; ".join(_missing(words)), _words(words)


def _mode_limits(mode: Mode) -> Iterator[str]:
    if mode.variants:
        yield f"only variant {', '.join(mode.variants)}"
    if mode.unsupported_hardware:
        yield f"not on {', '.join(sorted(mode.unsupported_hardware))}"


def _missing(words: Words) -> Iterator[str]:
    missing = values_of(words)
    if missing:
        yield f"unknown: {', '.join(missing)}"


def _images(images: Sequence[Image]) -> Iterator[tuple[str, ...]]:
    """Yield the image of each kind of hardware; variants are named where theirs differ."""
    by_hardware: dict[str, dict[str, str]] = {}
    for it in images:
        by_hardware.setdefault(it.hardware, {})[it.variant] = it.image or "none by the public rules"
    for hardware, by_variant in by_hardware.items():
        if len(set(by_variant.values())) == 1:
            yield hardware, next(iter(by_variant.values()))
        else:
            yield from ((f"{hardware}, variant {name}", image) for name, image in by_variant.items())


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
