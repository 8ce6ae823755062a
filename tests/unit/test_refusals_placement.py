"""Hardware, strategy and nodes: offered, described, and large enough for the model."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Constraint, Reservation, Terms, Variant
from kimi_infra.planning import refusals
from tests.unit import test_refusals_example as example
from tests.unit.test_refusals_example import choice, plain, told

pytestmark = pytest.mark.compiler


@pytest.mark.parametrize(
    ("changes", "recipe", "fault"),
    [
        (
            {"hardware": "h200"},
            {"hardware_marks": {"h200": "unsupported"}},
            "hardware: org/plain is not offered on h200 (got h200); choose b300 or mi355x or ppu",
        ),
        (
            {"variant": "rare"},
            {},
            (
                "hardware: variant rare of org/plain is not offered on b300 (got b300); "
                "choose variant default, or hardware gb300 or h200"
            ),
        ),
        (
            {"hardware": "secret"},
            {},
            (
                "hardware: hardware secret is offered only by recipes that name it, and org/plain does not "
                "(got secret); choose b300 or mi355x or ppu"
            ),
        ),
        (
            {"variant": "small", "hardware": "mi355x"},
            {},
            (
                "hardware: variant small (nvfp4) needs NVIDIA blackwell, and mi355x is AMD amd (got mi355x); "
                "choose variant default, or hardware b300 or gb300"
            ),
        ),
        (
            {"hardware": "npu"},  # nobody knows how a container is given its devices
            {},
            (
                "hardware: image and devices of Huawei hardware such as npu are not known (got npu); "
                "choose b300 or mi355x or ppu"
            ),
        ),
        (
            {"hardware": "h200"},
            {"hardware_marks": dict.fromkeys(example.CATALOGUE.profiles, "unsupported")},
            "hardware: org/plain is not offered on h200 (got h200); choose another model",
        ),
    ],
)
def test_hardware_that_is_not_offered(changes: dict[str, Any], recipe: dict[str, Any], fault: str) -> None:
    """The reason is told with the nearest hardware that works, and nothing that follows from it."""
    assert told(choice("plain", **changes), plain(**recipe)) == [fault]


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (
            choice("plain", nodes=5),
            "5 nodes do not fit strategy single_node_tp (got 5); give 1, or choose a multi-node strategy",
        ),
        (
            choice("plain", strategy="multi_node_tp"),
            "1 node does not fit strategy multi_node_tp (got 1); give at least 2",
        ),
        (
            choice(strategy="multi_node_tep", nodes=3),
            "3 nodes do not fit strategy multi_node_tep (got 3); give 2 or 4",
        ),
        (choice(strategy="pd_cluster", nodes=5), None),  # pools need hardware to be judged
        (choice("plain", strategy="multi_node_tp", nodes=9), None),
    ],
)
@pytest.mark.parametrize("hardware", ["b30", "npu"])
def test_nodes_are_judged_whatever_the_hardware(asked: Choice, fault: str | None, hardware: str) -> None:
    """A number that no hardware makes right is told beside hardware that is unknown or not offered."""
    found = told(dataclasses.replace(asked, hardware=hardware))
    assert [line.partition(":")[0] for line in found] == ["hardware", *(["nodes"] if fault else [])]
    assert found[1:] == ([f"nodes: {fault}"] if fault else [])


@pytest.mark.parametrize(
    ("changes", "recipe"),
    [
        ({"hardware": "secret"}, {"hardware_marks": {"secret": "verified"}}),
        (
            {"hardware": "mi355x", "variant": "open"},
            {"variants": {"open": Variant(precision="nvfp4", precision_hardware=Constraint(brand="AMD"))}},
        ),
        ({"hardware": "mi355x"}, {"variants": {}}),
    ],
)
def test_hardware_that_is_offered_after_all(changes: dict[str, Any], recipe: dict[str, Any]) -> None:
    """A restricted profile that is named, and a constraint of the variant's own, are kept to."""
    assert told(choice("plain", **changes), plain(**recipe)) == []


