"""The cells of Kimi-K3.1-Pro's matrix that render, as choices with every value given."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_infra.domain.inventory import Choice
from tests.k31 import choices, expected


def cells() -> Iterator[tuple[str, Choice]]:
    """Yield name and choice of each cell that the expected table lets render."""
    table = expected.table()
    for cell in table.cells():
        outcome = table.outcome(cell)
        if outcome.renders:
            yield cell.name, choices.choice(table, cell, given=True)
