"""Commands laid out for reading: each option on a line of its own with its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def by_option(argv: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words of a command in lines; their concatenation is the command."""
    line: list[str] = []
    for word in argv:
        if word.startswith("--") and line:
            yield tuple(line)
            line = []
        line.append(word)
    if line:
        yield tuple(line)
