"""The command line: parse, call, print, exit code.

Exit codes: 0 done; 1 something was found wrong or could not be done; 2 an input was refused.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import kimi_infra
from kimi_infra.config import recipes
from kimi_infra.converge import vault
from kimi_infra.deploy import documents, site
from kimi_infra.domain.inventory import Choice
from kimi_infra.errors import Fault, KimiInfraError, NotReadyError, SecretError, SpecError
from kimi_infra.lab import commands as lab_commands
from kimi_infra.observe import answer, status, verify
from kimi_infra.planning import resolve
from kimi_infra.rendering import docker_page, plan_text, shell

app = typer.Typer(
    name="kimi-infra",
    help="Take bare GPU hosts to a serving Kimi-K3.1-Pro.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(lab_commands.app, name="lab", help="Two real systemd hosts on this machine.")

_REFUSED = (SpecError, NotReadyError, SecretError)
_DAY = 86_400
_CHOICE = ("model", "hardware", "strategy", "nodes", "features", "accept_preview")
"""Parameters of `render` that an inventory decides."""
_BY_OPERATOR = frozenset({"COMMANDLINE", "ENVIRONMENT"})
"""Where typer says that such a parameter was not left at its default."""

Inventory = Annotated[Path, typer.Argument(help="Inventory directory.", metavar="INVENTORY")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


class Form(StrEnum):
    """Forms of the rendered commands."""

    SHELL = "shell"
    DOCKER = "docker"
    SYSTEMD = "systemd"
    JSON = "json"


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn our errors into a message and an exit code."""
    try:
        yield
    except KimiInfraError as error:
        typer.echo(f"kimi-infra: {_printable(str(error))}", err=True)
        raise typer.Exit(2 if isinstance(error, _REFUSED) else 1) from error


def _printable(text: str) -> str:
    """Escape what does not print: a host's or an engine's text must not steer the terminal."""
    return "".join(mark if mark.isprintable() or mark in "\n\t" else ascii(mark)[1:-1] for mark in text)


def _within(above: float, most: float, *, inclusive: bool = False) -> Callable[[float], float]:
    """Return a check of a number; unlike click's own ranges it refuses what is not a number, too."""

    def check(value: float) -> float:
        if above < value <= most or (inclusive and value == above):
            return value
        first = f"{above:g}" if inclusive else f"more than {above:g}"
        raise typer.BadParameter(f"{value:g} is not from {first} to {most:g}")

    return check


def _utf8(text: str) -> str:
    if not text.isascii() and any("\ud800" <= mark <= "\udfff" for mark in text):
        raise typer.BadParameter("holds a byte that is not UTF-8; write the text in UTF-8")
    return text


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


@app.command()
def plan(inventory: Inventory, as_json: Json = False) -> None:
    """Show what would run where; no host is contacted."""
    with _refusals():
        found = site.read(inventory)
        plans = site.offline(found)
        needs = found.inventory.needs
        if as_json:
            typer.echo(documents.plan_json(plans, needs))
        else:
            typer.echo(_printable(plan_text.plans(plans, needs)), nl=False)


@app.command()
def render(
    context: typer.Context,
    inventory: Annotated[
        Path | None, typer.Argument(help="Inventory directory; or name a choice by the options.")
    ] = None,
    model: Annotated[str, typer.Option(help="Model id.")] = "moonshotai/Kimi-K3.1-Pro",
    hardware: Annotated[str, typer.Option(help="Hardware key, for example gb300.")] = "gb300",
    strategy: Annotated[str, typer.Option(help="Strategy.")] = "multi_node_tp",
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 2,
    features: Annotated[
        str | None, typer.Option(help="Comma-separated; none for none; default: the recipe's list.")
    ] = None,
    accept_preview: Annotated[bool, typer.Option(help="Accept hardware published as a preview.")] = False,
    form: Annotated[
        Form,
        typer.Option("--as", help="shell, docker: the recipe page's form; systemd, json: what hosts run."),
    ] = Form.SHELL,
) -> None:
    """Print the exact commands; no host is contacted."""
    with _refusals():
        if inventory is not None:
            _refuse_choice(context)
            _render(inventory, form)
            return
        choice = Choice(
            model=model,
            hardware=hardware,
            strategy=strategy,
            nodes=nodes,
            features=_features(features),
            accept_preview=accept_preview,
        )
        with _as_options():
            launches = resolve.resolve(recipes.load_catalogue(), choice)
        if form is Form.SHELL:
            typer.echo(shell.page(launches), nl=False)
        elif form is Form.DOCKER:
            typer.echo(docker_page.page(launches), nl=False)
        else:
            typer.echo(f"kimi-infra: --as {form.value} shows what hosts run; name an INVENTORY", err=True)
            raise typer.Exit(2)


