"""``kimi-infra status``: each rank as its supervisor sees it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import typer

from kimi_infra.cli import common
from kimi_infra.deploy import site
from kimi_infra.observe import status as ranks

app = typer.Typer(add_completion=False)


@app.command()
def status(inventory: common.Inventory, as_json: common.Json = False) -> None:
    """Show each rank as its supervisor sees it; exit code 1 when one is not ready."""
    with common.refusals():
        reports = ranks.read(site.read_ready(inventory))
    if as_json:
        common.say(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    else:
        for report in reports:
            state = report.trouble or _state(report.answer)
            line = f"{report.deployment} rank {report.rank} on {report.host}: {state}"
            common.say(common.printable(line))
    raise typer.Exit(0 if all(report.answer.get("ready") is True for report in reports) else 1)


def _state(found: Mapping[str, object]) -> str:
    words = [str(found.get("phase", "not running"))]
    if found.get("stale"):
        words.append("what runs differs from the files on the host")
    if found.get("reason"):
        words.append(f"last end: {found['reason']}")
    return "; ".join(words)
