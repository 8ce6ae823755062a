"""What systemd executes for the right side of an ``ExecStart=``.

Written from systemd.syntax(7), systemd.service(5), systemd.unit(5) and the behaviour of systemd 252:
lines are joined, the command is cut into words (quotes of both kinds, C escapes inside and outside of them),
a lone semicolon ends it, each word's specifiers expand, at last its variables.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping

BLANK = b" \t\n\r"
SIMPLE = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b'"': b'"',
    b"'": b"'",
    b"s": b" ",
}
PREFIXES = b"-@:+!|"


class MisreadError(Exception):
    """Systemd would warn, refuse the line, or run something else than one plain command."""


def executed(value: str, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the argument vector of the process that systemd starts."""
    split = tuple(words(_joined(value).encode()))
    if split[0][:1] in [PREFIXES[i : i + 1] for i in range(len(PREFIXES))] or split[0][:1] != b"/":
        raise MisreadError("the first word is not a plain absolute path")
    if set(split[0]) & set(b"\"'\\"):
        raise MisreadError("systemd refuses quotes and backslashes in a program's path")
    expanded = [_specifiers(word) for word in split]
    known = environment or {}
    argv = [result for word in expanded for result in _variables(word.decode(), known)]
    if argv[0] != expanded[0].decode():
        raise MisreadError("argv[0] and the program's path differ: variables expand in one of them only")
    return tuple(argv)


def words(line: bytes) -> Iterator[bytes]:
    """Cut a command line into words; a second command is a misreading."""
    rest = line.strip(BLANK)
    while rest:
        if rest[:1] == b";" and (len(rest) == 1 or rest[1] in BLANK):
            raise MisreadError("an unquoted semicolon begins a second command")
        word, rest = _first_word(rest)
        yield word


def _joined(value: str) -> str:
    """Join lines that end in an unescaped backslash, which becomes a space; comments between vanish."""
    lines = value.split("\n")
    text = ""
    for number, line in enumerate(lines):
        if number and line.lstrip(" \t")[:1] in {"#", ";"}:
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        last = number == len(lines) - 1
        if last == (trailing % 2 == 1):
            raise MisreadError("a line ends the setting too early or never")
        text += line if last else f"{line[:-1]} "
    return text


def _first_word(text: bytes) -> tuple[bytes, bytes]:
    word = bytearray()
    quote = b""
    index = 0
    while index < len(text):
        character = text[index : index + 1]
        index += 1
        if character == b"\\":
            unescaped, length = _unescape(text[index:])
            word += unescaped
            index += length
        elif quote:
            if character == quote:
                quote = b""
            else:
                word += character
        elif character in {b"'", b'"'}:
            quote = character
        elif character in {b" ", b"\t", b"\n", b"\r"}:
            return bytes(word), text[index:].lstrip(BLANK)
        else:
            word += character
    if quote:
        raise MisreadError("unbalanced quoting")
    return bytes(word), b""


def _unescape(text: bytes) -> tuple[bytes, int]:
    kind = text[:1]
    if kind in SIMPLE:
        return SIMPLE[kind], 1
    digits = {b"x": (1, 2, 16), b"u": (1, 4, 16), b"U": (1, 8, 16)}.get(kind)
    if kind and kind in b"01234567":
        digits = (0, 3, 8)
    if digits is None:
        raise MisreadError(f"unknown escape sequence {text[:2]!r}")
    start, count, base = digits
    number = text[start : start + count].decode("ascii", "replace")
    allowed = string.hexdigits if base == 16 else string.octdigits
    if len(number) != count or set(number) - set(allowed) or int(number, base) == 0:
        raise MisreadError(f"malformed escape sequence {text[:9]!r}")
    code = int(number, base)
    return (bytes([code & 0xFF]) if kind == b"x" or base == 8 else chr(code).encode()), start + count


def _specifiers(word: bytes) -> bytes:
    result, index = bytearray(), 0
    while index < len(word):
        if word[index : index + 1] != b"%" or index + 1 == len(word):
            result += word[index : index + 1]
            index += 1
            continue
        kind = word[index + 1 : index + 2]
        known = kind.isalpha()
        result += b"%" if kind == b"%" else b"<expanded>" if known else b"%" + kind
        index += 2
    return bytes(result)


def _variables(word: str, environment: Mapping[str, str]) -> list[str]:
    if word.startswith("$") and word[1:2] not in {"{", "$"}:
        return environment.get(word[1:], "").split()
    result, index = "", 0
    while index < len(word):
        if word[index] != "$":
            result += word[index]
            index += 1
        elif word[index + 1 : index + 2] == "$":
            result += "$"
            index += 2
        elif word[index + 1 : index + 2] == "{" and "}" in word[index:]:
            end = word.index("}", index)
            result += environment.get(word[index + 2 : end], "")
            index = end + 1
        else:
            result += "$"
            index += 1
    return [result]
