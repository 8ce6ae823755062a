"""``kimi-infra verify``: hosts and engine against the plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kimi_infra.cli import common
from kimi_infra.converge import vault
from kimi_infra.observe import verify as checks

app = typer.Typer(add_completion=False)


@app.command()
def verify(
    inventory: common.Inventory,
    as_json: common.Json = False,
    junit: Annotated[Path | None, typer.Option(help="Keep the JUnit XML here.")] = None,
) -> None:
    """Compare hosts with the plan and ask the engine; exit code 1 when something does not hold."""
    with common.refusals():
        report = checks.run(inventory, store=vault.secret_store(os.environ), junit=junit)
    if as_json:
        common.say(report.json())
    else:
        for failure in report.failures:
            common.say(common.printable(f"FAILED {failure}"))
        common.say(f"{len(report.passed)} checks passed, {len(report.failures)} failed")
    raise typer.Exit(1 if report.failures else 0)
