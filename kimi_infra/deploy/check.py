"""An inventory against the catalogue of recipes: every fault of both at once."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
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
    refusals = (fault for asked in reading.asked for fault in _refusals(catalogue, asked))
    faults = (*reading.faults, *refusals, *_shared_gpus(catalogue, reading.asked))
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


def _shared_gpus(catalogue: Catalogue, entries: Sequence[files.Asked]) -> Iterator[Fault]:
    """Refuse a second engine on a host with GPUs: the container of each is given all of them."""
    for first, second in itertools.combinations(entries, 2):
        shared = [name for name in second.hosts if name in first.hosts]
        asked = (first.choice.hardware, second.choice.hardware)
        with_gpus = [hardware for hardware in asked if _has_gpus(catalogue, hardware)]
        if shared and with_gpus:
            other = f"deployments[{first.index}] serves on {' and '.join(shared)} too"
            yield Fault(
                where=f"{files.DEPLOYMENT}: deployments[{second.index}].group",
                what=f"{other}, and on {with_gpus[0]} one engine has all GPUs of a host",
                remedy="give each deployment hosts of its own",
            )


def _has_gpus(catalogue: Catalogue, hardware: str) -> bool:
    profile = catalogue.profiles.get(hardware)
    return profile is not None and bool(profile.devices)


def _anchored(field: str, index: int) -> str:
    """Turn a field of a choice (``features.0``) into its place in the file."""
    path = re.sub(r"\.(\d+)", r"[\1]", field)
    return f"{files.DEPLOYMENT}: deployments[{index}].{path}"
