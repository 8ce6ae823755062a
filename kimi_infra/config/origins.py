"""The extension ``x-provenance``: who vouches for each value of a recipe file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kimi_infra.domain.launch import EnvEntry
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Word

_DEFAULT = "default"
_WITHOUT = Provenance(origin=Origin.OPERATOR, source="")
"""A file that says nothing of its values was dropped in by the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """One file's map from a dotted path to its origin; the longest path that covers a value decides."""

    place: str
    """Prefix of every source: empty for a recipe, ``strategies/NAME: `` for a strategy."""
    paths: Mapping[str, Provenance]

    def words(self, path: str, texts: list[str]) -> tuple[Word, ...]:
        """Give each word of a list of arguments its origin; a path may end in a flag."""
        return tuple(Word(text=text, provenance=self._of(path, text)) for text in texts)

    def env(self, path: str, values: Mapping[str, str]) -> tuple[EnvEntry, ...]:
        """Give each variable its origin; a path may end in its name."""
        return tuple(
            EnvEntry(name=name, value=value, provenance=self._of(path, name))
            for name, value in values.items()
        )

    def _of(self, path: str, last: str) -> Provenance:
        covering = [known for known in self.paths if _covers(known, f"{path}.{last}")]
        stated = self.paths[max(covering, key=len)] if covering else self.paths.get(_DEFAULT, _WITHOUT)
        suffix = f" ({stated.source})" if stated.source else ""
        return Provenance(origin=stated.origin, source=f"{self.place}{path}{suffix}")


def parse(place: str, stated: Mapping[str, str]) -> Origins:
    """Read one file's ``x-provenance``, checked by :mod:`kimi_infra.config.recipe_schema`."""
    parts = {path: text.partition(":") for path, text in stated.items()}
    paths = {
        path: Provenance(origin=Origin(origin), source=source.strip())
        for path, (origin, _, source) in parts.items()
    }
    return Origins(place=place, paths=paths)


def _covers(known: str, path: str) -> bool:
    return path == known or path.startswith(f"{known}.")
