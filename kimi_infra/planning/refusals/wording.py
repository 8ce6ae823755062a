"""How refusals are worded."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from kimi_infra.domain import recipe as domain
from kimi_infra.domain.recipe import POOLS
from kimi_infra.errors import Fault

SHOWN = 3
"""Choices that work and are named at most: the nearest ones."""
UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What no target's syntax can carry."""


def fault(where: str, what: str, got: str | None, remedy: str) -> Fault:
    """Build a fault."""
    return Fault(where=where, what=what, got=got, remedy=remedy)


def unknown(where: str, noun: str, name: str, valid: Iterable[str]) -> Fault:
    """Build the fault of a name that is not among the valid ones."""
    known = tuple(valid)
    if not known:
        return fault(where, f"there is no {noun} to choose from", ascii(name)[1:-1], "leave it out")
    found = domain.unknown_name(where, noun, name, known)
    if not name.strip():
        return dataclasses.replace(found, what=f"the name of a {noun} is empty", got=None)
    if UNWRITABLE.search(name):
        return dataclasses.replace(
            found, what=f"a control character is part of no {noun}'s name", got=ascii(name)
        )
    return found


def any_of(names: Iterable[str]) -> str:
    """Join names of which any one will do."""
    return " or ".join(names)


def all_of(names: Iterable[str]) -> str:
    """Join names that are all meant."""
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last


def counted(number: int, noun: str) -> str:
    """Put a number before its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def pools(nodes: Mapping[str, int]) -> str:
    """Name the sizes of both pools."""
    sizes = {role: nodes[role] for role in POOLS if role in nodes}
    last = next(reversed(sizes.values()), 0)
    return (
        f"{' and '.join(f'{size} {role}' for role, size in sizes.items())} {'node' if last == 1 else 'nodes'}"
    )


def said(sentences: Iterable[str]) -> str:
    """Quote what a refusal rests on, where there is something."""
    found = "; ".join(dict.fromkeys(sentences))
    return f" ({found})" if found else ""
