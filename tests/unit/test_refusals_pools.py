"""The pools of a prefill/decode cluster: names, sizes and modes."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_infra.domain.inventory import PoolChoice
from kimi_infra.domain.recipe import RoleOverride, StrategyOverride
from tests.unit.test_refusals_example import POOLS, choice, plain, told

pytestmark = pytest.mark.compiler

TOO_SMALL = "variant default needs 1680 GB of accelerator memory, more than the"


def pools(prefill: int | None, decode: int | None, *modes: str) -> dict[str, PoolChoice]:
    """Build both pools, with the mode of the first and of both."""
    first, second = (*modes, None, None)[:2]
    return {
        "prefill": PoolChoice(nodes=prefill, parallelism=first),
        "decode": PoolChoice(nodes=decode, parallelism=second),
    }


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        (
            {"pools": None},
            [
                (
                    "pools: 2 prefill and 4 decode nodes are described on hardware gb300, and no pools are "
                    "given "
                    "(seed: TP8 beside DP16) (got 6 nodes); give pools.prefill.nodes 2 and "
                    "pools.decode.nodes 4"
                )
            ],
        ),
        (
            {"pools": {"prefill": PoolChoice(nodes=1), "encode": PoolChoice()}},
            [
                "pools.encode: no such pool is known (got encode); did you mean decode?",
                "pools.decode.nodes: the number of nodes of pool decode is missing; give 4",
                (
                    "pools.prefill.nodes: pool prefill with 1 node is not described on hardware gb300 "
                    "(seed: TP8 beside DP16) (got 1); give 2"
                ),
            ],
        ),
        (
            {"pools": pools(2, -4)},
            ["pools.decode.nodes: pool decode cannot have less than no nodes (got -4); give at least 1"],
        ),
        (
            {"pools": pools(2, 2, "dep", "xp")},
            [
                (
                    "pools.decode.nodes: pool decode with 2 nodes is not described on hardware gb300 "
                    "(seed: TP8 beside DP16) (got 2); give 4"
                ),
                (
                    "pools.prefill.parallelism: pool prefill does not take mode dep (seed: TP8 beside DP16) "
                    "(got dep); choose tep"
                ),
                "pools.decode.parallelism: no such mode of a pool is known (got xp); use one of dep",
            ],
        ),
    ],
)
def test_described_pools(changes: dict[str, Any], faults: list[str]) -> None:
    """Sizes and modes other than the published ones are refused in the publisher's words."""
    asked = choice(**{"hardware": "gb300", "strategy": "pd_cluster", "nodes": 6, **changes})
    assert told(asked) == faults


@pytest.mark.parametrize(
    ("changes", "recipe", "faults"),
    [
        (
            {"nodes": 6},
            {},
            [
                (
                    "pools: without pools there is one node for each of them, or one for both (got 6 nodes); "
                    "give pools.prefill.nodes 1 and pools.decode.nodes 1"
                )
            ],
        ),
        (
            {"pools": pools(0, 2)},
            {},
            [
                (
                    "pools.prefill.nodes: pool prefill shares one node with the other pool, "
                    "which has nodes of its own (got 0); give 1"
                )
            ],
        ),
        (
            {"pools": pools(0, 0, "tp", "dep")},
            {},
            [
                (
                    "pools.decode.parallelism: pool decode shares a node, for half of whose GPUs the "
                    "public rules "
                    "write a wrong DEP size (got dep); give it nodes of its own, or choose tp, or choose tep"
                )
            ],
        ),
        (
            {"nodes": 1},  # the same without naming the pools
            {
                "strategy_overrides": {
                    "pd_cluster": StrategyOverride(roles={"decode": RoleOverride(parallelism="dep")})
                }
            },
            [
                (
                    "pools.decode.parallelism: pool decode shares a node, for half of whose GPUs the "
                    "public rules "
                    "write a wrong DEP size (got dep); give it nodes of its own, or choose tp, or choose tep"
                )
            ],
        ),
        (
            {"pools": pools(1, 1, "tp", "dep")},
            {"strategy_overrides": {"pd_cluster": StrategyOverride(pool_modes=("tp", "tep"))}},
            ["pools.decode.parallelism: pool decode does not take mode dep (got dep); choose tp or tep"],
        ),
        (
            {"pools": pools(1, 1, "tep")},  # no strategy with expert parallelism is offered
            {"strategies": ("single_node_tp", "pd_cluster")},
            ["pools.prefill.parallelism: pool prefill does not take mode tep (got tep); choose tp"],
        ),
        (
            {"variant": "default", "hardware": "gb300", "pools": pools(2, 1)},
            {},
            [f"pools.decode.nodes: {TOO_SMALL} 1152 GB of pool decode on 1 node of gb300 (got 1); give 2"],
        ),
        (
            {"variant": "default", "nodes": 1},  # one node holds the model once, not twice
            {},
            [
                (
                    f"pools.prefill.nodes: {TOO_SMALL} 1072 GB of pool prefill on half a node of b300 (got "
                    "0); "
                    "give 1"
                ),
                (
                    f"pools.decode.nodes: {TOO_SMALL} 1072 GB of pool decode on half a node of b300 (got 0); "
                    "give 1"
                ),
            ],
        ),
        (
            {"pools": pools(1, 1, "tp", "dep")},
            {"strategy_min_gpus": {"multi_node_dep": 16}},
            ["pools.decode.nodes: mode dep of pool decode needs 16 GPUs, more than its 8 (got 1); give 2"],
        ),
        (
            {"pools": pools(1, 1)},
            {"strategy_min_gpus": {"pd_cluster": 32}},
            [
                (
                    "pools: strategy pd_cluster needs 32 GPUs, more than the 16 of both pools "
                    "(got 1 prefill and 1 decode node); give 4 nodes in all"
                )
            ],
        ),
        (
            {"hardware": "station", "nodes": 2},
            {},
            [
                (
                    "pools: hardware station is one node by itself, and two pools take several "
                    "(got 1 prefill and 1 decode node); "
                    "choose hardware b300 with strategy pd_cluster and 1 prefill and 1 decode node"
                )
            ],
        ),
    ],
)
def test_pools_of_a_public_recipe(changes: dict[str, Any], recipe: dict[str, Any], faults: list[str]) -> None:
    """Sizes are told to one another, to the memory and to the floor of each pool's mode."""
    asked = choice("plain", **{"variant": "small", "strategy": "pd_cluster", "nodes": 2, **changes})
    assert told(asked, plain(**recipe)) == faults


def test_pools_need_a_cluster() -> None:
    """Pools beside one engine are not dropped."""
    assert told(choice(pools=POOLS)) == [
        (
            "pools: pools are given, and strategy single_node_tp runs one engine (got prefill, decode); "
            "leave them out, or choose strategy pd_cluster"
        )
    ]
    alone = plain(strategies=("single_node_tp",))
    (fault,) = told(choice("plain", pools=POOLS), alone)
    assert fault.endswith("(got prefill, decode); leave them out")


def test_pools_say_how_many_nodes_there_are() -> None:
    """With pools the number of nodes is theirs, whatever stands beside it."""
    for nodes in (0, 6, 99):
        asked = choice(hardware="gb300", strategy="pd_cluster", nodes=nodes, pools=POOLS)
        assert told(asked) == []
