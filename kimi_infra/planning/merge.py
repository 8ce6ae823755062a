"""The public merge rules that hold for all recipes: repeated flags, repeated variables, override keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import EnvEntry, Flag
from kimi_infra.domain.recipe import Word

T = TypeVar("T")

LOOSE = "<operator:"
"""Beginning of a placeholder that stands for whole flags: no flag takes it as its value."""


@dataclass(frozen=True, slots=True)
class Merged(Generic[T]):
    """What stays, and what a later entry of the same name ousted."""

    kept: tuple[T, ...]
    replaced: tuple[T, ...]


def flags(words: Iterable[Word]) -> Merged[Flag]:
    """Group words into flags; of a repeated flag the last one stays, at its own later place.

    A word that begins with a dash is a flag and takes the next word as its value unless that begins
    with a dash too. A further word is loose and always stays. Empty words are dropped first.
    """
    found = tuple(grouped([word for word in words if word.text]))
    last = {flag.tokens[0]: index for index, flag in enumerate(found)}
    if len(last) == len(found):
        return Merged(found, ())
    stays = [
        last[flag.tokens[0]] == index or not flag.tokens[0].startswith("-")
        for index, flag in enumerate(found)
    ]
    return Merged(
        tuple(flag for flag, kept in zip(found, stays, strict=True) if kept),
        tuple(flag for flag, kept in zip(found, stays, strict=True) if not kept),
    )


def env(entries: Iterable[EnvEntry]) -> Merged[EnvEntry]:
    """Let the later value of a variable win at the place of the first."""
    merged: dict[str, EnvEntry] = {}
    replaced = []
    for entry in entries:
        if entry.name in merged:
            replaced.append(merged[entry.name])
        merged[entry.name] = entry
    return Merged(tuple(merged.values()), tuple(replaced))


def by_generation(overrides: Mapping[str, T], profile: HardwareProfile) -> T | None:
    """Return the block of the generation, for NVIDIA else the one of ``nvidia``; never both."""
    if profile.generation in overrides or profile.brand != "NVIDIA":
        return overrides.get(profile.generation)
    return overrides.get("nvidia")


def by_hardware(entries: Mapping[str, T], profile: HardwareProfile) -> T | None:
    """Return a hardware map's entry: exact key, else generation, else brand, else ``default``."""
    if not entries:
        return None
    for key in (profile.key, profile.generation, profile.brand.lower(), "default"):
        if key in entries:
            return entries[key]
    return None


def grouped(words: Sequence[Word]) -> Iterator[Flag]:
    """Yield the flags of a command, each with its value, and loose words."""
    index, end = 0, len(words)
    while index < end:
        word = words[index]
        following = words[index + 1].text if index + 1 < end else "-"
        if not word.text.startswith("-") or following.startswith(("-", LOOSE)):
            yield Flag(tokens=(word.text,), provenance=word.provenance)
            index += 1
            continue
        value = words[index + 1].provenance
        yield Flag(
            tokens=(word.text, following),
            provenance=word.provenance,
            value_provenance=None if value == word.provenance else value,
        )
        index += 2
