"""Docker's ``--env-file``: one ``NAME=value`` a line, the value taken as it stands, without any quoting.

Read in docker's command line client (pkg/kvfile): a line is cut at its first ``=``; white space before
the name is dropped, within it refused; a name without ``=`` is taken from the client's environment;
``#`` begins a comment at the start of a line only; a final carriage return is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from kimi_infra.errors import UnsafeTextError
from kimi_infra.rendering.text import refuse_name, refuse_unsafe

_LINE_MAX = 65535
"""Bytes of a line without its end: docker's scanner gives up at 64 KiB with it."""


def docker(entries: Iterable[tuple[str, str]]) -> str:
    """Return the file of ``(name, value)`` pairs, in their order.

    Raises:
        UnsafeTextError: docker would not read back exactly these pairs; the message never holds a value.
    """
    lines: dict[str, str] = {}
    for name, value in entries:
        if name in lines:
            raise UnsafeTextError(f"env file: {name} is given twice; give it once")
        lines[name] = _line(name, value)
    return "".join(lines.values())


def _line(name: str, value: str) -> str:
    refuse_name(name, "env file")
    refuse_unsafe(value, f"env file: {name}", allowed={"\t"})
    line = f"{name}={value}"
    size = len(line.encode())
    if size > _LINE_MAX:
        raise UnsafeTextError(
            f"env file: {name} is too long for docker (got {size} bytes); keep it below 64 KiB"
        )
    return f"{line}\n"
