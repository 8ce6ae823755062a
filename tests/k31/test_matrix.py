"""Every cell of Kimi-K3.1-Pro's matrix comes to what the table says, which is independent of the recipe."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Mapping

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Resolution
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import resolve
from tests import k31_matrix
from tests.k31 import choices, expected
from tests.k31 import table as page
from tests.k31.expected import Cell, Outcome, Reason

pytestmark = pytest.mark.compiler

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "k31-matrix.md"
TABLE = expected.table()
PLACEMENTS = sorted(TABLE.placements)


@functools.cache
def cells(hardware: str, strategy: str) -> tuple[Cell, ...]:
    """All cells of a placement."""
    return tuple(it for it in TABLE.cells() if (it.hardware, it.strategy) == (hardware, strategy))


def compiled(choice: Choice) -> Resolution | tuple[Fault, ...]:
    """What the compiler makes of a choice."""
    try:
        return resolve.resolve(recipes.load_catalogue(), choice)
    except SpecError as error:
        return error.faults


def tells(fault: Fault, reason: Reason) -> bool:
    """Whether a fault gives a reason: its sentence, both things that conflict, and what works instead."""
    text = str(fault)
    named = all(any(word in text for word in alternatives) for alternatives in reason.names)
    sentence = all(word in text for word in reason.sentence.words)
    return named and sentence and any(word in fault.remedy for word in reason.works)


def differences(cell: Cell) -> Iterator[str]:
    """What speaks against a cell's outcome."""
    wanted = TABLE.outcome(cell)
    found = compiled(choices.choice(TABLE, cell, given=False))
    if isinstance(found, Resolution):
        yield from _wrongly_rendered(wanted, found)
    elif wanted.renders:
        yield f"refused: {'; '.join(map(str, found))}"
    else:
        yield from _wrongly_refused(wanted, found)


def _wrongly_rendered(wanted: Outcome, found: Resolution) -> Iterator[str]:
    needs = {need.where.removeprefix("values.") for need in found.needs}
    if not wanted.renders:
        yield f"renders in spite of {[reason.sentence.says for reason in wanted.reasons]}"
    elif needs != wanted.unknown:
        yield f"needs {sorted(needs)}, not {sorted(wanted.unknown)}"
    elif wanted.note and not all(word in "\n".join(found.notes) for word in wanted.note.words):
        yield f"does not note that {wanted.note.says}: {found.notes}"
    elif not wanted.note and found.notes:
        yield f"notes {found.notes}"


def _wrongly_refused(wanted: Outcome, found: tuple[Fault, ...]) -> Iterator[str]:
    for reason in wanted.reasons:
        if not any(tells(fault, reason) for fault in found):
            yield f"not told: {reason.sentence.says}: {'; '.join(map(str, found))}"
    for fault in found:
        if not any(tells(fault, reason) for reason in wanted.reasons):
            yield f"told without need: {fault}"


@pytest.mark.parametrize(("hardware", "strategy"), PLACEMENTS)
def test_every_cell_comes_to_what_the_table_says(hardware: str, strategy: str) -> None:
    """Renders, renders with exactly these values unknown, or is refused for exactly these reasons."""
    wrong = {cell.name: found for cell in cells(hardware, strategy) if (found := list(differences(cell)))}
    assert wrong == {}


def test_the_table_covers_the_whole_product() -> None:
    """Every cell of every axis is there once, and each placement of hardware and strategy has a line."""
    product = TABLE.read["product"]
    names = [cell.name for cell in TABLE.cells()]
    size = functools.reduce(lambda left, axis: left * len(axis), product.values(), 1)
    assert len(set(names)) == len(names) == size
    pairs = {(hardware, strategy) for hardware in product["hardware"] for strategy in product["strategy"]}
    assert set(TABLE.placements) == pairs


@pytest.mark.parametrize(
    ("cell", "unknown"),
    [pytest.param(cell, unknown, id=cell.name) for cell, _, unknown in TABLE.described()],
)
def test_what_the_page_describes_renders(cell: Cell, unknown: frozenset[str]) -> None:
    """Each described configuration renders, and nothing is open in it but what no document says."""
    found = compiled(choices.choice(TABLE, cell, given=False))
    assert isinstance(found, Resolution), found
    assert {need.where.removeprefix("values.") for need in found.needs} == unknown
    assert TABLE.outcome(cell).unknown == unknown


@pytest.mark.parametrize(
    ("cell", "change", "reason"),
    [
        pytest.param(cell, change, reason, id=f"{cell.name}-{'-'.join(change)}")
        for cell, change, reason in TABLE.beside()
    ],
)
def test_one_step_beside_a_cell_that_renders(
    cell: Cell, change: Mapping[str, object], reason: Reason
) -> None:
    """One wrong number or shape, or missing consent, is refused by the sentence that forbids it alone."""
    found = compiled(choices.changed(choices.choice(TABLE, cell, given=False), change))
    assert not isinstance(found, Resolution)
    assert [fault for fault in found if not tells(fault, reason)] == []
    assert TABLE.outcome(cell).renders


def test_a_combination_comes_to_what_its_parts_come_to() -> None:
    """The page may list options one by one: no two of them change each other's outcome."""
    for cell in TABLE.cells():
        parts = [TABLE.outcome(part) for part in TABLE.alone(cell)]
        whole = TABLE.outcome(cell)
        assert whole.renders == all(part.renders for part in parts), cell.name
        if whole.renders:
            assert whole.unknown == frozenset().union(*(part.unknown for part in parts)), cell.name


def test_given_values_leave_nothing_open() -> None:
    """With every value given, each rendering cell is complete: no need, no placeholder, no reference."""
    for name, choice in k31_matrix.cells():
        found = compiled(choice)
        assert isinstance(found, Resolution), (name, found)
        words = [word for launch in found.launches for word in (*launch.argv, launch.image or "")]
        assert found.needs == (), name
        assert [word for word in words if "<operator:" in word or "<value:" in word] == [], name


def test_the_page_is_the_table() -> None:
    """docs/k31-matrix.md is what ``python -m tests.k31.table`` prints."""
    assert PAGE.read_text(encoding="utf-8") == page.page(TABLE)
