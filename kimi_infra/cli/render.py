"""``kimi-infra render``: the exact commands, of an inventory, of one choice, or of many."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from kimi_infra.cli import common, options
from kimi_infra.deploy import batch as many
from kimi_infra.deploy import documents, site
from kimi_infra.domain import names
from kimi_infra.domain.launch import Resolution
from kimi_infra.errors import Fault, Need, SpecError, UnsafeTextError
from kimi_infra.rendering import docker_page, resolution_json, shell

app = typer.Typer(add_completion=False)

_PROGRESS = 3.0
"""Seconds between two reports to a terminal."""


class Form(StrEnum):
    """Forms of the rendered commands."""

    SHELL = "shell"
    DOCKER = "docker"
    SYSTEMD = "systemd"
    JSON = "json"


_PAGES = {
    Form.SHELL: shell.resolution,
    Form.DOCKER: docker_page.resolution,
    Form.JSON: resolution_json.document,
}
"""Forms that need no hosts."""


@app.command()
@options.with_choice
def render(
    context: typer.Context,
    given: options.Given,
    inventory: Annotated[
        Path | None, typer.Argument(help="Inventory directory; or name a choice by the options.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORM",
            help="shell, docker: the recipe page's form; systemd: hosts' files; json: all.",
        ),
    ] = Form.SHELL.value,
    batch: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="One choice a line as JSON, - for standard input; as published."),
    ] = None,
) -> None:
    """Print the exact commands; no host is contacted."""
    with common.refusals():
        if batch is not None:
            _refuse_beside_batch(context, inventory)
            _batch(batch, given)
        elif inventory is not None:
            options.refuse_given(context, "an INVENTORY makes this choice itself: the INVENTORY")
            _inventory(inventory, form)
        else:
            _choice(given, form)


def _inventory(inventory: Path, form: str) -> None:
    faults = tuple(_unknown(form))
    try:
        found = site.read(inventory)
    except SpecError as error:
        raise SpecError((*faults, *error.faults)) from error
    if faults:
        raise SpecError(faults)
    common.say(documents.rendered(found, form), nl=False)
    # JSON holds them itself.
    if form != Form.JSON:
        _needed(found.inventory.needs)


def _choice(given: options.Given, form: str) -> None:
    faults = tuple(_unknown(form) if form != Form.SYSTEMD else _without_hosts())
    try:
        known, choice = options.asked(given)
        found = options.resolution(given, known, choice)
    except SpecError as error:
        raise SpecError((*faults, *error.faults)) from error
    if faults:
        raise SpecError(faults)
    common.say(_page(found, Form(form)), nl=False)
    if form != Form.JSON:
        _said(found)


def _page(found: Resolution, form: Form) -> str:
    """Return the commands in a form.

    Raises:
        SpecError: the form cannot carry a text of the choice unchanged.
    """
    try:
        return _PAGES[form](found)
    except UnsafeTextError as error:
        why, _, remedy = str(error).rpartition("; ")
        what, other = f"the page's form cannot carry this choice: {why}", "ask for json, which escapes it"
        raise SpecError((Fault(where=f"--as {form}", what=what, remedy=f"{remedy}, or {other}"),)) from error


def _unknown(form: str) -> Iterator[Fault]:
    forms = [each.value for each in Form]
    if form not in forms:
        yield Fault(where="--as", what="no such form", got=form, remedy=names.closest(form, forms))


def _without_hosts() -> Iterator[Fault]:
    what, remedy = "units need hosts", "name an INVENTORY, or ask for shell, docker or json"
    yield Fault(where="--as", what=what, got=Form.SYSTEMD.value, remedy=remedy)


def _said(found: Resolution) -> None:
    """Say beside the commands what they are worth."""
    for note in found.notes:
        typer.echo(f"# {common.printable(note)}", err=True)
    for warning in map(options.worded, found.warnings):
        typer.echo(f"# as published, refused otherwise: {common.printable(str(warning))}", err=True)
    _needed(found.needs)


def _needed(needs: tuple[Need, ...]) -> None:
    if needs:
        common.tell("needed before applying:" + "".join(f"\n  {need}" for need in needs))


def _refuse_beside_batch(context: typer.Context, inventory: Path | None) -> None:
    options.refuse_given(
        context,
        "each line of a --batch makes this choice itself: --batch",
        allowed=("catalog", "as_published"),
    )
    form = context.get_parameter_source("form")
    told = [("INVENTORY", inventory is not None), ("--as", form is not None and form.name == "COMMANDLINE")]
    what, remedy = "a --batch is answered in its own form", "leave it out, or leave out --batch"
    faults = tuple(Fault(where=name, what=what, remedy=remedy) for name, there in told if there)
    if faults:
        raise SpecError(faults)


def _batch(file: str, given: options.Given) -> None:
    known = options.catalogue(given.catalog, as_published=True)
    with _opened(file) as stream:
        for answer in _watched(many.answers(known, _lines(file, stream))):
            common.say(answer)


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        if sys.stdin is None:
            what, remedy = "standard input is closed", "give one JSON object a line there, or name a file"
            raise SpecError((Fault(where="--batch", what=what, got=file, remedy=remedy),))
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise _unreadable(file, error) from error


def _lines(file: str, stream: BinaryIO) -> Iterator[bytes]:
    try:
        yield from many.lines(stream)
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: str, error: OSError) -> SpecError:
    what, remedy = f"the file cannot be read: {error.strerror}", "give a file of one JSON object a line"
    return SpecError((Fault(where="--batch", what=what, got=file, remedy=remedy),))


def _watched(answers: Iterable[str]) -> Iterator[str]:
    """Pass answers on and tell a terminal every few seconds how far they are."""
    told = began = time.monotonic()
    for number, answer in enumerate(answers, start=1):
        yield answer
        now = time.monotonic()
        if now - told >= _PROGRESS and sys.stderr.isatty():
            told = now
            common.tell(f"{number} choices, {number / (now - began):.0f} a second")
