"""How vLLM reads the flags that join nodes, and which nodes it lets meet.

The shapes of 4 nodes with 8 GPUs each were also started with a tiny mixture of experts on two nodes:
vLLM's own words there are those of :data:`REFUSED`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kimi_infra.domain.launch import Launch
from tests.parser import commands
from tests.parser.checks import Judge

pytestmark = pytest.mark.parser

WIDE = ("org/model", "--tensor-parallel-size", "8", "--data-parallel-size", "4", "--enable-expert-parallel")
JOINED = (*WIDE, "--nnodes", "4", "--master-addr", "$HEAD_IP", "--node-rank")
LOCAL = (*WIDE, "--data-parallel-size-local", "1", "--data-parallel-address", "$HEAD_IP")
STARTS = (*LOCAL, "--data-parallel-start-rank")
REFUSED = "engine: nodes: rank 0 refuses rank {}, which must {}use --headless"


def nodes(head: Sequence[str], *workers: Sequence[str]) -> list[Launch]:
    """Make one launch a node."""
    return [commands.launch(argv, rank=rank) for rank, argv in enumerate((head, *workers))]


def ranked(words: Sequence[str], *rest: str, first: int = 1) -> list[tuple[str, ...]]:
    """Words that end in a rank, for the ranks up to 3."""
    return [(*words, str(rank), *rest) for rank in range(first, 4)]


SHAPES = {
    "joined-headless": nodes((*JOINED, "0"), *ranked(JOINED, "--headless")),
    "start-ranks-headless": nodes(LOCAL, *ranked(STARTS, "--headless")),
    "start-ranks-everywhere": nodes(*ranked(STARTS, first=0)),
}


@pytest.mark.parametrize("launches", SHAPES.values(), ids=SHAPES)
def test_shapes_in_which_nodes_meet(judge: Judge, launches: list[Launch]) -> None:
    """Four ranks of TP8, one a node, at the head's address: nothing speaks against it."""
    assert judge.check_cell(launches) == []
    layouts = [layout for launch in launches if (layout := judge.layout(launch))]
    assert [layout.data_parallel_ranks for layout in layouts] == [(0,), (1,), (2,), (3,)]
    assert {layout.local_world_size for layout in layouts} == {8}
    assert {layout.node_rank_within_dp for layout in layouts} == {0}
    (address,) = {layout.data_parallel_address for layout in layouts}
    assert address.endswith(":29550")


def test_who_has_an_api(judge: Judge) -> None:
    """With a start rank on the head each node has its own API; else that of rank 0 serves all."""
    own = {name: judge.layout(launches[0]) for name, launches in SHAPES.items()}
    assert [layout.own_balancing for layout in own.values() if layout] == [True, True, False]


def test_the_public_shape_of_tp_dp_does_not_start(judge: Judge) -> None:
    """A head without a start rank waits for headless nodes; with a start rank alone a node has an API."""
    complaints = judge.check_cell(nodes(LOCAL, *ranked(STARTS)))
    assert complaints == [REFUSED.format(rank, "") for rank in (1, 2, 3)]


def test_headless_where_each_node_has_an_api(judge: Judge) -> None:
    """Once the head balances for itself only, the other nodes must not be headless."""
    complaints = judge.check_cell(nodes((*STARTS, "0"), *ranked(STARTS, "--headless")))
    assert complaints == [REFUSED.format(rank, "not ") for rank in (1, 2, 3)]


def test_a_joined_node_without_headless(judge: Judge) -> None:
    """By --nnodes a node of another data-parallel rank must be headless."""
    complaints = judge.check_cell(nodes((*JOINED, "0"), *ranked(JOINED)))
    assert [said.partition(" would")[0] for said in complaints] == [
        f"worker {rank}: engine: data-parallel rank {rank}" for rank in (1, 2, 3)
    ]


def test_one_engine_over_two_nodes(judge: Judge) -> None:
    """The page's two trays are one world of 8; a follower with an API of its own is told."""
    head, worker = commands.head(), commands.worker()
    layout = judge.layout(worker)
    assert layout is not None
    assert (layout.world_size, layout.local_world_size, layout.node_rank_within_dp) == (8, 4, 1)
    assert layout.master_address is not None
    assert layout.master_address.endswith(":29501")
    complaints = judge.check_cell([head, commands.without_flag(worker, "--headless")])
    assert complaints == [REFUSED.format(1, "")]


def test_nodes_that_do_not_fit_together(judge: Judge) -> None:
    """A rank that is missing or there twice, and another address, are told."""
    lost = judge.check_cell(nodes((*JOINED, "0"), *ranked(JOINED, "--headless")[:2]))
    assert lost == [
        "engine: nodes: data-parallel ranks [0, 1, 2] are not 0 to 3, each once",
        "engine: nodes: 24 workers for a world of 32",
    ]
    head = commands.with_flag(commands.head(), "--master-addr", "192.0.2.200")
    (elsewhere,) = judge.check_cell([head, commands.worker()])
    assert elsewhere.startswith("engine: nodes: master_address differs")


def test_a_decode_pool(judge: Judge) -> None:
    """DEP16 on four trays: four ranks a node, each node with its own API."""
    pool = (
        *("org/model", "--tensor-parallel-size", "1", "--data-parallel-size", "16"),
        *("--data-parallel-size-local", "4", "--data-parallel-address", "$DECODE_NODE_1"),
        *("--data-parallel-rpc-port", "$DECODE_DP_RPC_PORT", "--enable-expert-parallel"),
        *("--data-parallel-hybrid-lb", "--data-parallel-start-rank"),
    )
    launches = nodes(*((*pool, str(4 * rank)) for rank in range(4)))
    assert judge.check_cell(launches) == []
    layout = judge.layout(launches[3])
    assert layout is not None
    assert layout.data_parallel_ranks == (12, 13, 14, 15)
    assert not layout.own_balancing
