"""A choice is compiled whole or refused with every reason at once; nothing is dropped in silence."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice, PoolChoice
from kimi_infra.domain.launch import Role
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import refusals, resolve
from tests.unit import test_refusals_example as example
from tests.unit.test_refusals_example import choice, told

pytestmark = pytest.mark.compiler

K31, TINY = "moonshotai/Kimi-K3.1-Pro", "kimi-infra/lab-tiny"
COMPILED = {
    (K31, "b300", "single_node_tp", 1),
    (K31, "b300", "single_node_tep", 1),
    (K31, "gb300", "multi_node_tp", 2),
    (K31, "gb300", "multi_node_tep", 2),
    (K31, "vr200", "multi_node_tp", 2),
    (K31, "mi355x", "single_node_tp", 1),
    (K31, "810e", "multi_node_tep", 2),
    (K31, "m890", "multi_node_tep", 4),
    (TINY, "lab-cpu", "multi_node_tp", 2),
    (TINY, "lab-cpu", "single_node_tp", 1),
}
"""All that is compiled without pools, written down apart from the recipes."""


def test_of_all_placements_exactly_the_described_ones_compile() -> None:
    """Of all models, hardware, strategies and node counts the listed ones resolve; others say why."""
    shipped = recipes.load_catalogue()
    resolved, reasons = set(), set[Fault]()
    for model, hardware, strategy, nodes in itertools.product(
        shipped.recipes, shipped.profiles, shipped.strategies, (-1, 0, 1, 2, 3, 4, 8)
    ):
        asked = Choice(
            model=model,
            hardware=hardware,
            strategy=strategy,
            nodes=nodes,
            features=None,
            accept_preview=True,
        )
        try:
            launches = resolve.resolve(shipped, asked).launches
        except SpecError as error:
            reasons |= set(error.faults)
            continue
        resolved.add((model, hardware, strategy, nodes))
        assert [launch.rank for launch in launches] == list(range(nodes))
        assert [launch.role for launch in launches] == [Role.HEAD, *[Role.WORKER] * (nodes - 1)]
    assert resolved == COMPILED
    assert {fault.where for fault in reasons} == {"hardware", "strategy", "nodes", "pools"}
    assert all(fault.got and fault.remedy for fault in reasons)


def test_resolving_twice_gives_the_same() -> None:
    """A resolved choice is a value: equal each time."""
    shipped = recipes.load_catalogue()
    asked = Choice(model=K31, hardware="gb300", strategy="multi_node_tp", nodes=2, features=None)
    assert resolve.resolve(shipped, asked) == resolve.resolve(shipped, asked)


def test_all_faults_come_at_once_in_the_order_of_the_fields() -> None:
    """Each unknown name is told with the closest known one, and nothing that follows from it."""
    asked = choice(
        hardware="gb30",
        strategy="single_node_tpp",
        nodes=0,
        features=("tool", "tools", "tools"),
        variant="defalt",
        feature_modes={"tols": "fast"},
        preset="tund",
        dcp=3,
        kv_offload="simpel",
        pools={"prefil": PoolChoice(nodes=-1), "decode": PoolChoice(nodes=-1)},
        advanced_args=("--port", "1"),
        values={"draft": "x"},
    )
    assert told(asked) == [
        "hardware: no such hardware is known (got gb30); did you mean gb300?",
        "strategy: no such strategy is known (got single_node_tpp); did you mean single_node_tp?",
        "features[0]: no such feature is known (got tool); did you mean tools?",
        "features[2]: feature tools is named twice (got tools); name it once",
        "variant: no such variant is known (got defalt); did you mean default?",
        "feature_modes.tols: no such feature is known (got tols); did you mean tools?",
        "preset: no such preset is known (got tund); did you mean tuned?",
        "dcp: dcp 3 is not offered (seed: beside plain TP) (got 3); give 8",
        "kv_offload: no such KV offload is known (got simpel); did you mean simple?",
        "pools.prefil: no such pool is known (got prefil); did you mean prefill?",
        "pools.decode.nodes: pool decode cannot have less than no nodes (got -1); give at least 1",
        (
            "advanced_args[0]: the plan itself decides this flag (got --port); "
            "set api.port of the deployment instead"
        ),
        "values.draft: no such value of org/described is known (got draft); did you mean draft_model?",
    ]


def test_without_a_recipe_names_are_held_to_the_whole_catalogue() -> None:
    """Of an unknown model only what can be known without it is told."""
    whole = Choice(
        model="org/describd",
        hardware="gb30",
        strategy="multi_tp",
        nodes=0,
        features=("anything",),
        preset="any",
        kv_offload="simpel",
    )
    assert told(whole) == [
        "model: no such model is known (got org/describd); did you mean org/described?",
        "hardware: no such hardware is known (got gb30); did you mean gb300?",
        "strategy: no such strategy is known (got multi_tp); did you mean multi_node_tp?",
        "nodes: an engine needs at least one node (got 0); give at least 1",
        "kv_offload: no such KV offload is known (got simpel); did you mean simple?",
    ]
    known = dataclasses.replace(whole, hardware="gb300", strategy="multi_node_tp", nodes=2, kv_offload=None)
    formed = dataclasses.replace(
        known,
        strategy="single_node_tp",
        features=("anything", "anything"),
        pools={"prefil": PoolChoice(nodes=1)},
        advanced_args=("--port", "1"),
    )
    assert told(formed)[1:] == [
        "nodes: 2 nodes do not fit strategy single_node_tp (got 2); give 1, or choose a multi-node strategy",
        "features[1]: feature anything is named twice (got anything); name it once",
        "pools.prefil: no such pool is known (got prefil); did you mean prefill?",
        (
            "advanced_args[0]: the plan itself decides this flag (got --port); "
            "set api.port of the deployment instead"
        ),
    ]
    assert [fault.where for fault in refusals.faults(example.CATALOGUE, known)] == ["model"]


def test_an_omni_recipe_is_refused_by_name() -> None:
    """The page's other resolver is none of ours, whatever else is chosen."""
    assert told(choice("omni", hardware="nothing")) == [
        (
            "model: omni recipes belong to the page's other resolver; they are out of scope (got org/omni); "
            "choose a recipe whose tasks are text, multimodal or embedding"
        )
    ]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "hardware: the name of a hardware is empty; use one of "),
        ("b300\n", "hardware: a control character is part of no hardware's name (got 'b300\\n'); did you"),
    ],
)
def test_a_name_that_is_no_name(name: str, fault: str) -> None:
    """Empty names and control characters are told as such, and nothing raw reaches the terminal."""
    (found,) = told(choice(hardware=name))
    assert found.startswith(fault)


def test_nothing_to_choose_from() -> None:
    """A recipe that has none of something says so."""
    none = example.plain(features={})
    assert told(choice("plain", features=("tools",)), none) == [
        "features[0]: there is no feature to choose from (got tools); leave it out"
    ]


def test_nothing_is_compiled_against_a_fault() -> None:
    """resolve() raises all of them; as_published() compiles what the page would and warns of them."""
    asked = choice(strategy="single_node_tep", features=("latency",), kv_offload="disk")
    with pytest.raises(SpecError) as caught:
        resolve.resolve(example.CATALOGUE, asked)
    assert [fault.where for fault in caught.value.faults] == ["features[0]", "kv_offload"]
    found = resolve.as_published(example.CATALOGUE, asked)
    assert found.warnings == caught.value.faults
    assert "--latency" in found.launches[0].args


@pytest.mark.parametrize(
    "look_up", [example.CATALOGUE.recipe, example.CATALOGUE.strategy, example.CATALOGUE.hardware]
)
def test_an_unknown_name_is_a_fault(look_up: object) -> None:
    """Each look-up of the catalogue refuses an unknown name."""
    with pytest.raises(SpecError, match="is known"):
        look_up("nothing like it")  # type: ignore[operator]
