"""Many choices in, as many answers out: one JSON object a line each, as the public page would render them.

One line is read, answered and forgotten before the next one, so that memory does not grow with their number.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import BinaryIO

from kimi_infra.config import choices
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import Fault, KimiInfraError, SpecError
from kimi_infra.planning import defaults, partial, resolve
from kimi_infra.rendering import resolution_json

LINE_MAX = 1 << 20
"""Bytes of a choice; a longer line is answered by an error without being kept."""

_KEYS = {field: key for key, field in choices.FIELDS.items()}
_SEPARATORS = (",", ":")


def lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a stream as they arrive; of one that is too long only the beginning."""
    while line := stream.readline(LINE_MAX + 1):
        yield line
        while len(line) > LINE_MAX and not line.endswith(b"\n"):
            line = stream.readline(LINE_MAX + 1)


def answers(catalogue: Catalogue, asked: Iterable[bytes]) -> Iterator[str]:
    """Yield one answer a line, in the same order, as JSON without a line end."""
    for line in asked:
        yield json.dumps(answer(catalogue, line), separators=_SEPARATORS)


def answer(catalogue: Catalogue, line: bytes) -> dict[str, object]:
    """Return the commands of one choice, or what is wrong with it under ``error``."""
    try:
        written = choices.read(_text(line))
        given = partial.Given(
            choice=written.choice, absent=written.absent, faults=written.faults, unread=written.unread
        )
        choice = partial.completed(catalogue, given, defaults.filled)
        return _found(resolve.as_published(catalogue, choice))
    except SpecError as error:
        return {"error": _told(error.faults)}
    except KimiInfraError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - an accident of ours on one line must not cost those after it
        return {"error": _accident(error)}


def _text(line: bytes) -> str:
    if len(line) > LINE_MAX:
        what, remedy = f"a line of more than {LINE_MAX} bytes", "write one JSON object a line"
        raise SpecError((Fault(where="choice", what=what, remedy=remedy),))
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what, remedy = f"not UTF-8 at byte {error.start + 1}", "write the line in UTF-8"
        raise SpecError((Fault(where="choice", what=what, remedy=remedy),)) from error


def _found(resolution: Resolution) -> dict[str, object]:
    found: dict[str, object] = {
        "nodes": [resolution_json.node(launch) for launch in resolution.launches],
        "router": resolution_json.words(resolution.router),
    }
    if resolution.warnings:
        found["warnings"] = [str(_keyed(fault)) for fault in resolution.warnings]
    return found


def _told(faults: Iterable[Fault]) -> str:
    return "\n".join(str(_keyed(fault)) for fault in faults)


def _accident(error: Exception) -> str:
    """Say where our own code broke; without a fault of the choice there is nothing else to tell."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{PurePath(frame.filename).name}:{frame.lineno}"
    return f"kimi-infra itself failed on this choice: {error!r} at {place}; please report it with the choice"


def _keyed(fault: Fault) -> Fault:
    """Name a field of a choice as the batch does."""
    key = _KEYS.get(fault.where)
    if key is None:
        return fault
    return Fault(where=key, what=fault.what, got=fault.got, remedy=fault.remedy)
