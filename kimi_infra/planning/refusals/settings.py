"""What a compiled command sets: options, keys in their JSON values, and variables, each by one spelling."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Flag, Launch
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.planning.refusals import spelling

OWN = ("advanced_args", "dcp", "values")
"""Fields of a choice that stand in a command as they are; a recipe may be the operator's as a whole."""
_WORD = re.compile(r"(?s)([^=>]+)(?:([=>])(.*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing that is set."""

    text: str
    """As it stands in the command."""
    value: str
    """Empty for a switch."""
    provenance: Provenance
    """Who vouches for the value."""


Settings = Mapping[str, Setting]
"""By ``--flag``, ``--flag.key`` or ``NAME``; of one that is set twice the last."""


def of(launch: Launch) -> Settings:
    """Return all that a node's command sets; what it switches off is absent."""
    found: dict[str, Setting] = {}
    for flag in launch.flags:
        if not flag.name.startswith("-"):
            continue
        if spelling.negative(flag.name):
            found.pop(spelling.option(flag.name), None)
            continue
        for name, text in _values(flag):
            provenance = flag.value_provenance or flag.provenance
            found[name] = Setting(text=" ".join(flag.tokens), value=text, provenance=provenance)
    for entry in launch.env:
        text = f"{entry.name}={entry.value}"
        found[entry.name] = Setting(text=text, value=entry.value, provenance=entry.provenance)
    return found


def met(word: str, found: Settings) -> Setting | None:
    """Return what meets a word of a rule on flags, None where nothing does."""
    match = _WORD.fullmatch(word)
    setting = found.get(match[1]) if match else None
    if match is None or setting is None:
        return None
    if match[2] is None:
        return setting
    if match[2] == ">":
        more = setting.value.isdecimal() and int(setting.value) > int(match[3])
        return setting if more else None
    # vLLM reads the names of modes in either case.
    return setting if setting.value.casefold() == match[3].casefold() else None


def place(provenance: Provenance) -> str | None:
    """Return the field of a choice in which the operator wrote something himself, None for a recipe's."""
    own = provenance.source.partition(".")[0] in OWN
    return provenance.source if own and provenance.origin is Origin.OPERATOR else None


def written(setting: Setting, choice: Choice) -> str | None:
    """Return the field of a choice that set something: of a text with several values the one that did."""
    where = place(setting.provenance)
    # Beside a value that is missing, the whole text counts as unknown.
    if not setting.provenance.source.startswith("values."):
        return where
    same = (name for name, given in choice.values.items() if given == setting.value)
    return next((f"values.{name}" for name in same), where)


def value(flag: Flag) -> str:
    """Return a flag's value, in whichever word it stands; empty for a switch."""
    return flag.tokens[1] if len(flag.tokens) > 1 else spelling.attached(flag.name)


def keys(text: str) -> Mapping[str, object] | None:
    """Return the keys of a JSON object, None for any other text."""
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _values(flag: Flag) -> Iterator[tuple[str, str]]:
    text, path = value(flag), filter(None, (spelling.option(flag.name), spelling.key(flag.name)))
    name, inside = ".".join(path), keys(text)
    yield name, text
    yield from _below(name, inside or {})


def _below(name: str, found: object) -> Iterator[tuple[str, str]]:
    if isinstance(found, dict):
        for key, below in found.items():
            yield from _below(f"{name}.{key}", below)
    else:
        yield name, found if isinstance(found, str) else json.dumps(found)
