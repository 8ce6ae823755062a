"""The command line: parse, call, print, exit code.

Exit codes: 0 done; 1 something was found wrong or could not be done; 2 an input was refused.
A verb's module is loaded when the verb is called: one verb does not wait for what another one needs.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections import UserDict
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import kimi_infra

VERBS = {
    "plan": "kimi_infra.cli.plan",
    "render": "kimi_infra.cli.render",
    "explain": "kimi_infra.cli.explain",
    "recipes": "kimi_infra.cli.recipes",
    "verify": "kimi_infra.cli.verify",
    "ask": "kimi_infra.cli.ask",
    "status": "kimi_infra.cli.status",
    "lab": "kimi_infra.cli.lab",
}
"""Verb -> the module whose ``app`` it is, in the order of the help."""


class _OnDemand(UserDict[str, Any]):
    """Commands by name, each made of its module when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        command = typer.main.get_command(importlib.import_module(self.data[name]).app)
        command.name = name
        return command


class _Verbs(typer.core.TyperGroup):
    """The group of all verbs."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _OnDemand(VERBS)


app = typer.Typer(
    name="kimi-infra",
    help="Take bare GPU hosts to a serving Kimi-K3.1-Pro.",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(kimi_infra.__version__)
        raise typer.Exit


@app.callback()
def _root(
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Hold the options of every verb."""


def main() -> None:
    """Run the command line."""
    # A terminal without UTF-8 shows escapes instead of ending in a traceback; Python does so on stderr.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="kimi-infra")
