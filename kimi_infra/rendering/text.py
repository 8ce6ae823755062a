"""What no target's syntax can carry unchanged: some characters, and some names of variables."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet

from kimi_infra.errors import UnsafeTextError

_REFUSED = {
    "Cc": "a control character",
    "Cs": "a byte that is not UTF-8",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names of variables as POSIX has them: never a comment, white space, a quote or a byte order mark."""


def refuse_name(name: str, where: str) -> None:
    """Refuse what is not the name of an environment variable.

    Raises:
        UnsafeTextError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise UnsafeTextError(
            f"{where}: not the name of a variable (got {name!a}); use letters, digits and underscores"
        )


def refuse_unsafe(value: str, where: str, *, allowed: AbstractSet[str] = frozenset()) -> None:
    """Refuse line ends, other control characters and undecodable bytes.

    The message names the character and its place, never the value: it may be a secret.

    Raises:
        UnsafeTextError: the value holds such a character that is not among ``allowed``.
    """
    for index, character in enumerate(value):
        found = _REFUSED.get(unicodedata.category(character))
        if found and character not in allowed:
            raise UnsafeTextError(
                f"{where}: {found} cannot be written (got {character!a} at position {index}); remove it"
            )
