"""The paths of ``x-provenance``: each leads to something in its file.

One that leads nowhere would leave its value to the file's default origin, which then vouches for
something that nobody said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names
from kimi_infra.errors import Fault

KEY = "x-provenance"
_DEFAULT = "default"


def faults(root: Place) -> Iterator[Fault]:
    """Yield the paths of a file that lead nowhere."""
    stated, content = root.under(KEY), root.plain
    if not isinstance(stated.value, dict) or not isinstance(content, dict):
        return
    for path in stated.value:
        if path != _DEFAULT and not _leads(content, str(path)):
            yield stated.under(path).fault(
                "nothing in this file is at this path", _closest(content, str(path)), got=False
            )


def _leads(content: Any, path: str) -> bool:
    """Follow a dotted path; keys may hold dots themselves, and a list is followed by its words."""
    if not path:
        return True
    if isinstance(content, list):
        return path in {str(word) for word in content}
    if not isinstance(content, dict):
        return False
    return any(
        _leads(value, path[len(str(key)) :].removeprefix("."))
        for key, value in content.items()
        if path == str(key) or path.startswith(f"{key}.")
    )


def _closest(content: Any, path: str) -> str:
    """Advise the nearest key where the path leaves the file."""
    step, _, rest = path.partition(".")
    if isinstance(content, dict) and step in content:
        return _closest(content[step], rest)
    known = content if isinstance(content, (dict, list)) else ()
    return names.closest(step, [str(key) for key in known if str(key) != KEY])
