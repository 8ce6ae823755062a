"""What docker's command line client reads from an ``--env-file``.

Written from the rules of its pkg/kvfile (versions 26 to 28) and of Go's line scanner.
"""

from __future__ import annotations

SCANNER_MAX = 64 * 1024
"""Bytes of a line with its end."""


class MisreadError(Exception):
    """The client would refuse the file, or take a value from its own environment."""


def entries(file: bytes) -> list[tuple[str, str]]:
    """Return the variables in the order in which docker passes them on."""
    found = []
    for number, raw in enumerate(_lines(file)):
        if len(raw) >= SCANNER_MAX:
            raise MisreadError("token too long")
        try:
            line = raw.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise MisreadError("invalid utf8 bytes") from error
        if number == 0:
            line = line.removeprefix("\ufeff")
        line = line.lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not name or set(name) & set(" \t"):
            raise MisreadError("no variable name, or one with white space")
        if not equals:
            raise MisreadError("the value would come from the client's environment")
        found.append((name, value))
    return found


def _lines(file: bytes) -> list[bytes]:
    return file.removesuffix(b"\n").split(b"\n") if file else []
