"""An inventory against the catalogue of recipes: every fault of both at once, and every need."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kimi_infra.config import inventory as files
from kimi_infra.config.asked import Asked
from kimi_infra.domain import fill_in
from kimi_infra.domain.inventory import KV_TIER_BYTES, ImageChoice, Inventory
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.recipe import Catalogue, unknown_name
from kimi_infra.errors import Fault, Need, SpecError
from kimi_infra.planning import resolve

_PLACES = {
    "kv_offload": "offload",
    f"values.{KV_TIER_BYTES}": "offload.per_rank",
    "pools.prefill.nodes": "group",
    "pools.decode.nodes": "group",
}
"""Fields of a choice that deployment.yml says in another way."""


def check(path: Path, catalogue: Catalogue) -> Inventory:
    """Return the inventory of a directory, every choice of which can be compiled.

    Raises:
        SpecError: holds every fault of both files, those of the choices included.
    """
    reading = files.read(path)
    compiled = [_compiled(catalogue, asked) for asked in reading.asked]
    refusals = (fault for each in compiled for fault in each.faults)
    faults = (*reading.faults, *refusals, *_shared_gpus(catalogue, reading.asked))
    if reading.inventory is None or faults:
        raise SpecError(faults)
    told = {need.where for need in reading.inventory.needs}
    needs = (need for each in compiled for need in each.needs if need.where not in told)
    return dataclasses.replace(reading.inventory, needs=(*reading.inventory.needs, *needs))


def needs_of(resolution: Resolution) -> tuple[Need, ...]:
    """Return what commands wait for, by its place in an entry of deployment.yml.

    The image is left out: the operator's own ``image.name`` decides, see :func:`image_needs`.
    """
    words = [word for launch in resolution.launches for word in launch.args]
    variables = [entry.value for launch in resolution.launches for entry in launch.env]

    def of_the_image_alone(need: Need) -> bool:
        return _in_image(need, resolution) and not any(need.what in text for text in (*words, *variables))

    return tuple(_told(need) for need in resolution.needs if not of_the_image_alone(need))


def image_needs(resolution: Resolution, image: ImageChoice) -> tuple[Need, ...]:
    """Return what nobody has published of the image, while the operator has not named one either."""
    if not fill_in.is_open(image.name):
        return ()
    return tuple(
        dataclasses.replace(need, where="image.name")
        for need in resolution.needs
        if _in_image(need, resolution)
    )


def _in_image(need: Need, resolution: Resolution) -> bool:
    return any(need.what in (launch.image or "") for launch in resolution.launches)


def _told(need: Need) -> Need:
    if need.where != f"values.{KV_TIER_BYTES}":
        return need
    how = "write offload: {policy: fixed, per_rank: SIZE}"
    return Need(where=_PLACES[need.where], what=f"{need.what}; {how}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """One choice against its recipe, in places of deployment.yml."""

    faults: tuple[Fault, ...]
    needs: tuple[Need, ...] = ()


def _compiled(catalogue: Catalogue, asked: Asked) -> _Compiled:
    faults = list(_unknown_values(catalogue, asked))
    needs: tuple[Need, ...] = ()
    try:
        needs = needs_of(resolve.resolve(catalogue, asked.choice))
    except SpecError as error:
        faults += [fault for fault in error.faults if _field(fault) not in asked.unread]
    return _Compiled(
        faults=tuple(
            dataclasses.replace(fault, where=_anchored(fault.where, asked.index)) for fault in faults
        ),
        needs=tuple(dataclasses.replace(need, where=_anchored(need.where, asked.index)) for need in needs),
    )


def _field(fault: Fault) -> str:
    return re.split(r"[.\[]", fault.where)[0]


def _unknown_values(catalogue: Catalogue, asked: Asked) -> Iterator[Fault]:
    """Find names of values that are still to be filled in and that the recipe does not ask for."""
    if asked.choice.model not in catalogue.recipes:
        return
    known = {**catalogue.values, **catalogue.recipe(asked.choice.model).values}
    for name in asked.waiting:
        if name not in known:
            yield unknown_name(f"values.{name}", "value", name, known)


def _shared_gpus(catalogue: Catalogue, entries: Sequence[Asked]) -> Iterator[Fault]:
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
    """Turn a field of a choice (``features[0]``) into its place in the file."""
    return f"{files.DEPLOYMENT}: deployments[{index}].{_PLACES.get(field, field)}"
