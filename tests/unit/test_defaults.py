"""What a choice leaves open: filled in as the public page does, or from what the publisher describes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice, PoolChoice
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import (
    Catalogue,
    Constraint,
    DeployType,
    Layout,
    Preset,
    Recipe,
    Strategy,
    Variant,
)
from kimi_infra.planning import defaults

pytestmark = pytest.mark.compiler

TYPES = {"single": DeployType.SINGLE_NODE, "multi": DeployType.MULTI_NODE, "pd": DeployType.PD_CLUSTER}
STRATEGIES = (
    *("single_node_tp", "single_node_tep", "single_node_dep"),
    *("multi_node_tp", "multi_node_tep", "multi_node_dep", "pd_cluster"),
)
LEFT = frozenset({"hardware", "strategy", "nodes"})


def profile(
    key: str, *, brand: str = "NVIDIA", generation: str = "blackwell", **other: Any
) -> HardwareProfile:
    """One kind of node."""
    return HardwareProfile(
        **{"gpus_per_node": 8, "vram_gb": 1000, **other},
        key=key,
        title=key,
        brand=brand,
        generation=generation,
    )


PROFILES = (
    profile("b300"),
    profile("b200"),
    profile("gb200", gpus_per_node=4, vram_gb=500),
    profile("h200", generation="hopper"),
    profile("mi355x", brand="AMD", generation="amd"),
    profile("box", restricted=True, scalable=False),
)


def catalogue(**recipe: Any) -> Catalogue:
    """A catalogue of one recipe."""
    read = Recipe(key="o/m", model_id="o/m", title="m", **{"strategies": STRATEGIES, **recipe})
    strategies = (
        Strategy(name=name, title=name, deploy_type=TYPES[name.partition("_")[0]]) for name in STRATEGIES
    )
    return Catalogue(
        recipes={"o/m": read},
        strategies={it.name: it for it in strategies},
        profiles={it.key: it for it in PROFILES},
    )


def asked(**given: Any) -> tuple[Choice, frozenset[str]]:
    """A choice with stand-ins for what is not given, and the names of those."""
    stand_ins: dict[str, Any] = {"hardware": "", "strategy": "", "nodes": 0, "features": None}
    return Choice(model="o/m", **{**stand_ins, **given}), LEFT - set(given)


def filled(known: Catalogue, **given: Any) -> tuple[str, str, int]:
    """What the public page makes of a choice."""
    found = defaults.filled(known, *asked(**given))
    return found.hardware, found.strategy, found.nodes


def described(known: Catalogue, **given: Any) -> tuple[str, str, int]:
    """What we make of a choice."""
    found = defaults.described(known, *asked(**given))
    return found.hardware, found.strategy, found.nodes


NVFP4 = {"default": Variant(precision="nvfp4")}


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({}, "h200"),
        ({"default_hardware": "mi355x"}, "mi355x"),
        ({"default_hardware": "nosuch"}, "h200"),
        ({"default_hardware": "h200", "variants": NVFP4}, "b200"),  # not offered for the precision
        ({"variants": NVFP4, "hardware_marks": {"b200": "unsupported"}}, "gb200"),
        ({"variants": NVFP4, "hardware_marks": {"b200": "unsupported", "gb200": "unsupported"}}, "b300"),
        ({"hardware_marks": {"h200": "unsupported"}}, "b200"),  # NVIDIA by key
        ({"variants": {"default": Variant(supported_hardware=("mi355x", "box"))}}, "mi355x"),
        ({"variants": {"default": Variant(supported_hardware=("box",))}}, "h200"),  # restricted, not named
        (
            {
                "variants": {"default": Variant(supported_hardware=("box",))},
                "hardware_marks": {"box": "verified"},
            },
            "box",
        ),
        (
            {"variants": {"default": Variant(precision="fp4", precision_hardware=Constraint(brand="AMD"))}},
            "mi355x",
        ),
    ],
)
def test_the_hardware_that_the_page_opens_with(recipe: dict[str, Any], expected: str) -> None:
    """The author's pick if it is offered, else the page's own order."""
    assert filled(catalogue(**recipe))[0] == expected


@pytest.mark.parametrize(
    ("recipe", "nodes", "expected"),
    [
        ({}, 1, "single_node_tp"),
        ({}, 2, "multi_node_tp"),
        ({"default_strategy": "single_node_tep"}, 1, "single_node_tep"),
        ({"default_strategy": "single_node_tep"}, 2, "multi_node_tep"),
        ({"default_strategy": "pd_cluster"}, 2, "pd_cluster"),
        ({"default_strategy": "multi_node_dep"}, 1, "multi_node_dep"),
        ({"default_strategy": "nosuch"}, 1, "single_node_tp"),
        # No sibling over several nodes is offered.
        (
            {"default_strategy": "single_node_tp", "strategies": ("single_node_tp", "multi_node_dep")},
            2,
            "multi_node_dep",
        ),
        ({"strategies": ("multi_node_tep", "single_node_tp")}, 3, "multi_node_tep"),
        ({"strategies": ("single_node_dep",)}, 2, "single_node_dep"),
        ({"strategies": ()}, 1, "single_node_tp"),
    ],
)
def test_the_strategy_that_the_page_recommends(recipe: dict[str, Any], nodes: int, expected: str) -> None:
    """The recipe's default, on several nodes its sibling, else the page's own order."""
    assert filled(catalogue(**recipe), nodes=nodes)[1] == expected


@pytest.mark.parametrize(
    ("recipe", "given", "expected"),
    [
        ({"variants": {"default": Variant(vram_minimum_gb=1000)}}, {}, 1),
        ({"variants": {"default": Variant(vram_minimum_gb=1001)}}, {}, 2),
        ({"variants": {"default": Variant(vram_minimum_gb=9000)}}, {}, 2),  # the page grows by floors only
        ({"variants": {"default": Variant(vram_minimum_gb=1001)}, "strategies": ("single_node_tp",)}, {}, 1),
        ({"variants": {"default": Variant(vram_minimum_gb=1001)}}, {"hardware": "box"}, 1),  # does not scale
        ({"variants": {"default": Variant(vram_minimum_gb=1001)}}, {"hardware": "nosuch"}, 1),
        ({"strategy_min_gpus": {"multi_node_tp": 32}}, {"strategy": "multi_node_tp"}, 4),
        ({"strategy_min_gpus": {"*": 32}}, {"strategy": "multi_node_dep"}, 4),
        ({"strategy_min_gpus": {"*": 32}}, {"strategy": "single_node_tp"}, 1),
        ({"strategy_min_gpus": {"*": 1000}}, {"strategy": "multi_node_tp"}, 16),
        (
            {"strategy_min_gpus": {"multi_node_tp": 8, "gb200": {"multi_node_tp": 24}}},
            {"strategy": "multi_node_tp", "hardware": "gb200"},
            6,
        ),
        (
            {"strategy_min_gpus": {"multi_node_tp": 8, "gb200": 24}},
            {"strategy": "multi_node_tp", "hardware": "gb200"},
            6,
        ),
    ],
)
def test_the_nodes_that_the_page_opens_with(
    recipe: dict[str, Any], given: dict[str, Any], expected: int
) -> None:
    """Two where the weights do not fit one, and as many as the strategy's floor of GPUs needs."""
    assert filled(catalogue(**recipe), **given)[2] == expected


