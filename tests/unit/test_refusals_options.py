"""Features and their modes, preset, decode context parallelism, KV offload."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kimi_infra.domain.inventory import Instances
from kimi_infra.domain.recipe import Catalogue, StrategyOverride
from tests.unit import test_refusals_example as example
from tests.unit.test_refusals_example import choice, plain, told

pytestmark = pytest.mark.compiler

SEVERAL: dict[str, Any] = {"hardware": "gb300", "strategy": "multi_node_tp", "nodes": 2}
CLUSTER: dict[str, Any] = {"variant": "small", "strategy": "pd_cluster", "nodes": 2}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"strategy": "single_node_tep", "features": ("tools", "draft")},
            (
                "features[1]: feature draft does not work with strategy single_node_tep (got draft); "
                "leave it out, or choose strategy single_node_tp or multi_node_tp"
            ),
        ),
        (
            {"hardware": "mi355x", "features": ("pick",)},
            "features[0]: feature pick has no mode for variant default on mi355x (got pick); leave it out",
        ),
        (
            {**SEVERAL, "features": ("helped",)},
            (
                "features[0]: feature helped needs a helper process beside the engine, and strategy "
                "multi_node_tp "
                "has no place for one (got helped); leave it out, or choose a single-node strategy"
            ),
        ),
        (
            {"kv_offload": "store", "features": ("helped",)},
            (
                "features[0]: feature helped needs a helper process beside the engine, and kv_offload store "
                "has no place for one (got helped); leave it out, or leave kv_offload store out"
            ),
        ),
        (
            {"feature_modes": {"tools": "fast"}},
            "feature_modes.tools: feature tools has no modes (got fast); leave its mode out",
        ),
        (
            {"features": ("pick",), "feature_modes": {"pick": "fats"}},
            "feature_modes.pick: no such mode of feature pick is known (got fats); did you mean fast?",
        ),
        (
            {"feature_modes": {"pick": "fast"}},
            (
                "feature_modes.pick: feature pick is not switched on, so that its mode decides nothing "
                "(got fast); switch the feature on, or leave its mode out"
            ),
        ),
        (
            {"features": ("pick",), "feature_modes": {"pick": "small"}},
            (
                "feature_modes.pick: mode small of feature pick is not there for variant default (got "
                "small); "
                "choose fast"
            ),
        ),
        (
            {"hardware": "mi355x", "features": ("pick",), "feature_modes": {"pick": "fast"}},
            # Its only mode is not told beside the feature itself.
            "features[0]: feature pick has no mode for variant default on mi355x (got pick); leave it out",
        ),
    ],
)
def test_features_and_modes(changes: dict[str, Any], fault: str) -> None:
    """What the public page leaves out in silence is refused."""
    assert told(choice("plain", **changes)) == [fault]


def test_a_preset_decides_its_own_fields() -> None:
    """All that contradicts it is one fault; what it leaves open is the operator's."""
    assert told(choice(preset="tuned", nodes=1, dcp=8)) == [
        (
            "preset: preset tuned sets hardware mi355x and kv_offload simple, and hardware b300 and no "
            "kv_offload "
            "was chosen (got tuned); choose hardware mi355x, strategy single_node_tp, nodes 1 and "
            "kv_offload simple, or leave preset out"
        ),
    ]
    # A strategy that the preset asks for was typed by nobody, nor were its features and sizes.
    elsewhere = {"preset": "tuned", "features": ("tools", "draft"), "dcp": 8, "kv_offload": "simple"}
    for hardware in ("gb300", "ppu"):
        assert told(choice(**elsewhere, hardware=hardware)) == [
            (
                f"preset: preset tuned sets hardware mi355x, and hardware {hardware} was chosen (got tuned); "
                "choose hardware mi355x, strategy single_node_tp and nodes 1, or leave preset out"
            )
        ]
    own = choice(**elsewhere, hardware="ppu", strategy="single_node_tep")
    assert [line.partition(":")[0] for line in told(own)] == ["strategy", "preset"]
    laid: dict[str, Any] = {"preset": "tuned", "hardware": "mi355x", "dcp": 8, "kv_offload": "simple"}
    assert [line.partition(":")[0] for line in told(choice(**laid, nodes=2))] == ["nodes", "preset"]
    assert [line.partition(":")[0] for line in told(choice(**laid, nodes=0))] == ["nodes"]
    unknown = choice(preset="tuned", hardware="mi355", dcp=8, kv_offload="simple", strategy="none_such")
    assert [line.partition(":")[0] for line in told(unknown)] == ["hardware", "strategy"]
    assert told(choice("plain", preset="tuned")) == [
        "preset: no such preset is known (got tuned); use one of baseline"
    ]


