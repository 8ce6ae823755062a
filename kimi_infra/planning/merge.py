"""The public merge rules that hold for all recipes: repeated flags, repeated variables, override keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import EnvEntry, Flag
from kimi_infra.domain.recipe import Word

T = TypeVar("T")


def flags(words: Iterable[Word]) -> tuple[Flag, ...]:
    """Group words into flags; of a repeated flag the last one stays, at its own later place.

    A word that begins with a dash is a flag and takes the next word as its value unless that begins
    with a dash too. A further word is loose and always stays. Empty words are dropped first.
    """
    grouped = tuple(_grouped([word for word in words if word.text]))
    last = {flag.name: index for index, flag in enumerate(grouped)}
    return tuple(
        flag
        for index, flag in enumerate(grouped)
        if not flag.name.startswith("-") or last[flag.name] == index
    )


def env(entries: Iterable[EnvEntry]) -> tuple[EnvEntry, ...]:
    """Let the later value of a variable win at the place of the first."""
    merged: dict[str, EnvEntry] = {}
    for entry in entries:
        merged[entry.name] = entry
    return tuple(merged.values())


def by_generation(overrides: Mapping[str, T], profile: HardwareProfile) -> T | None:
    """Return the block of the generation, for NVIDIA else the one of ``nvidia``; never both."""
    if profile.generation in overrides or profile.brand != "NVIDIA":
        return overrides.get(profile.generation)
    return overrides.get("nvidia")


def _grouped(words: list[Word]) -> Iterator[Flag]:
    index = 0
    while index < len(words):
        word = words[index]
        following = words[index + 1].text if index + 1 < len(words) else "-"
        takes = word.text.startswith("-") and not following.startswith("-")
        tokens = (word.text, following) if takes else (word.text,)
        yield Flag(tokens=tokens, provenance=word.provenance)
        index += len(tokens)
