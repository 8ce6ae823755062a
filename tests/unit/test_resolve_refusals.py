"""A choice is rendered whole or refused with a reason; nothing is dropped in silence."""

from __future__ import annotations

import itertools
import pathlib

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Role
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import resolve
from tests.unit import test_resolve_order as example

pytestmark = pytest.mark.fast

CATALOGUE = recipes.load_catalogue()
COMPILED = {
    ("moonshotai/Kimi-K3.1-Pro", "gb300", "multi_node_tp", 2),
    ("moonshotai/Kimi-K3.1-Pro", "vr200", "multi_node_tp", 2),
    ("kimi-infra/lab-tiny", "lab-cpu", "multi_node_tp", 2),
    ("kimi-infra/lab-tiny", "lab-cpu", "single_node_tp", 1),
}
"""All that this version compiles, written down apart from the recipes."""


def test_every_combination_is_compiled_or_refused() -> None:
    """Of all models, hardware, strategies and node counts exactly the listed ones resolve; others say why."""
    strategies = sorted({name for recipe in CATALOGUE.recipes.values() for name in recipe.strategies})
    resolved, reasons = set(), set[Fault]()
    for model, hardware, strategy, nodes in itertools.product(
        CATALOGUE.recipes, CATALOGUE.profiles, strategies, (-1, 0, 1, 2, 3, 4, 8)
    ):
        choice = Choice(
            model=model,
            hardware=hardware,
            strategy=strategy,
            nodes=nodes,
            features=None,
            accept_preview=True,
        )
        try:
            launches = resolve.resolve(CATALOGUE, choice)
        except SpecError as error:
            reasons |= set(error.faults)
            continue
        resolved.add((model, hardware, strategy, nodes))
        assert [launch.rank for launch in launches] == list(range(nodes))
        assert [launch.role for launch in launches] == [Role.HEAD, *[Role.WORKER] * (nodes - 1)]
        assert ["--headless" in launch.args for launch in launches] == [False, *[True] * (nodes - 1)]
        for launch in launches:
            names = [flag.name for flag in launch.flags]
            assert len(names) == len(set(names))
    assert resolved == COMPILED
    assert {fault.where for fault in reasons} == {"hardware", "strategy", "nodes"}
    assert all(fault.got and fault.remedy for fault in reasons)


def test_resolving_twice_gives_the_same() -> None:
    """A resolved choice is a value: equal each time."""
    choice = Choice(
        model="moonshotai/Kimi-K3.1-Pro", hardware="gb300", strategy="multi_node_tp", nodes=2, features=None
    )
    assert resolve.resolve(CATALOGUE, choice) == resolve.resolve(CATALOGUE, choice)


@pytest.mark.parametrize(
    ("choice", "changes", "fault"),
    [
        (
            {"nodes": 1},
            {},
            "nodes: 1 nodes do not fit strategy multi_node_tp (got 1); give at least 2",
        ),
        (
            {"strategy": "single_node_tp"},
            {},
            (
                "nodes: 2 nodes do not fit strategy single_node_tp (got 2); "
                "give 1, or choose a multi-node strategy"
            ),
        ),
        (
            {"features": ("f",)},
            {"features": {"f": {"args": ["--f"], "strategies": ["single_node_tp"]}}},
            (
                "features[0]: feature f does not work with strategy multi_node_tp (got f); "
                "leave it out, or choose strategy single_node_tp"
            ),
        ),
        (
            {"hardware": "h200"},
            {"meta": {"title": "Example", "hardware": {"h200": "unsupported"}}},
            "hardware: org/example is not offered on h200 (got h200); choose gb300 or mi355x",
        ),
        (
            {"strategy": "multi_node_tep"},
            {"compatible_strategies": ["multi_node_tp", "multi_node_tep"]},
            (
                "strategy: strategy multi_node_tep on hardware gb300 is not compiled in this version "
                "(got multi_node_tep); choose single_node_tp or multi_node_tp"
            ),
        ),
    ],
)
def test_a_public_recipe_is_held_to_its_rules(
    tmp_path: pathlib.Path, choice: dict[str, object], changes: dict[str, object], fault: str
) -> None:
    """A recipe without our extensions is refused by what the public format says of it."""
    with pytest.raises(SpecError) as caught:
        example.launch(tmp_path, choice, **changes)
    assert [str(found) for found in caught.value.faults] == [fault]


@pytest.mark.parametrize("look_up", [CATALOGUE.recipe, CATALOGUE.strategy, CATALOGUE.hardware])
def test_an_unknown_name_is_a_fault(look_up: object) -> None:
    """Each look-up of the catalogue refuses an unknown name."""
    with pytest.raises(SpecError, match="is known"):
        look_up("nothing like it")  # type: ignore[operator]
