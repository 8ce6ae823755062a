"""The remedy for a name that is not one of the valid ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, valid: Iterable[str]) -> str:
    """Return the remedy for a word that is none of ``valid``: the nearest of them, or all."""
    known = sorted(valid)
    if not known:
        return "leave it out: there is none"
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
