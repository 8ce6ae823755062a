"""A file's content with a fault set aside: as the public page takes it, or so that the rest can be judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

UNKNOWN, MISSING = "extra_forbidden", "missing"
"""Types of pydantic's faults."""

_Fill = Mapping[str | int, Callable[[], object]]
_ABSENT: _Fill = {
    "meta": dict,
    "title": str,
    "precision": str,
    "variants": dict,
    "compatible_strategies": list,
}
"""Keys that we ask for and the public page does without, with what it takes in their place."""
_STAND_IN: _Fill = {**_ABSENT, "model": dict, "model_id": str}
"""The same where only the rest of the file matters."""


def as_published(plain: Any, detail: ErrorDetails) -> bool:
    """Leave out an unknown key or one without a value, fill in one that the page does without.

    Returns:
        whether the fault was one of these; the content is changed in place.
    """
    if detail["type"] == MISSING:
        return _filled(plain, detail, _ABSENT)
    above, key, at = _found(plain, detail["loc"])
    if not isinstance(above, dict) or (detail["type"] != UNKNOWN and at is not None):
        return False
    del above[key]
    return True


def aside(plain: Any, detail: ErrorDetails) -> bool:
    """Take away the smallest part of the content that holds the fault; False if that is all of it."""
    steps = detail["loc"]
    if detail["type"] == MISSING:
        if _filled(plain, detail, _STAND_IN):
            return True
        steps = steps[:-1]
    above, key, at = _found(plain, steps)
    if isinstance(above, list) and not isinstance(at, (str, dict, list)):
        above[key] = str(at)  # keeps the places of its neighbours
        return True
    while isinstance(above, list):
        steps = steps[:-1]
        above, key, _ = _found(plain, steps)
    if above is None:
        return False
    del above[key]
    return True


def _filled(plain: Any, detail: ErrorDetails, fill: _Fill) -> bool:
    *steps, key = detail["loc"]
    _, _, at = _found(plain, steps)
    if key not in fill or not isinstance(at, dict) or key in at:
        return False
    at[key] = fill[key]()
    return True


def _found(plain: Any, steps: Sequence[str | int]) -> tuple[Any, Any, Any]:
    """Follow a path as far as the content goes; return what holds its end, under which key, and the end."""
    above: Any = None
    key: str | int = ""
    at = plain
    for step in steps:
        if _holds(at, step):
            above, key, at = at, step, at[step]
    return above, key, at


def _holds(at: Any, step: str | int) -> bool:
    if isinstance(at, list):
        return step in range(len(at))
    return isinstance(at, dict) and step in at