@pytest.mark.parametrize(
    ("changes", "recipe", "fault"),
    [
        (
            {"strategy": "multi_node_tp_pp", "nodes": 2},
            {},
            (
                "strategy: org/plain does not offer strategy multi_node_tp_pp (got multi_node_tp_pp); "
                "choose multi_node_tp with 2 nodes or multi_node_tep with 2 nodes "
                "or multi_node_dep with 2 nodes"
            ),
        ),
        (
            {},
            {"strategy_hardware": {"single_node_tp": {"blackwell": "unsupported"}}},
            (
                "strategy: strategy single_node_tp is not supported on hardware b300 (got single_node_tp); "
                "choose multi_node_tp with 2 nodes or single_node_tep with 1 node "
                "or single_node_dep with 1 node"
            ),
        ),
        (
            {"strategy": "multi_node_tp_pp", "nodes": 2},
            {"strategy_hardware": {"multi_node_tp_pp": {"amd": "supported"}}},  # granted elsewhere only
            (
                "strategy: strategy multi_node_tp_pp is not supported on hardware b300 (got "
                "multi_node_tp_pp); "
                "choose multi_node_tp with 2 nodes or multi_node_tep with 2 nodes "
                "or multi_node_dep with 2 nodes"
            ),
        ),
        (
            {"strategy": "ghost"},
            {"strategies": ("ghost", "single_node_tp")},
            (
                "strategy: org/plain offers strategy ghost, and the catalogue has no file of it (got ghost); "
                "choose single_node_tp with 1 node"
            ),
        ),
        (
            {"nodes": 2},
            {},
            (
                "nodes: 2 nodes do not fit strategy single_node_tp (got 2); "
                "give 1, or choose a multi-node strategy"
            ),
        ),
        (
            {"strategy": "multi_node_tp"},
            {},
            "nodes: 1 node does not fit strategy multi_node_tp (got 1); give at least 2",
        ),
        (
            {"hardware": "station", "variant": "small", "strategy": "multi_node_tp", "nodes": 2},
            {},
            (
                "strategy: strategy multi_node_tp takes several nodes, and hardware station is one by itself "
                "(got multi_node_tp); choose hardware b300 with strategy multi_node_tp and 2 nodes"
            ),
        ),
        (
            {"hardware": "gb300"},
            {},
            (
                "nodes: variant default needs 1680 GB of accelerator memory, more than the 1152 GB of 1 "
                "node of "
                "gb300 (got 1); choose strategy multi_node_tp with 2 nodes"
            ),
        ),
        (
            {"hardware": "gb300", "strategy": "multi_node_tp", "nodes": 2},
            {"variants": {"default": Variant(vram_minimum_gb=3000)}},
            (
                "nodes: variant default needs 3000 GB of accelerator memory, more than the 2304 GB of 2 "
                "nodes of "
                "gb300 (got 2); give 3"
            ),
        ),
        (
            {"hardware": "gb300", "strategy": "multi_node_tep", "nodes": 2},
            {"strategy_min_gpus": {"multi_node_tep": 16, "gb300": {"multi_node_tep": 12}}},
            (
                "nodes: strategy multi_node_tep needs 16 GPUs, more than the 8 of 2 nodes of gb300 (got 2); "
                "give 4"
            ),
        ),
        (
            {},
            {"strategy_min_gpus": {"*": 16}},
            (
                "nodes: strategy single_node_tp needs 16 GPUs, more than the 8 of 1 node of b300 (got 1); "
                "choose strategy multi_node_tp with 2 nodes"
            ),
        ),
        (
            {},
            {"variants": {"default": Variant(vram_minimum_gb=99_999)}},
            (
                "nodes: variant default needs 99999 GB of accelerator memory, more than the 2144 GB of 1 "
                "node of "
                "b300 (got 1); choose hardware ppu with strategy single_node_tp and 1 node"
            ),
        ),
    ],
)
def test_a_public_recipe_is_held_to_its_rules(
    changes: dict[str, Any], recipe: dict[str, Any], fault: str
) -> None:
    """A recipe without our extensions is refused by what the public format says of it."""
    assert told(choice("plain", **changes), plain(**recipe)) == [fault]


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (
            choice(hardware="gb300"),
            (
                "strategy: strategy single_node_tp on hardware gb300 is not described for org/described, and "
                "variant default needs 1680 GB of accelerator memory, more than the 1152 GB of 1 node of "
                "gb300 "
                "(seed: eight GPUs) (got single_node_tp); choose strategy multi_node_tp with 2 nodes"
            ),
        ),
        (
            choice(hardware="gb300", strategy="multi_node_tep", nodes=2),
            (
                "strategy: strategy multi_node_tep on hardware gb300 is not described for org/described "
                "(seed: eight GPUs) (got multi_node_tep); choose strategy multi_node_tp with 2 nodes"
            ),
        ),
        (
            choice(strategy="pd_cluster", nodes=6),  # the pools are not looked at
            (
                "strategy: strategy pd_cluster on hardware b300 is not described for org/described "
                "(seed: TP8 beside DP16) (got pd_cluster); choose strategy single_node_tp with 1 node"
            ),
        ),
        (
            choice(hardware="gb300", strategy="multi_node_tp", nodes=3),
            (
                "nodes: 3 nodes do not fit strategy multi_node_tp on hardware gb300 (seed: eight GPUs) "
                "(got 3); "
                "give 2"
            ),
        ),
        (
            choice(hardware="ppu", strategy="multi_node_tep", nodes=5),  # nobody says anything about it
            "nodes: 5 nodes do not fit strategy multi_node_tep on hardware ppu (got 5); give 4",
        ),
        (
            choice(strategy="single_node_dep"),
            (
                "strategy: org/described does not offer strategy single_node_dep (got single_node_dep); "
                "choose single_node_tp with 1 node or single_node_tep with 1 node"
            ),
        ),
        (
            choice(hardware="h200"),
            "hardware: org/described is not offered on h200 (got h200); choose b300 or mi355x",
        ),
        (
            choice(hardware="vr200", strategy="multi_node_tp", nodes=2),
            (
                "accept_preview: hardware vr200 is a preview, published as neither tuned nor verified "
                "(got false); write accept_preview: true, or choose other hardware"
            ),
        ),
    ],
)
def test_what_is_not_described_is_refused_in_the_publishers_words(asked: Choice, fault: str) -> None:
    """One fault for the placement, with the sentence behind it and the nearest described placement."""
    assert told(asked) == [fault]


