"""What the verbs share: their arguments, and how an error of ours becomes a message and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kimi_infra.errors import KimiInfraError, NotReadyError, SecretError, SpecError

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


def tell(text: str) -> None:
    """Say something to the person in front, beside what a program reads."""
    typer.echo(f"kimi-infra: {printable(text)}", err=True)


def printable(text: str) -> str:
    """Escape what does not print: a host's or an engine's text must not steer the terminal."""
    return "".join(mark if mark.isprintable() or mark in "\n\t" else ascii(mark)[1:-1] for mark in text)
