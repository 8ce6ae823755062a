"""``kimi-infra ask``: one question to a deployment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from kimi_infra.cli import common
from kimi_infra.converge import vault
from kimi_infra.deploy import site
from kimi_infra.observe import answer

app = typer.Typer(add_completion=False)

_DAY = 86_400


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


@app.command()
def ask(
    inventory: common.Inventory,
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
    with common.refusals():
        found = site.read_ready(inventory)
        chosen = site.deployment(found, deployment)
        endpoint = site.endpoint(found.inventory, chosen, vault.secret_store(os.environ))
        sampling = {**answer.SAMPLING, "temperature": temperature}
        given = answer.ask(endpoint, question, options=sampling, timeout=timeout)
    common.say(common.printable(_told(given)))


def _told(given: answer.Answer) -> str:
    if given.text.strip():
        return given.text
    if given.reasoning.strip():
        return f"[no answer, reasoning only, {given.tokens} tokens]\n{given.reasoning}"
    return f"[no text: the completion's {given.tokens} tokens are neither answer nor reasoning]"
