"""What the verbs share: their arguments, and how an error of ours becomes a message and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kimi_infra.errors import KimiInfraError, NotReadyError, SecretError, SpecError

_PIPE_CLOSED = 128 + signal.SIGPIPE
"""As a shell tells of a program whose reader has gone."""
_REFUSED = (SpecError, NotReadyError, SecretError)

Inventory = Annotated[Path, typer.Argument(help="Inventory directory.", metavar="INVENTORY")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


@contextmanager
def refusals() -> Iterator[None]:
    """Turn our errors into a message and an exit code."""
    try:
        yield
    except KimiInfraError as error:
        tell(str(error))
        raise typer.Exit(2 if isinstance(error, _REFUSED) else 1) from error


def say(text: str, *, nl: bool = True) -> None:
    """Write to standard output, at once: whoever reads line by line waits for it.

    Raises:
        typer.Exit: the text could not be written.
    """
    if sys.stdout is None:
        raise typer.Exit(_unwritten(os.strerror(errno.EBADF)))
    try:
        sys.stdout.write(f"{text}\n" if nl else text)
        sys.stdout.flush()
    except OSError as error:
        # What is still held back must not be tried again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        quiet = error.errno == errno.EPIPE
        raise typer.Exit(_PIPE_CLOSED if quiet else _unwritten(error.strerror)) from error


def tell(text: str) -> None:
    """Say something to the person in front, beside what a program reads."""
    typer.echo(f"kimi-infra: {printable(text)}", err=True)


def printable(text: str) -> str:
    """Escape what does not print: a host's or an engine's text must not steer the terminal."""
    return "".join(mark if mark.isprintable() or mark in "\n\t" else ascii(mark)[1:-1] for mark in text)


def _unwritten(why: str | None) -> int:
    """Say that the output is lost; return the exit code."""
    tell(f"standard output cannot be written: {why}")
    return 1