@pytest.mark.parametrize(
    ("changes", "recipe", "fault"),
    [
        (
            {},
            {"supports_dcp": False},
            "dcp: org/plain does not offer decode context parallelism (got 8); leave dcp out",
        ),
        ({"dcp": 16}, {}, "dcp: dcp 16 is not offered (got 16); give 8"),
        ({"dcp": 0}, {}, "dcp: dcp 0 is not offered (got 0); give 8"),
        (
            {"dcp": 16, "variant": "small", "hardware": "gb300"},  # TP4, which 8 does not divide
            {},
            "dcp: dcp 16 is not offered (got 16); leave dcp out",
        ),
        (
            {"variant": "small", "hardware": "gb300"},
            {},
            (
                "dcp: dcp 8 does not divide the tensor-parallel size 4 of strategy single_node_tp (got 8); "
                "leave dcp out, or choose a strategy whose TP it divides"
            ),
        ),
        (
            {"strategy": "single_node_dep"},  # no tensor parallelism at all
            {},
            (
                "dcp: dcp 8 does not divide the tensor-parallel size 1 of strategy single_node_dep (got 8); "
                "leave dcp out, or choose a strategy whose TP it divides"
            ),
        ),
        (
            {},
            {"strategy_overrides": {"single_node_tp": StrategyOverride(tp={"default": 2})}},
            (
                "dcp: dcp 8 does not divide the tensor-parallel size 2 of strategy single_node_tp (got 8); "
                "leave dcp out, or choose a strategy whose TP it divides"
            ),
        ),
    ],
)
def test_decode_context_parallelism(changes: dict[str, Any], recipe: dict[str, Any], fault: str) -> None:
    """It must be offered, in that size, and divide the tensor-parallel group."""
    assert told(choice("plain", **{"dcp": 8, **changes}), plain(**recipe)) == [fault]


def test_a_size_that_is_not_offered_is_told_with_what_is_said_of_it() -> None:
    """The sentence is that of the row, not of the placement."""
    for placed in ({}, SEVERAL):
        assert told(choice(**placed, dcp=4)) == [
            "dcp: dcp 4 is not offered (seed: beside plain TP) (got 4); give 8"
        ]


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "single_node_tep"},
        {"hardware": "ppu", "strategy": "multi_node_tep", "nodes": 2},
        {"hardware": "gb300", "strategy": "pd_cluster", "nodes": 6, "pools": example.POOLS},
    ],
)
def test_no_size_is_advised_where_none_is_taken(changes: dict[str, Any]) -> None:
    """The offered size would be refused by a rule in its turn."""
    assert told(choice(**changes, dcp=16))[0].endswith("(got 16); leave dcp out")


