"""Every command that we render is one that vLLM takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.launch import Launch
from kimi_infra.planning import resolve
from tests import k31_matrix
from tests.golden import test_render
from tests.parser import commands
from tests.parser.checks import Judge, complete
from tests.parser.newer import UNKNOWN, Unknown

pytestmark = pytest.mark.parser


def matrix() -> Iterator[tuple[str, tuple[Launch, ...]]]:
    """Compile every cell with the shipped catalogue."""
    catalogue = recipes.load_catalogue()
    for name, choice in k31_matrix.cells():
        yield name, resolve.resolve(catalogue, choice).launches


@pytest.mark.parametrize("name", test_render.RENDERED)
def test_golden_cases(judge: Judge, name: str) -> None:
    """A golden case is accepted node by node and as a whole, unless a value is still to be given."""
    launches = test_render.resolution(name).launches
    to_be_given = [word for launch in launches for word in launch.argv if not complete(word)]
    complaints = judge.check_cell(launches)
    assert bool(complaints) == bool(to_be_given), complaints


def test_the_matrix(judge: Judge) -> None:
    """Every cell of Kimi-K3.1-Pro's matrix is accepted, every value given."""
    found = {name: judge.check_cell(launches) for name, launches in matrix()}
    assert found
    assert {name: complaints for name, complaints in found.items() if complaints} == {}


def test_the_named_list_is_used(judge: Judge) -> None:
    """Each entry stands in the command of some cell, else it must go."""
    met = {entry for _, launches in matrix() for launch in launches for entry in judge.met(launch)}
    assert met == set(UNKNOWN)


@pytest.mark.parametrize("entry", UNKNOWN, ids=lambda entry: entry.name)
def test_only_the_named_list_passes(judge: Judge, entry: Unknown) -> None:
    """Beside an entry everything else of a command is checked as ever, and a name like it is refused."""

    def using(name: str) -> Launch:
        if entry.place.startswith("--"):
            return commands.with_flag(commands.head(), entry.place, name)
        return commands.with_env(commands.head(), name, "1")

    assert judge.check_launch(using(entry.name)) == []
    assert len(judge.check_launch(using(f"{entry.name}_2"))) == 1
    beside = commands.with_flag(using(entry.name), "--kv-cache-dtype", "nvfp8")
    assert len(judge.check_launch(beside)) == 1
