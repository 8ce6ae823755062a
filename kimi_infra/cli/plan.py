"""``kimi-infra plan``: what would run where."""

from __future__ import annotations

import typer

from kimi_infra.cli import common
from kimi_infra.deploy import documents, site
from kimi_infra.rendering import plan_text

app = typer.Typer(add_completion=False)


@app.command()
def plan(inventory: common.Inventory, as_json: common.Json = False) -> None:
    """Show what would run where; no host is contacted."""
    with common.refusals():
        found = site.read(inventory)
        plans = site.offline(found)
        needs = found.inventory.needs
        if as_json:
            common.say(documents.plan_json(plans, needs))
        else:
            common.say(common.printable(plan_text.plans(plans, needs)), nl=False)
