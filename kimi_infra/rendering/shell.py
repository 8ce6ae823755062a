"""The recipe page's shell form: one ``vllm serve`` a node, placeholders still in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from kimi_infra.domain.launch import Companion, EnvEntry, Flag, Launch, Resolution, Role
from kimi_infra.rendering import grouping
from kimi_infra.rendering.text import refuse_name, refuse_unsafe

_BARE = re.compile(r"[A-Za-z0-9_./=:@,+%-]+|\$[A-Z_][A-Z0-9_]*")
"""What the page leaves unquoted: plain words, and a placeholder that is the whole word."""
_PLACED = re.compile(r"(?:[A-Za-z0-9_./=:@,+%-]|\$[A-Z_][A-Z0-9_]*)+")
"""The same with placeholders inside the word, as in the page's own URLs and mounts."""
_INDENT = " \\\n  "


def resolution(found: Resolution) -> str:
    """Return all commands of a choice: helper processes, the nodes, and the router in front of them.

    Raises:
        UnsafeTextError: a value holds a control character, which no line of the page can carry.
    """
    return whole(found, _block)


def whole(found: Resolution, block: Callable[[Launch], Iterable[str]]) -> str:
    """Return the commands around the nodes as they are, each node's own by ``block``."""
    helpers = [_companion(companion) for companion in found.companions]
    router = [f"# Router\n{_router(found.router)}"] if found.router else []
    return "\n".join((*helpers, blocks(found.launches, block), *router))


def page(launches: Sequence[Launch]) -> str:
    """Return the commands of all nodes, each under the page's heading for its node.

    Raises:
        UnsafeTextError: a value holds a control character.
    """
    return blocks(launches, _block)


def quote(word: str) -> str:
    """Quote a word for a POSIX shell as the page does; ``$NAME`` as a whole stays a placeholder.

    Raises:
        UnsafeTextError: the word holds a control character other than a tab.
    """
    refuse_unsafe(word, "a word of a shell command", allowed={"\t"})
    return word if _BARE.fullmatch(word) else "'" + word.replace("'", "'\\''") + "'"


def placed(word: str) -> str:
    """Quote a word of the page's own, in which placeholders stay placeholders; raises as :func:`quote`."""
    return word if _PLACED.fullmatch(word) else quote(word)


def flag_lines(flags: Iterable[Flag]) -> Iterator[str]:
    """Yield one line a flag, its value beside it."""
    for flag in flags:
        yield " ".join(quote(token) for token in flag.tokens)


def assignment(entry: EnvEntry) -> str:
    """Return ``NAME=value``.

    Raises:
        UnsafeTextError: the name is not one of a variable, or the value holds a control character.
    """
    refuse_name(entry.name, "environment of the page")
    return f"{entry.name}={quote(entry.value)}"


def blocks(launches: Sequence[Launch], block: Callable[[Launch], Iterable[str]]) -> str:
    """Join the nodes' blocks, each with its heading, by one blank line."""
    return "\n".join(f"# {heading(launch)}\n{''.join(block(launch))}" for launch in launches)


def command(lines: Iterable[str]) -> str:
    """Join the lines of one command as the page does."""
    return _INDENT.join(lines) + "\n"


def _block(launch: Launch) -> Iterator[str]:
    for entry in launch.env:
        yield f"export {assignment(entry)}\n"
    yield command((f"vllm serve {quote(launch.model_id)}", *flag_lines(launch.flags)))


def heading(launch: Launch) -> str:
    """Return the page's name of a node; pools count from 1, as their placeholders do."""
    if launch.role in {Role.PREFILL, Role.DECODE}:
        return f"{launch.role.value.capitalize()} node {launch.rank + 1}"
    return f"Head (node {launch.rank})" if launch.role is Role.HEAD else f"Node {launch.rank}"


def _router(argv: Sequence[str]) -> str:
    lines = [" ".join(map(placed, line)) for line in grouping.by_option(argv)]
    return command((" ".join(lines[:2]), *lines[2:]))


def _companion(companion: Companion) -> str:
    refuse_unsafe(companion.label, "the name of a helper process")
    refuse_unsafe(companion.command, "the command of a helper process", allowed={"\t", "\n"})
    return f"# {companion.label}, started before the engine\n{companion.command.rstrip()}\n"