def test_what_is_given_stays() -> None:
    """Nothing that was asked for is changed, whether it is known or not."""
    assert filled(catalogue(), hardware="nosuch", strategy="other", nodes=7) == ("nosuch", "other", 7)


LAYOUTS = (
    Layout(strategy="single_node_tep", hardware="b300", nodes=(1,)),
    Layout(strategy="single_node_tp", hardware="b300", nodes=(1,)),
    Layout(strategy="multi_node_tep", hardware="gb200", nodes=(4, 8)),
    Layout(strategy="pd_cluster", hardware="gb200", nodes=(6,), pools={"prefill": 2, "decode": 4}),
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"hardware": "b300"}, ("b300", "single_node_tp", 1)),
        ({"hardware": "b300", "strategy": "single_node_tep"}, ("b300", "single_node_tep", 1)),
        ({"hardware": "gb200"}, ("gb200", "multi_node_tep", 4)),
        ({"hardware": "gb200", "nodes": 8}, ("gb200", "multi_node_tep", 8)),
        ({"hardware": "gb200", "nodes": 6}, ("gb200", "pd_cluster", 6)),
        # Nothing is described there: the page's own rules, for the refusal to be about what was asked.
        ({"hardware": "h200"}, ("h200", "single_node_tp", 1)),
        ({"hardware": "h200", "strategy": "multi_node_tp"}, ("h200", "multi_node_tp", 2)),
    ],
)
def test_the_publishers_placements_come_first(given: dict[str, Any], expected: tuple[str, str, int]) -> None:
    """What is left out is that of a described placement which agrees with what was given."""
    assert described(catalogue(layouts=LAYOUTS), **given) == expected


def test_the_publishers_pools_come_with_his_placement() -> None:
    """Unless pools were given; then their nodes are the choice's."""
    known = catalogue(layouts=LAYOUTS)
    cluster = {"hardware": "gb200", "strategy": "pd_cluster"}
    found = defaults.described(known, *asked(**cluster))
    assert found.pools == {"prefill": PoolChoice(nodes=2), "decode": PoolChoice(nodes=4)}
    own = {"prefill": PoolChoice(nodes=1), "decode": PoolChoice(nodes=2)}
    choice, absent = asked(**cluster)
    found = defaults.described(known, dataclasses.replace(choice, pools=own), absent)
    assert (found.nodes, found.pools) == (3, own)


def test_a_preset_brings_its_own_placement() -> None:
    """What was given beside it stays, for the refusal to name it."""
    preset = Preset(
        name="fast",
        title="Fast",
        hardware="mi355x",
        strategy="single_node_tp",
        nodes=1,
        features=(),
        dcp=None,
        kv_offload=None,
        args=(),
        provenance=Provenance(origin=Origin.SEED, source="page"),
    )
    known = catalogue(presets={"fast": preset})
    assert described(known, preset="fast") == ("mi355x", "single_node_tp", 1)
    assert described(known, preset="fast", hardware="b300") == ("b300", "single_node_tp", 1)
