"""``kimi-infra explain``: where a flag, a variable or an image comes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kimi_infra.cli import common, options
from kimi_infra.deploy import explain as explaining
from kimi_infra.deploy import site
from kimi_infra.planning import resolve
from kimi_infra.rendering import explain_text
from kimi_infra.rendering.explain_text import Explanation

app = typer.Typer(add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})  # FLAG may keep its dashes
@options.with_choice
def explain(
    context: typer.Context,
    given: options.Given,
    word: Annotated[str, typer.Argument(metavar="FLAG", help="A flag, a variable, or an image.")],
    inventory: Annotated[
        Path | None, typer.Argument(help="Inventory directory; or name a choice by the options.")
    ] = None,
) -> None:
    """Say where it comes from and what it replaced, or what would bring it; exit code 1 if nothing would."""
    with common.refusals():
        if inventory is not None:
            options.refuse_given(context, "an INVENTORY makes this choice itself: the INVENTORY")
            found = list(_of_inventory(inventory, word))
        else:
            found = [_of_choice(given, word)]
    common.say(common.printable("\n".join(dict.fromkeys(map(explain_text.text, found)))), nl=False)
    raise typer.Exit(0 if any(each.known for each in found) else 1)


def _of_choice(given: options.Given, word: str) -> Explanation:
    known, choice = options.asked(given)
    nodes = explaining.of_choice(known, choice, options.resolution(given, known, choice))
    return explaining.explain(known, choice, nodes, word)


def _of_inventory(inventory: Path, word: str) -> Iterator[Explanation]:
    found = site.read(inventory)
    for plan in site.offline(found):
        choice = plan.deployment.choice
        page = explaining.of_choice(found.catalogue, choice, resolve.resolve(found.catalogue, choice))
        nodes = explaining.of_plan(plan, page)
        yield explaining.explain(found.catalogue, choice, nodes, word)
