"""An inventory against the catalogue of recipes: every fault of both at once."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from kimi_infra.config import inventory as files
from kimi_infra.domain.inventory import Inventory
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import resolve


def check(path: Path, catalogue: Catalogue) -> Inventory:
    """Return the inventory of a directory, every choice of which can be compiled.

    Raises:
        SpecError: holds every fault of both files, those of the choices included.
    """
    reading = files.read(path)
    faults = (*reading.faults, *(fault for asked in reading.asked for fault in _refusals(catalogue, asked)))
    if reading.inventory is None or faults:
        raise SpecError(faults)
    return reading.inventory


def _refusals(catalogue: Catalogue, asked: files.Asked) -> Iterator[Fault]:
    try:
        resolve.resolve(catalogue, asked.choice)
    except SpecError as error:
        for fault in error.faults:
            if fault.where.partition(".")[0] not in asked.unread:
                yield dataclasses.replace(fault, where=_anchored(fault.where, asked.index))


def _anchored(field: str, index: int) -> str:
    """Turn a field of a choice (``features.0``) into its place in the file."""
    path = re.sub(r"\.(\d+)", r"[\1]", field)
    return f"{files.DEPLOYMENT}: deployments[{index}].{path}"