def test_a_described_placement_must_still_hold_the_variant() -> None:
    """Placements are described for one checkpoint; a larger one is refused."""
    large = {"default": Variant(vram_minimum_gb=2200)}
    (fault,) = refusals.faults(plain(layouts=example.DESCRIBED.layouts, variants=large), choice("plain"))
    assert fault.where == "nodes"
    assert fault.remedy == "choose hardware gb300 with strategy multi_node_tp and 2 nodes"


def test_reservations_are_notes() -> None:
    """What the publisher says against a placement is told unless it is the preset's; a preview always is."""
    tried = choice(hardware="mi355x")
    assert refusals.notes(example.DESCRIBED, tried) == ("nobody has run it",)
    assert refusals.notes(example.DESCRIBED, choice(hardware="mi355x", preset="tuned")) == ()
    assert refusals.notes(example.DESCRIBED, choice()) == ()
    preview = choice(hardware="vr200", strategy="multi_node_tp", nodes=2)
    assert refusals.notes(example.DESCRIBED, preview, example.CATALOGUE.profiles["vr200"]) == (
        "hardware vr200 is a preview, published as neither tuned nor verified",
        "neither tuned nor verified",
    )


def test_a_reservation_holds_for_what_meets_it() -> None:
    """A reservation on a part of a choice is a note wherever that part is chosen, and nowhere else."""
    when = Terms(meets={"brand": ("PPU",), "kv_offload": ("simple",)})
    recipe = dataclasses.replace(example.DESCRIBED, reservations=(Reservation(when=when, note="not tried"),))
    ppu = example.CATALOGUE.profiles["ppu"]
    asked = choice(hardware="ppu", strategy="multi_node_tep", nodes=2, kv_offload="simple")
    assert refusals.notes(recipe, asked, ppu) == ("not tried",)
    assert refusals.notes(recipe, dataclasses.replace(asked, kv_offload=None), ppu) == ()
    assert refusals.notes(recipe, choice(kv_offload="simple"), example.CATALOGUE.profiles["b300"]) == ()
