"""The extension ``x-provenance``: who vouches for each value of a recipe file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    _made: dict[tuple[str, str], Provenance] = field(default_factory=dict)
    """(path, the stated path that covers it) -> one object for all words there."""

    def words(self, path: str, texts: Sequence[str]) -> tuple[Word, ...]:
        """Give each word of a list of arguments its origin; a path may end in a flag."""
        return tuple(
            Word(text=text, provenance=origin)
            for text, origin in zip(texts, self._each(path, texts), strict=True)
        )

    def env(self, path: str, values: Mapping[str, str]) -> tuple[EnvEntry, ...]:
        """Give each variable its origin; a path may end in its name."""
        origins = self._each(path, tuple(values))
        return tuple(
            EnvEntry(name=name, value=value, provenance=origin)
            for (name, value), origin in zip(values.items(), origins, strict=True)
        )

    def of(self, path: str) -> Provenance:
        """Return the origin of the one value at a path."""
        return self._stated(path, self._covering(path))

    def _each(self, path: str, names: Sequence[str]) -> list[Provenance]:
        if not names:
            return []
        finer = any(known.startswith(f"{path}.") for known in self.paths)
        if not finer:
            return [self.of(path)] * len(names)
        return [self._stated(path, self._covering(f"{path}.{name}")) for name in names]

    def _covering(self, path: str) -> str:
        covering = [known for known in self.paths if path == known or path.startswith(f"{known}.")]
        return max(covering, key=len, default=_DEFAULT)

    def _stated(self, path: str, known: str) -> Provenance:
        made = self._made.get((path, known))
        if made is None:
            stated = self.paths.get(known, _WITHOUT)
            suffix = f" ({stated.source})" if stated.source else ""
            made = Provenance(origin=stated.origin, source=f"{self.place}{path}{suffix}")
            self._made[path, known] = made
        return made


def parse(place: str, stated: Mapping[str, str]) -> Origins:
    """Read one file's ``x-provenance``, checked by :mod:`kimi_infra.config.recipe_base`."""
    parts = {path: text.partition(":") for path, text in stated.items()}
    paths = {
        path: Provenance(origin=Origin(origin), source=source.strip())
        for path, (origin, _, source) in parts.items()
    }
    return Origins(place=place, paths=paths)