def test_a_size_that_does_not_divide_is_not_told_of_a_placement_that_is_refused() -> None:
    """One tray of four GPUs is refused; that eight do not divide four follows from it."""
    asked = choice(hardware="gb300", dcp=8)
    assert [line.partition(":")[0] for line in told(asked)] == ["strategy"]


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        (
            {**SEVERAL, "kv_offload": "cache"},
            [
                (
                    "kv_offload cache works with strategy single_node_tp only, and multi_node_tp was chosen "
                    "(got cache); leave kv_offload out, or choose simple"
                )
            ],
        ),
        (
            {"hardware": "ppu", "kv_offload": "disk"},
            [
                (
                    "kv_offload disk works only where a recipe says that it was verified, and org/plain "
                    "does not "
                    "(got disk); leave kv_offload out, or choose simple or cache"
                ),
                (
                    "kv_offload disk works on NVIDIA or AMD only, and hardware ppu is PPU "
                    "(got disk); leave kv_offload out, or choose simple or cache"
                ),
            ],
        ),
        (
            {**SEVERAL, "kv_offload": "everywhere"},
            [
                (
                    "kv_offload everywhere is marked as unsupported by org/plain (got everywhere); "
                    "leave kv_offload out, or choose simple"
                ),
                (
                    "kv_offload everywhere needs a helper process beside the engine, and strategy "
                    "multi_node_tp "
                    "has no place for one (got everywhere); leave kv_offload out, or choose simple"
                ),
            ],
        ),
        (
            {**CLUSTER, "kv_offload": "cache"},
            [
                (
                    "kv_offload cache has no pool of strategy pd_cluster that takes it (got cache); "
                    "leave kv_offload out, or choose simple"
                )
            ],
        ),
        (
            {**SEVERAL, "hardware": "h200", "kv_offload": "store"},
            [
                (
                    "KV store store is marked as unsupported on hardware h200 by org/plain (got store); "
                    "leave kv_offload out, or choose simple"
                )
            ],
        ),
        (
            {"hardware": "ppu", "kv_offload": "store"},
            [
                (
                    "KV store store works on NVIDIA or AMD only, and hardware ppu is PPU (got store); "
                    "leave kv_offload out, or choose simple or cache"
                )
            ],
        ),
        (
            {**CLUSTER, "kv_offload": "store"},
            [
                (
                    "KV store store says nothing of the pools of strategy pd_cluster (got store); "
                    "leave kv_offload out, or choose simple"
                )
            ],
        ),
    ],
)
def test_kv_offload(changes: dict[str, Any], faults: list[str]) -> None:
    """Every reason against an option or a store is told, with the options that work here."""
    assert told(choice("plain", **changes)) == [f"kv_offload: {fault}" for fault in faults]


def test_an_option_that_was_verified_works() -> None:
    """The recipe's own mark is what an option with consent asks for."""
    verified = plain(kv_offload_support={"disk": "verified"})
    assert told(choice("plain", kv_offload="disk"), verified) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"kv_instances": Instances(count=2)},
            (
                "kv_instances: instances stand around a KV store, and no kv_offload was chosen; "
                "leave kv_instances out, or choose kv_offload store"
            ),
        ),
        (
            {"kv_instances": Instances(count=2), "kv_offload": "simple"},
            (
                "kv_instances: instances stand around a KV store, and kv_offload simple was chosen; "
                "leave kv_instances out, or choose kv_offload store"
            ),
        ),
        (
            {"kv_instances": Instances(count=0), "kv_offload": "store"},
            "kv_instances.count: a KV store needs at least one engine (got 0); give at least 1",
        ),
        (
            {"kv_instances": Instances(current=2), "kv_offload": "store"},
            (
                "kv_instances.current: 2 instances of store are counted from 0 (got 2); "
                "give a number from 0 to 1"
            ),
        ),
        (
            {"kv_instances": Instances(count=1, current=-1), "kv_offload": "store"},
            (
                "kv_instances.current: 1 instance of store are counted from 0 (got -1); "
                "give a number from 0 to 0"
            ),
        ),
    ],
)
def test_instances(changes: dict[str, Any], fault: str) -> None:
    """They stand around a KV store, and the one that is asked for is one of them."""
    assert told(choice("plain", **changes)) == [fault]


def test_instances_are_no_pools() -> None:
    """A cluster's pools stand around the store themselves."""
    store = dataclasses.replace(example.KV_STORES[0], pools={"prefill": (), "decode": ()})
    catalogue: Catalogue = dataclasses.replace(example.CATALOGUE, kv_stores={"store": store})
    asked = choice("plain", **CLUSTER, kv_offload="store", kv_instances=Instances(count=2))
    assert told(asked, catalogue) == [
        (
            "kv_instances: instances are engines of their own, and strategy pd_cluster has pools instead; "
            "leave kv_instances out"
        )
    ]
