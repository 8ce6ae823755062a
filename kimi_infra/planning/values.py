"""Values that nobody has published: what the operator gives, else a placeholder that says what is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kimi_infra.domain.launch import EnvEntry, Flag
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Value, ValueKind, Word
from kimi_infra.errors import Need

_MARK = "<value:"
_REFERENCE = re.compile(r'(")?<value:([A-Za-z0-9_]+)>(?(1)("?))')
"""A reference, with the quotes around it where a JSON string holds nothing else."""

Given = Mapping[str, str | tuple[str, ...]]


@dataclass(slots=True)
class Filling:
    """The values of one choice, and which of them were asked for and not given."""

    known: Mapping[str, Value]
    given: Given
    missing: dict[str, Value] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """Names of all that were asked for."""

    def words(self, words: Iterable[Word]) -> Iterator[Word]:
        """Yield words with those that stand for whole flags filled in."""
        for word in words:
            value = self._whole(word.text)
            if value is None:
                yield word
                continue
            self.used.add(value.name)
            if value.name in self.given:
                yield from (Word(text=text, provenance=_operator(value)) for text in self._given_words(value))
            else:
                yield Word(text=self._placeholder(value), provenance=_unknown(value))

    def flag(self, flag: Flag) -> Flag:
        """Return a flag with the values within its words filled in."""
        if not any(_MARK in token for token in flag.tokens):
            return flag
        origins = flag.token_provenances
        filled = [self._filled(token, origin) for token, origin in zip(flag.tokens, origins, strict=True)]
        tokens = tuple(text for text, _ in filled)
        first, *rest = [origin for _, origin in filled]
        value = rest[0] if rest and rest[0] != first else None
        return Flag(tokens=tokens, provenance=first, value_provenance=value)

    def entry(self, entry: EnvEntry) -> EnvEntry:
        """Return a variable with the values within its text filled in."""
        if _MARK not in entry.value:
            return entry
        text, provenance = self._filled(entry.value, entry.provenance)
        return EnvEntry(name=entry.name, value=text, provenance=provenance)

    def image(self, name: str | None) -> str | None:
        """Return an image's name with its value filled in."""
        if name is None or _MARK not in name:
            return name
        return self._filled(name, Provenance(origin=Origin.UNKNOWN, source="image"))[0]

    def needs(self) -> tuple[Need, ...]:
        """Return what was asked for and not given, in the order of asking."""
        return tuple(
            Need(where=f"values.{value.name}", what=f"{value.what}; {value.find}")
            for value in self.missing.values()
        )

    def _whole(self, text: str) -> Value | None:
        if not text.startswith(_MARK):
            return None
        value = self.known.get(text.removeprefix(_MARK).removesuffix(">"))
        return value if value is not None and value.kind is ValueKind.ARGS else None

    def _given_words(self, value: Value) -> tuple[str, ...]:
        given = self.given[value.name]
        return (given,) if isinstance(given, str) else given

    def _filled(self, text: str, before: Provenance) -> tuple[str, Provenance]:
        origins: list[Provenance] = []

        def fill(match: re.Match[str]) -> str:
            value = self.known.get(match[2])
            if value is None:
                return match[0]
            self.used.add(value.name)
            quoted = bool(match[1] and match[3])
            if value.name not in self.given:
                origins.append(_unknown(value))
                return _within(self._placeholder(value), match)
            origins.append(_operator(value))
            found = " ".join(self._given_words(value))
            return found if quoted and value.kind is ValueKind.INTEGER else _within(found, match)

        filled = _REFERENCE.sub(fill, text)
        return filled, _worst(origins) or before

    def _placeholder(self, value: Value) -> str:
        self.missing.setdefault(value.name, value)
        return value.placeholder


def _within(text: str, match: re.Match[str]) -> str:
    """Put text between the quotes of a JSON string, where the reference stood in one."""
    if not match[1]:
        return text
    return f'"{json.dumps(text, ensure_ascii=False)[1:-1]}{match[3] or ""}'


def _worst(origins: list[Provenance]) -> Provenance | None:
    """Return the origin of a text of several: what is missing counts before what was given."""
    return min(origins, key=lambda it: it.origin is Origin.OPERATOR, default=None)


def _operator(value: Value) -> Provenance:
    return Provenance(origin=Origin.OPERATOR, source=f"values.{value.name}")


def _unknown(value: Value) -> Provenance:
    return Provenance(origin=value.origin, source=f"values.{value.name}: {value.what}")
