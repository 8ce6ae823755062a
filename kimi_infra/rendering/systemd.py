"""Text in unit files: what systemd reads back is what was meant, character for character.

The rules are systemd's own (systemd.syntax(7), quoting; systemd.service(5), command lines;
systemd.unit(5), specifiers), not a shell's: ``%`` and ``$`` expand inside quotes of both kinds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi_infra.errors import UnsafeTextError
from kimi_infra.rendering.text import refuse_unsafe

_BARE = re.compile(r"[A-Za-z0-9_./=:@,+-]+")
"""Words that need no quotes; a lone ``;`` would end the command, a ``#`` or ``;`` may begin a comment."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$", "\t": "\\t"}
_PATH_MAX = 4095
_NAME_MAX = 255


def exec_line(argv: Sequence[str]) -> str:
    """Return the right side of ``ExecStart=`` that executes exactly ``argv``.

    Raises:
        UnsafeTextError: a word cannot be written (see :func:`word`), or the first one is not an
            absolute path that systemd takes: it expands no variable there, yet would in ``argv[0]``.
    """
    if not argv:
        raise UnsafeTextError("ExecStart: there is no command; give at least its absolute path")
    _check_program(argv[0])
    return " ".join(word(text) for text in argv)


def word(text: str) -> str:
    """Return one word of a command line that systemd reads back as ``text``.

    Characters that do not print are written as escapes, so that ``systemctl cat`` hides nothing.

    Raises:
        UnsafeTextError: the text holds a control character other than a tab, or a byte that is not UTF-8.
    """
    refuse_unsafe(text, "a word of a systemd command", allowed={"\t"})
    return text if _BARE.fullmatch(text) else '"' + "".join(map(_escaped, text)) + '"'


def text(value: str) -> str:
    """Return the value of a setting that is plain text, such as ``Description=``: only ``%`` is special.

    Raises:
        UnsafeTextError: the value holds a control character, or begins or ends in what systemd drops
            (white space, and a backslash at the end of the line).
    """
    refuse_unsafe(value, "text of a systemd setting")
    if value != value.strip() or value.endswith("\\"):
        raise UnsafeTextError(
            "text of a systemd setting: systemd drops white space at either end and joins lines "
            f"at a final backslash (got {value!r}); remove it"
        )
    return value.replace("%", "%%")


def _check_program(path: str) -> None:
    steps = path.split("/")
    taken = (
        path.startswith("/")
        and not path.endswith("/")
        and len(path.encode(errors="replace")) <= _PATH_MAX
        and all(len(step.encode(errors="replace")) <= _NAME_MAX for step in steps)
        and not set(path) & set("$\\\"'\t")
        and not {".", ".."} & set(steps)
    )
    if not taken:
        raise UnsafeTextError(
            "ExecStart: the program must be an absolute path without $, quotes, backslashes, tabs, . and .. "
            f"(got {path!a}); give the plain path of a file"
        )


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}" if ord(character) > 0xFFFF else f"\\u{ord(character):04x}"
