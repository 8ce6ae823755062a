"""A file's content with a fault set aside: as the public page takes it, or so that the rest can be judged.

The page's rules are those of its language: a block that is no mapping has nothing in it, a text where
a list of arguments belongs is a list of characters, ``0``, ``""`` and ``false`` are as good as absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

UNKNOWN, MISSING = "extra_forbidden", "missing"
"""Types of pydantic's faults."""

Steps = tuple[str | int, ...]
_Fill = Mapping[str | int, Callable[[], object]]
_ABSENT: _Fill = {
    "meta": dict,
    "title": str,
    "model": dict,
    "model_id": lambda: "unknown",
    "precision": str,
    "variants": dict,
    "compatible_strategies": list,
    "deploy_type": lambda: "single_node",
    "hardware_profiles": dict,
    "brand": str,
    "generation": str,
    "gpu_count": lambda: 1,
}
"""Keys that we ask for and the public page does without, with what it takes in their place."""
_STAND_IN: _Fill = {
    **{key: _ABSENT[key] for key in ("meta", "title", "model", "precision", "variants")},
    **{key: _ABSENT[key] for key in ("model_id", "compatible_strategies")},
}
"""The same where only the rest of the file matters."""
_GONE: Any = object()
"""Stands for a value that is left out."""
_ARGUMENTS = frozenset({"args", "extra_args", "vllm_args", "base_args"})
_ENVIRONMENT = frozenset({"env", "extra_env", "base_env"})
_MARKS = frozenset({"hardware", "default_modes", "kv_offload_support"})
"""Maps of words, each of which counts by being there, whatever it is; so does a variable."""
_GRANTS = frozenset({"strategy_hardware", "kv_cache_strategy_hardware"})
"""Maps of such maps; a word that is null is absent there."""
_TRUTHY = frozenset({"requires_opt_in", "restricted", "supports_dcp"})
"""What the page asks for truth; of other switches only the plain ``true`` or ``false`` counts."""
_IMAGES = frozenset({"docker_image", "amd", "tpu", "intel"})
_FRACTIONS = frozenset({"vram_minimum_gb", "vram_gb"})
_COERCED = _FRACTIONS | {"default_instances", "port", "intra_node_data_parallel_size"}
"""Numbers that the page also takes as text."""


def as_published(plain: Any, details: Iterable[ErrorDetails]) -> list[ErrorDetails]:
    """Take faults away as the public page does; what they hide is for the next call.

    Returns:
        the faults that were taken away; the content is changed in place.
    """
    eased: list[ErrorDetails] = []
    touched: list[Steps] = []
    for detail in sorted(details, key=lambda it: it["type"] == MISSING):
        path, *_ = _found(plain, detail["loc"])
        if detail["type"] == MISSING:
            if any(it["type"] != MISSING for it in eased):
                break  # a removal may make it a part of what is gone
            path = (*path, detail["loc"][-1])
        if any(path[: len(done)] == done or done[: len(path)] == path for done in touched):
            continue
        if _eased(plain, detail):
            eased.append(detail)
            touched.append(path)
    _prune(plain)
    return eased


def aside(plain: Any, detail: ErrorDetails) -> bool:
    """Take away the smallest part of the content that holds the fault; False if that is all of it."""
    steps = detail["loc"]
    if detail["type"] == MISSING:
        if _filled(plain, detail, _STAND_IN):
            return True
        steps = steps[:-1]
    _, above, key, at = _found(plain, steps)
    if isinstance(above, list) and not isinstance(at, (str, dict, list)):
        above[key] = str(at)  # keeps the places of its neighbours
        return True
    while isinstance(above, list):
        steps = steps[:-1]
        _, above, key, _ = _found(plain, steps)
    if above is None:
        return False
    del above[key]
    return True


def _eased(plain: Any, detail: ErrorDetails) -> bool:
    steps = detail["loc"]
    if detail["type"] == MISSING:
        if plain and _filled(plain, detail, _ABSENT):
            return True
        steps = steps[:-1]
    path, above, key, at = _found(plain, steps)
    if above is None:
        return False
    taken = _GONE if detail["type"] in {MISSING, UNKNOWN} else _taken(path, detail["type"], at)
    if type(taken) is type(at) and taken == at:
        return False
    if taken is _GONE and isinstance(above, dict):
        del above[key]
    else:
        above[key] = taken
    return True


