"""A JSON object → :class:`~kimi_infra.domain.inventory.Choice`, every fault of it at once.

The keys are the public format's own words; it calls a model ``recipe``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kimi_infra.domain import names
from kimi_infra.domain.inventory import Choice, Instances, PoolChoice
from kimi_infra.domain.recipe import POOLS
from kimi_infra.errors import Fault, SpecError

COUNT_MAX = 1024
"""Nodes of an engine or a pool, and engines behind a router: each is a command of its own in the answer."""
FIELDS = {"recipe": "model"}
"""Keys that our own choice calls by another name."""

_WHOLE = "choice"
"""Place of a fault of the object as a whole."""
_MANUAL = "docs/recipes.md"
_GOT_MAX = 60
_Reader = Callable[[list[Fault], str, object], Any]
"""Faults so far, path, value → what was read; what has a fault is read as None or left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A choice as it was written."""

    choice: Choice
    absent: frozenset[str]
    """Fields that hold a stand-in, because they are left to the recipe: strategy, hardware, nodes."""


def read(text: str) -> Written:
    """Read one object.

    Raises:
        SpecError: holds every fault; its place is the path in the object.
    """
    faults: list[Fault] = []
    found = _parsed(text, faults)
    if found is None:
        raise SpecError(tuple(faults))
    values = _known(faults, "", found, _KEYS)
    if found.get("recipe") is None:
        faults.append(Fault(where="recipe", what="missing key", remedy="give the recipe's ORG/REPO"))
    if faults:
        raise SpecError(tuple(faults))
    return _written(values)


def _written(values: Mapping[str, Any]) -> Written:
    left = {name: values.get(name) for name in ("hardware", "strategy", "nodes")}
    return Written(
        choice=Choice(
            model=values["recipe"],
            hardware=left["hardware"] or "",
            strategy=left["strategy"] or "",
            nodes=left["nodes"] or 0,
            features=values.get("features"),
            variant=values.get("variant", "default"),
            feature_modes=values.get("feature_modes", {}),
            kv_offload=values.get("kv_offload"),
            kv_instances=values.get("kv_instances"),
            pools=values.get("pools") or None,
            advanced_args=values.get("advanced_args", ()),
        ),
        absent=frozenset(name for name, value in left.items() if value is None),
    )


def _parsed(text: str, faults: list[Fault]) -> dict[str, object] | None:
    """Return the object, each key of it once; None when there is none."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            given = [key for key, _ in pairs]
            what, remedy = "the key is given twice", "give it once"
            twice = (key for key in found if given.count(key) > 1)
            faults.extend(Fault(where=key, what=what, remedy=remedy) for key in twice)
        return found

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        faults.append(_not_read(f"not JSON: {error.msg} at character {error.pos + 1}"))
        return None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of thousands of digits
        faults.append(_not_read(f"JSON that cannot be read: {error}"))
        return None
    if not isinstance(found, dict):
        _wrong(faults, _WHOLE, found, f"an object is expected, with the keys {', '.join(_KEYS)}")
        return None
    return found


def _not_read(what: str) -> Fault:
    return Fault(where=_WHOLE, what=what, remedy="write one JSON object a line")


def _wrong(faults: list[Fault], path: str, value: object, what: str) -> None:
    faults.append(Fault(where=path, what=what, got=_shown(value), remedy=f"write it as {_MANUAL} says"))


def _known(
    faults: list[Fault], path: str, value: Mapping[str, object], readers: Mapping[str, _Reader]
) -> dict[str, Any]:
    """Read the known keys of an object; null is as good as absent. Others are refused."""
    for key in value:
        if key not in readers:
            where, remedy = _under(path, key), names.closest(key, readers)
            faults.append(Fault(where=where, what="unknown key", remedy=remedy))
    return {
        key: reader(faults, _under(path, key), value[key])
        for key, reader in readers.items()
        if value.get(key) is not None
    }


def _text(faults: list[Fault], path: str, value: object) -> str | None:
    if isinstance(value, str):
        return value
    _wrong(faults, path, value, "text is expected")
    return None


def _name(faults: list[Fault], path: str, value: object) -> str | None:
    if value == "":
        _wrong(faults, path, value, "a name is expected")
    return _text(faults, path, value)


def _count(faults: list[Fault], path: str, value: object, least: int = 1) -> int | None:
    """Read a number of things each of which makes a command."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= COUNT_MAX:
        return value
    _wrong(faults, path, value, f"a whole number from {least} to {COUNT_MAX} is expected")
    return None


def _count_or_none(faults: list[Fault], path: str, value: object) -> int | None:
    """Read a number that may be 0: an index, or the nodes of a pool that shares one with the other."""
    return _count(faults, path, value, least=0)


def _words(faults: list[Fault], path: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        _wrong(faults, path, value, "a list of texts is expected")
        return ()
    found = [_text(faults, f"{path}[{index}]", item) for index, item in enumerate(value)]
    return tuple(word for word in found if word is not None)


def _object(faults: list[Fault], path: str, value: object) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    _wrong(faults, path, value, "an object is expected")
    return {}


def _modes(faults: list[Fault], path: str, value: object) -> dict[str, str]:
    given = _object(faults, path, value)
    found = {key: _text(faults, _under(path, key), mode) for key, mode in given.items() if mode is not None}
    return {key: mode for key, mode in found.items() if mode is not None}


def _pools(faults: list[Fault], path: str, value: object) -> dict[str, PoolChoice]:
    return _known(faults, path, _object(faults, path, value), dict.fromkeys(POOLS, _pool))


def _pool(faults: list[Fault], path: str, value: object) -> PoolChoice:
    readers: dict[str, _Reader] = {"nodes": _count_or_none, "parallelism": _text}
    return PoolChoice(**_known(faults, path, _object(faults, path, value), readers))


def _instances(faults: list[Fault], path: str, value: object) -> Instances:
    readers: dict[str, _Reader] = {"count": _count, "current": _count_or_none}
    return Instances(**_known(faults, path, _object(faults, path, value), readers))


_KEYS: Mapping[str, _Reader] = {
    "recipe": _name,
    "variant": _text,
    "strategy": _text,
    "hardware": _text,
    "nodes": _count,
    "pools": _pools,
    "features": _words,
    "feature_modes": _modes,
    "advanced_args": _words,
    "kv_offload": _text,
    "kv_instances": _instances,
}
KEYS = tuple(_KEYS)
"""All keys of a choice; each but the first may be absent or null."""


def _under(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _GOT_MAX else f"{text[:_GOT_MAX]}..."
