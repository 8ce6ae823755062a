"""References to values that nobody has published: ``<value:NAME>`` in arguments, variables and images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kimi_infra.config.recipe_extensions import Value
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names
from kimi_infra.errors import Fault

_MARK = "<value:"
_REFERENCE = re.compile(r"<value:([^>]*)>?")
_PROSE = frozenset(
    {"meta", "guide", "dependencies", "hardware_notes", "description", "label", "note"}
    | {"omni", "x-values", "x-rules", "x-notes", "x-provenance"}
)
"""Keys below which nothing becomes part of a command."""


def faults(root: Place, declared: Mapping[str, Value]) -> Iterator[Fault]:
    """Yield references of a file that lead nowhere, or stand where their kind of value cannot."""
    for at in _texts(root):
        text = str(at.value)
        for match in _REFERENCE.finditer(text):
            value = declared.get(match[1])
            if value is None:
                remedy = f"declare it in x-values, or {names.closest(match[1], declared)}"
                yield at.fault("no such value is declared", remedy if declared else "declare it in x-values")
            elif value.kind == "args" and not (text == match[0] and isinstance(at.path[-1], int)):
                yield at.fault("a value of kind args stands for whole words", "make it a word by itself")
            elif value.kind == "integer" and text[:1] in {"{", "["} and f'"{match[0]}"' not in text:
                yield at.fault("a value of kind integer stands within JSON", "write its quotes as well")


def _texts(at: Place) -> Iterator[Place]:
    if isinstance(at.value, dict):
        for key, child in at.value.items():
            if key not in _PROSE:
                yield from _texts(child)
    elif isinstance(at.value, list):
        for child in at.value:
            yield from _texts(child)
    elif isinstance(at.value, str) and _MARK in at.value:
        yield at
