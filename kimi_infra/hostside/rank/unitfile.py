"""Reads one command back out of a unit file, by systemd's own quoting rules (systemd.service(5))."""

from __future__ import annotations

from pathlib import Path

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " ",
            "\\": "\\", '"': '"', "'": "'"}  # fmt: skip
_CODES = {"x": (2, 16), "u": (4, 16), "U": (8, 16)}
_BLANKS = " \t"
_UNITS = Path("/etc/systemd/system")


def of(unit: str, stated: Path | None) -> Path | None:
    """The file to compare a command with: the stated one, else the installed one; None without any."""
    installed = _UNITS / unit
    return stated or (installed if installed.exists() else None)


def _escape(text: str, index: int) -> tuple[bytes, int]:
    """The bytes of the escape whose letter is at ``index``, and the index behind it."""
    letter = text[index : index + 1]
    if letter in _ESCAPES and letter:
        return _ESCAPES[letter].encode(), index + 1
    digits, base, start = (*_CODES[letter], index + 1) if letter in _CODES else (3, 8, index)
    try:
        value = int(text[start : start + digits], base)
        return (chr(value).encode() if letter in ("u", "U") else bytes([value])), start + digits
    except (ValueError, OverflowError):
        return b"\\" + letter.encode(), index + 1


def _literal(raw: bytes) -> str:
    """A word without its quotes: ``%%`` and ``$$`` stand for one sign each."""
    return raw.replace(b"%%", b"%").replace(b"$$", b"$").decode(errors="surrogateescape")


def split(line: str) -> tuple[str, ...]:
    """Words of one command line; specifiers and variables other than ``%%`` and ``$$`` stay as written."""
    words: list[str] = []
    word: bytes | None = None
    quote, index = "", 0
    while index < len(line):
        sign = line[index]
        index += 1
        if sign == "\\":
            raw, index = _escape(line, index)
            word = (word or b"") + raw
        elif quote == sign:
            quote = ""
        elif not quote and sign in _BLANKS:
            if word is not None:
                words.append(_literal(word))
            word = None
        elif not quote and sign in "\"'":
            quote, word = sign, word or b""
        else:
            word = (word or b"") + sign.encode(errors="surrogateescape")
    if word is not None:
        words.append(_literal(word))
    return tuple(words)


def exec_start(file: Path) -> tuple[str, ...] | None:
    """The words of the last ``ExecStart=`` of a unit file; None when there is none to read."""
    try:
        lines = iter(file.read_text(encoding="utf-8", errors="surrogateescape").split("\n"))
    except OSError:
        return None
    found: tuple[str, ...] | None = None
    for line in lines:
        if not line.startswith("ExecStart="):
            continue
        while line.endswith("\\"):
            line = line[:-1] + " " + next(lines, "")  # noqa: PLW2901 - the lines of one value
        found = split(line.partition("=")[2].strip())
    return found
