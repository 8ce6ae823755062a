"""Short spellings of words and variables with their origins, for expected values."""

from __future__ import annotations

from kimi_infra.domain.launch import EnvEntry
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Word, Words

PAGE = "seed: {} (page)"
"""Origin of most of the fixture; the braces stand for the path in the file."""


def given(by: str, path: str) -> Provenance:
    """Return the origin of the value at a path."""
    origin, _, source = by.partition(": ")
    return Provenance(origin=Origin(origin), source=source.format(path))


def word(path: str, text: str, by: str = PAGE) -> Word:
    """Return one word."""
    return Word(text=text, provenance=given(by, path))


def words(path: str, line: str, by: str = PAGE) -> Words:
    """Return the words of a line, split at blanks."""
    return tuple(word(path, text, by) for text in line.split())


def env(path: str, by: str = PAGE, **values: str) -> tuple[EnvEntry, ...]:
    """Return variables."""
    return tuple(
        EnvEntry(name=name, value=value, provenance=given(by, path)) for name, value in values.items()
    )
