"""A choice as it was given, complete; or all that is wrong with it, unreadable parts beside the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import presets, refusals

Fill = Callable[[Catalogue, Choice, AbstractSet[str]], Choice]
"""Fills in the fields that were left out; raises SpecError where the recipe cannot be had."""

_DECIDING = frozenset({"model", "hardware", "strategy", "variant", "preset"})
"""Fields by which others are filled in."""
_WHOLE = frozenset({"pools", "kv_instances"})
"""Fields whose parts mean little without each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A choice as it was read."""

    choice: Choice
    """With any stand-in for what is absent, and a name that nothing has for what could not be read."""
    absent: AbstractSet[str]
    """Of ``hardware``, ``strategy`` and ``nodes`` those that were left out."""
    faults: tuple[Fault, ...] = ()
    """Found while reading."""
    unread: AbstractSet[str] = frozenset()
    """Fields or parts of fields that could not be read, named as a refusal names its place."""


def completed(catalogue: Catalogue, given: Given, fill: Fill) -> Choice:
    """Fill in what was left out.

    Raises:
        SpecError: holds the faults of reading, and every reason against what could be read.
    """
    if not given.faults:
        try:
            return fill(catalogue, given.choice, given.absent)
        except SpecError:  # told below, together with what else speaks against the choice
            pass
    raise SpecError((*given.faults, *_others(catalogue, given, fill)))


def _others(catalogue: Catalogue, given: Given, fill: Fill) -> Iterator[Fault]:
    """Yield what speaks against the readable part, without what would follow from the rest."""
    choice = given.choice
    fields = {_field(path) for path in given.unread}
    absent = given.absent | ({"nodes"} & fields)
    try:
        if not fields & _DECIDING:
            choice = fill(catalogue, choice, absent)
        found = refusals.faults(catalogue, presets.expanded(catalogue, choice))
    except SpecError as error:  # of the recipe or its file; other names are known without it
        names = refusals.faults(dataclasses.replace(catalogue, recipes={}), choice)
        found = (*error.faults, *(fault for fault in names if fault.where != "model"))
    silent = absent | given.unread
    if "nodes" in absent and not given.choice.pools:
        silent |= {"pools"}  # shared out of the nodes
    for fault in found:
        if not any(_follows(fault.where, path) for path in silent):
            yield fault


def _follows(where: str, path: str) -> bool:
    """Tell whether a fault's place lies in one that is not judged."""
    field = _field(path)
    if field in _WHOLE:
        return _field(where) == field
    if path == "features" and _field(where) == "feature_modes":
        return True
    return where == path or where.startswith((f"{path}.", f"{path}["))


def _field(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]