def _render(inventory: Path, form: Form) -> None:
    found = site.read(inventory)
    typer.echo(documents.rendered(found, form.value), nl=False)
    needs = found.inventory.needs
    # JSON holds them itself.
    if needs and form is not Form.JSON:
        listed = "".join(f"\n  {need}" for need in needs)
        typer.echo(_printable(f"kimi-infra: needed before applying:{listed}"), err=True)


def _refuse_choice(context: typer.Context) -> None:
    """Refuse options that would have no effect beside an inventory.

    Raises:
        SpecError: names each of them.
    """
    sources = {name: context.get_parameter_source(name) for name in _CHOICE}
    given = [name for name, source in sources.items() if source and source.name in _BY_OPERATOR]
    if given:
        what = "an INVENTORY makes this choice itself"
        remedy = "leave it out, or leave out the INVENTORY"
        raise SpecError(tuple(Fault(where=_option(name), what=what, remedy=remedy) for name in given))


@contextmanager
def _as_options() -> Iterator[None]:
    """Name faults of a choice in the words of the command line instead of those of deployment.yml."""
    try:
        yield
    except SpecError as error:
        raise SpecError(tuple(map(_as_option, error.faults))) from error


def _as_option(fault: Fault) -> Fault:
    field = fault.where.partition("[")[0]
    if field == "accept_preview":
        remedy = fault.remedy.replace("write accept_preview: true", "give --accept-preview")
        return dataclasses.replace(fault, where=_option(field), got=None, remedy=remedy)
    return dataclasses.replace(fault, where=_option(field))


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


@app.command("verify")
def verify_(
    inventory: Inventory,
    as_json: Json = False,
    junit: Annotated[Path | None, typer.Option(help="Keep the JUnit XML here.")] = None,
) -> None:
    """Compare hosts with the plan and ask the engine; exit code 1 when something does not hold."""
    with _refusals():
        report = verify.run(inventory, store=vault.secret_store(os.environ), junit=junit)
    if as_json:
        typer.echo(report.json())
    else:
        for failure in report.failures:
            typer.echo(_printable(f"FAILED {failure}"))
        typer.echo(f"{len(report.passed)} checks passed, {len(report.failures)} failed")
    raise typer.Exit(1 if report.failures else 0)


@app.command()
def ask(
    inventory: Inventory,
    question: Annotated[str, typer.Argument(help="The user's message.", callback=_utf8)] = answer.QUESTION,
    deployment: Annotated[str | None, typer.Option(help="Which deployment; default: the first.")] = None,
    temperature: Annotated[
        float, typer.Option(help="0 for the greedy answer.", callback=_within(0, 2, inclusive=True))
    ] = answer.SAMPLING["temperature"],
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for the answer.", callback=_within(0, _DAY))
    ] = 300,
) -> None:
    """Ask a deployment one question and print its answer."""
    with _refusals():
        found = site.read_ready(inventory)
        chosen = site.deployment(found, deployment)
        endpoint = site.endpoint(found.inventory, chosen, vault.secret_store(os.environ))
        sampling = {**answer.SAMPLING, "temperature": temperature}
        given = answer.ask(endpoint, question, options=sampling, timeout=timeout)
    typer.echo(_printable(_told(given)))


def _told(given: answer.Answer) -> str:
    if given.text.strip():
        return given.text
    if given.reasoning.strip():
        return f"[no answer, reasoning only, {given.tokens} tokens]\n{given.reasoning}"
    return f"[no text: the completion's {given.tokens} tokens are neither answer nor reasoning]"


@app.command("status")
def status_(inventory: Inventory, as_json: Json = False) -> None:
    """Show each rank as its supervisor sees it; exit code 1 when one is not ready."""
    with _refusals():
        reports = status.read(site.read_ready(inventory))
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    else:
        for report in reports:
            state = report.trouble or _state(report.answer)
            typer.echo(_printable(f"{report.deployment} rank {report.rank} on {report.host}: {state}"))
    raise typer.Exit(0 if all(report.answer.get("ready") is True for report in reports) else 1)


def _state(found: Mapping[str, object]) -> str:
    words = [str(found.get("phase", "not running"))]
    if found.get("stale"):
        words.append("what runs differs from the files on the host")
    if found.get("reason"):
        words.append(f"last end: {found['reason']}")
    return "; ".join(words)


def _features(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if "" in names:
        remedy = "give none for no feature, or names with a comma between two"
        raise SpecError((Fault(where="--features", what="an empty name", got=repr(text), remedy=remedy),))
    return () if names == ("none",) else names


def main() -> None:
    """Run the command line."""
    # A terminal without UTF-8 shows escapes instead of ending in a traceback; Python does so on stderr.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="kimi-infra")


if __name__ == "__main__":
    main()
