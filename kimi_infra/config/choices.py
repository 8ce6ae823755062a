"""A JSON object → :class:`~kimi_infra.domain.inventory.Choice`, with every fault of its shape.

The keys are the public format's own words; it calls a model ``recipe``.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

from kimi_infra.domain import names
from kimi_infra.domain.inventory import Choice, Instances, PoolChoice
from kimi_infra.domain.recipe import POOLS
from kimi_infra.errors import Fault, SpecError

COUNT_MAX = 1024
"""Nodes of an engine or a pool, and engines behind a router: each is a command of its own in the answer."""
WORDS_MAX = 512
"""Words of the operator's own, which every node repeats."""
WORDS_BYTES_MAX = 1 << 15
"""All of them together as the answer writes them, in JSON."""
FEATURES_MAX = 256
"""Features, and modes of features."""
NAME_MAX = 512
"""Characters of a name."""
KEYS_MAX = 64
"""Keys of one object that are unknown or given twice; of more only the first are told."""
FIELDS = {"recipe": "model"}
"""Keys that our own choice calls by another name."""

_UNREAD = ""
"""Stands for a name that could not be read; nothing is called so."""
_WHOLE = "choice"
"""Place of a fault of the object as a whole."""
_MANUAL = "docs/recipes.md"
_GOT_MAX = 60
_Reader = Callable[[list[Fault], str, object], Any]
"""Faults so far, path, value → what was read, or a stand-in with its fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A choice as it was written."""

    choice: Choice
    """With a stand-in for what is absent or could not be read."""
    absent: frozenset[str]
    """Fields that are left to the recipe: strategy, hardware, nodes."""
    faults: tuple[Fault, ...] = ()
    """Each has its path in the object as its place."""
    unread: frozenset[str] = frozenset()
    """Paths in the choice of what could not be read."""


def read(text: str) -> Written:
    """Read one object.

    Raises:
        SpecError: the text is no object.
    """
    faults: list[Fault] = []
    found = _parsed(text, faults)
    if found is None:
        raise SpecError(tuple(faults))
    values = _known(faults, "", found, _KEYS)
    if found.get("recipe") is None:
        faults.append(Fault(where="recipe", what="missing key", remedy="give the recipe's ORG/REPO"))
    return _written(values, tuple(faults))


def _written(values: Mapping[str, Any], faults: tuple[Fault, ...]) -> Written:
    unread = frozenset(_unread(faults)) if faults else frozenset()
    left = {name: values.get(name) for name in ("hardware", "strategy", "nodes")}
    return Written(
        choice=Choice(
            model=values.get("recipe", _UNREAD),
            hardware=left["hardware"] or _UNREAD,
            strategy=left["strategy"] or _UNREAD,
            nodes=left["nodes"] or 0,
            features=values.get("features"),
            variant=values.get("variant", "default"),
            feature_modes=values.get("feature_modes", {}),
            kv_offload=values.get("kv_offload"),
            kv_instances=values.get("kv_instances"),
            pools=values.get("pools") or None,
            advanced_args=values.get("advanced_args", ()),
        ),
        absent=frozenset(name for name, value in left.items() if value is None and name not in unread),
        faults=faults,
        unread=unread,
    )


def _unread(faults: tuple[Fault, ...]) -> Iterator[str]:
    """Yield the places of faults; of a key that is unknown the one that was probably meant."""
    for fault in faults:
        key, _, _ = fault.where.partition(".")
        meant = (
            [fault.where] if key.partition("[")[0] in _KEYS else difflib.get_close_matches(key, _KEYS, n=1)
        )
        yield from (FIELDS.get(path, path) for path in meant)