def _taken(path: Steps, kind: str, at: Any) -> Any:
    """Return what the page makes of a value of a wrong type."""
    if isinstance(path[-1], int):
        return _entry(path, kind, at)
    taken = _TAKEN.get(kind)
    return _GONE if taken is None else taken(path, at)


def _map(_: Steps, at: Any) -> Any:
    """A list counts by its indexes."""
    return {str(index): item for index, item in enumerate(at)} if isinstance(at, list) else _GONE


def _block(path: Steps, at: Any) -> Any:
    """Whatever counts as true is an empty block; of a mode's blocks everything but null, of modes all."""
    above = path[-2] if len(path) > 1 else ""
    in_mode = "modes" in path[:-2] and above == "hardware_overrides"
    absent = at is None or (at in ("", 0) and not in_mode)
    return _GONE if absent and above != "modes" else {}


def _list(path: Steps, at: Any) -> Any:
    return list(at) if path[-1] in _ARGUMENTS and isinstance(at, str) else _GONE


def _entry(path: Steps, kind: str, at: Any) -> Any:
    """A word is written as text, which no name is; of arguments what counts as false is dropped."""
    if kind != "string_type":
        return _GONE
    name = next(step for step in reversed(path) if isinstance(step, str))
    if at in (None, 0):
        return _GONE if name in _ARGUMENTS else ""
    return _written(at)


def _text(path: Steps, at: Any) -> Any:
    key, above = path[-1], path[-2] if len(path) > 1 else ""
    if above in _MARKS | _ENVIRONMENT or (len(path) > 2 and path[-3] in _GRANTS and at is not None):
        return _written(at)
    if isinstance(at, (dict, list)) or at in (None, 0) or key in _IMAGES:
        return _GONE
    return _written(at)


def _number(path: Steps, at: Any) -> Any:
    key = path[-1]
    of_role = key == "tp" and path[-2] in {"prefill", "decode"}
    worded = key in _COERCED or of_role or "strategy_min_gpus" in path[:-1]
    number = _parsed(at) if isinstance(at, str) and worded else at
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if number is not at and (isinstance(number, int) or key in _FRACTIONS):
        return number
    # An entry of a map of sizes that is none ends the search of the map all the same.
    return 0 if len(path) > 1 and path[-2] == "tp" and at is not None else _GONE


def _switch(path: Steps, at: Any) -> Any:
    return at not in (None, "", 0) if path[-1] in _TRUTHY else _GONE


def _choice(path: Steps, _: Any) -> Any:
    return "single_node" if path[-1] == "deploy_type" else _GONE


def _parsed(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _written(at: Any) -> str:
    """Return a value as the page writes it."""
    if isinstance(at, float) and at.is_integer():
        return str(int(at))
    return at if isinstance(at, str) else json.dumps(at)


_TAKEN: Mapping[str, Callable[[Steps, Any], Any]] = {
    "dict_type": _map,
    "model_type": _block,
    "list_type": _list,
    "string_type": _text,
    "bool_type": _switch,
    "literal_error": _choice,
    **dict.fromkeys(("int_type", "int_from_float", "float_type", "spelling"), _number),
}
"""By pydantic's types of faults; a value with another one is left out."""


def _filled(plain: Any, detail: ErrorDetails, fill: _Fill) -> bool:
    *steps, key = detail["loc"]
    _, _, _, at = _found(plain, steps)
    if key not in fill or not isinstance(at, dict) or key in at:
        return False
    at[key] = fill[key]()
    return True


def _prune(at: Any) -> None:
    """Take away what was left out of lists."""
    if isinstance(at, list):
        at[:] = [item for item in at if item is not _GONE]
    for below in at if isinstance(at, list) else at.values() if isinstance(at, dict) else ():
        _prune(below)


def _found(plain: Any, steps: Sequence[str | int]) -> tuple[Steps, Any, Any, Any]:
    """Follow a path as far as the content goes; return it, what holds its end, by which key, and the end."""
    path: Steps = ()
    above: Any = None
    key: str | int = ""
    at = plain
    for step in steps:
        if _holds(at, step):
            path, above, key, at = (*path, step), at, step, at[step]
    return path, above, key, at


def _holds(at: Any, step: str | int) -> bool:
    if isinstance(at, list):
        return step in range(len(at))
    return isinstance(at, dict) and step in at