def _parsed(text: str, faults: list[Fault]) -> dict[str, object] | None:
    """Return the object, each key of it once; None when there is none."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            what, remedy = "the key is given twice", "give it once"
            twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
            faults.extend(Fault(where=key, what=what, remedy=remedy) for key in twice[:KEYS_MAX])
            _left(faults, _WHOLE, "given twice", twice)
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
    unknown = [key for key in value if key not in readers]
    for key in unknown[:KEYS_MAX]:
        where, remedy = _under(path, key), names.closest(key, readers)
        faults.append(Fault(where=where, what="unknown key", remedy=remedy))
    _left(faults, path or _WHOLE, "unknown", unknown)
    return {
        key: reader(faults, _under(path, key), value[key])
        for key, reader in readers.items()
        if value.get(key) is not None
    }


def _left(faults: list[Fault], path: str, what: str, keys: Sized) -> None:
    """Say how many more keys are wrong than are told one by one."""
    if len(keys) > KEYS_MAX:
        what = f"{len(keys)} keys are {what}, of which the first {KEYS_MAX} are told"
        faults.append(Fault(where=path, what=what, remedy=f"write it as {_MANUAL} says"))


def _text(faults: list[Fault], path: str, value: object) -> str:
    if isinstance(value, str):
        return value
    _wrong(faults, path, value, "text is expected")
    return _UNREAD


def _short(faults: list[Fault], path: str, value: object) -> str:
    """Read a name, which faults and warnings repeat."""
    text = _text(faults, path, value)
    if len(text) <= NAME_MAX:
        return text
    _wrong(faults, path, value, f"a name of at most {NAME_MAX} characters is expected, not of {len(text)}")
    return _UNREAD


def _name(faults: list[Fault], path: str, value: object) -> str:
    if value == "":
        _wrong(faults, path, value, "a name is expected")
    return _short(faults, path, value)


def _count(faults: list[Fault], path: str, value: object, least: int = 1) -> int | None:
    """Read a number of things each of which makes a command."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= COUNT_MAX:
        return value
    _wrong(faults, path, value, f"a whole number from {least} to {COUNT_MAX} is expected")
    return None


def _count_or_none(faults: list[Fault], path: str, value: object) -> int | None:
    """Read a number that may be 0: an index, or the nodes of a pool that shares one with the other."""
    return _count(faults, path, value, least=0)


def _texts(
    faults: list[Fault], path: str, value: object, most: int, reader: _Reader = _text
) -> tuple[str, ...]:
    if not isinstance(value, list):
        _wrong(faults, path, value, "a list of texts is expected")
        return ()
    if _too_many(faults, path, value, most, "texts"):
        return ()
    # A stand-in keeps the places of the words behind it.
    return tuple(reader(faults, f"{path}[{index}]", item) for index, item in enumerate(value))


def _too_many(faults: list[Fault], path: str, value: Sized, most: int, what: str) -> bool:
    if len(value) > most:
        _wrong(faults, path, len(value), f"at most {most} {what} are expected")
    return len(value) > most


def _features(faults: list[Fault], path: str, value: object) -> tuple[str, ...]:
    return _texts(faults, path, value, FEATURES_MAX, _short)


def _words(faults: list[Fault], path: str, value: object) -> tuple[str, ...]:
    """Read words that the command of every node repeats."""
    found = _texts(faults, path, value, WORDS_MAX)
    size = len(json.dumps(found))
    if size <= WORDS_BYTES_MAX:
        return found
    _wrong(faults, path, size, f"words that take at most {WORDS_BYTES_MAX} bytes as JSON are expected")
    return ()


def _object(faults: list[Fault], path: str, value: object) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    _wrong(faults, path, value, "an object is expected")
    return {}


def _modes(faults: list[Fault], path: str, value: object) -> dict[str, str]:
    given = _object(faults, path, value)
    if _too_many(faults, path, given, FEATURES_MAX, "keys"):
        return {}
    return {key: _short(faults, _under(path, key), mode) for key, mode in given.items() if mode is not None}


def _pools(faults: list[Fault], path: str, value: object) -> dict[str, PoolChoice]:
    return _known(faults, path, _object(faults, path, value), dict.fromkeys(POOLS, _pool))


def _pool(faults: list[Fault], path: str, value: object) -> PoolChoice:
    readers: dict[str, _Reader] = {"nodes": _count_or_none, "parallelism": _short}
    return PoolChoice(**_known(faults, path, _object(faults, path, value), readers))


def _instances(faults: list[Fault], path: str, value: object) -> Instances:
    readers: dict[str, _Reader] = {"count": _count, "current": _count_or_none}
    return Instances(**_known(faults, path, _object(faults, path, value), readers))


_KEYS: Mapping[str, _Reader] = {
    "recipe": _name,
    "variant": _short,
    "strategy": _short,
    "hardware": _short,
    "nodes": _count,
    "pools": _pools,
    "features": _features,
    "feature_modes": _modes,
    "advanced_args": _words,
    "kv_offload": _short,
    "kv_instances": _instances,
}
KEYS = tuple(_KEYS)
"""All keys of a choice; each but the first may be absent or null."""


def _under(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _GOT_MAX else f"{text[:_GOT_MAX]}..."
