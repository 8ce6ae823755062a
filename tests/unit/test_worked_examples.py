"""The six worked examples of the public format, from recipes written for the test in that format."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Iterator

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice, Instances, PoolChoice
from kimi_infra.domain.launch import Launch, Resolution, Role
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.planning import resolve

pytestmark = pytest.mark.compiler

FOLDER = pathlib.Path(__file__).parent / "worked"
DEFAULT = ("tool_calling", "reasoning")
CHOICES = {
    "E1": Choice(
        model="moonshotai/Kimi-K3", hardware="gb300", strategy="multi_node_tp", nodes=2, features=None
    ),
    "E2": Choice(
        model="moonshotai/Kimi-K3",
        hardware="gb300",
        strategy="pd_cluster",
        nodes=6,
        features=None,
        pools={"prefill": PoolChoice(nodes=2), "decode": PoolChoice(nodes=4)},
    ),
    "E3": Choice(
        model="moonshotai/Kimi-K3",
        hardware="mi355x",
        strategy="single_node_tp",
        nodes=1,
        features=(*DEFAULT, "spec_decoding"),
    ),
    "E4": Choice(
        model="moonshotai/Kimi-K3",
        hardware="b300",
        strategy="single_node_tp",
        nodes=1,
        features=(*DEFAULT, "decode_context_parallelism"),
        kv_offload="simple",
    ),
    "E5": Choice(
        model="moonshotai/Kimi-K3",
        hardware="b200",
        strategy="multi_node_tp_pp",
        nodes=2,
        features=(*DEFAULT, "spec_decoding"),
    ),
    "E6": Choice(
        model="nvidia/Kimi-K2.6-NVFP4",
        variant="nvfp4",
        hardware="gb200",
        strategy="multi_node_dep",
        nodes=2,
        features=None,
        kv_offload="kv_store_distributed_mooncake",
        kv_instances=Instances(count=2, current=1),
    ),
}
REFUSED = {"E5": "spec_decoding"}
"""Examples that we refuse, with the word that the refusal names: the page drops it in silence."""


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    """Read the fixture recipes, strictly: they are plain public files."""
    return recipes.read_catalogue(FOLDER)


def expected(example: str) -> dict[str, list[str]]:
    """Read an example's lines: head, prefill, decode, router; ``env`` follows the command that has it."""
    found: dict[str, list[str]] = {}
    before = ""
    for line in (FOLDER / "expected.txt").read_text(encoding="utf-8").splitlines():
        name, kind, text = line.split(" ", 2)
        if name == example:
            found[f"{before} env" if kind == "env" else kind] = shlex.split(text)
            before = kind
    return found


def env(launch: Launch) -> list[str]:
    """Return a launch's variables as the examples write them."""
    return [f"{entry.name}={entry.value}" for entry in launch.env]


def compare(wanted: dict[str, list[str]], found: Resolution) -> Iterator[str]:
    """Hold the first node of each role to the example; yields the kinds that were compared."""
    for launch in found.launches:
        kind = launch.role.value
        if launch.rank == 0:
            assert list(launch.argv) == wanted[kind]
            assert env(launch) == wanted[f"{kind} env"]
            yield from (kind, f"{kind} env")
    if found.router and "router" in wanted:
        assert list(found.router) == wanted["router"]
        yield "router"


@pytest.mark.parametrize("example", sorted(CHOICES))
def test_as_published(catalogue: Catalogue, example: str) -> None:
    """Word for word and in the same order: command, variables and router."""
    found = resolve.as_published(catalogue, CHOICES[example])
    wanted = expected(example)
    assert set(compare(wanted, found)) == set(wanted)


@pytest.mark.parametrize("example", sorted(CHOICES.keys() - REFUSED.keys()))
def test_strictly(catalogue: Catalogue, example: str) -> None:
    """What goes together compiles to the same without the page's silence."""
    assert resolve.resolve(catalogue, CHOICES[example]) == resolve.as_published(catalogue, CHOICES[example])


def test_what_the_page_drops_is_a_warning(catalogue: Catalogue) -> None:
    """The page leaves out what does not fit; as published we do too, and say so."""
    found = resolve.as_published(catalogue, CHOICES["E5"])
    assert any("spec_decoding" in str(warning) for warning in found.warnings)


def test_the_other_nodes(catalogue: Catalogue) -> None:
    """Unlisted nodes differ only as the examples say."""
    head, worker = resolve.as_published(catalogue, CHOICES["E1"]).launches
    assert [*worker.argv] == [
        *" ".join(head.argv)
        .replace("--node-rank 0", "--node-rank 1")
        .replace("--master-addr $HEAD_IP", "--master-addr $HEAD_IP --headless")
        .split()
    ]
    assert worker.env == head.env
    cluster = resolve.as_published(catalogue, CHOICES["E2"]).launches
    assert [(one.role, one.rank) for one in cluster] == [
        *((Role.PREFILL, rank) for rank in range(2)),
        *((Role.DECODE, rank) for rank in range(4)),
    ]
    for rank, one in enumerate(cluster[2:]):
        start = one.argv.index("--data-parallel-start-rank")
        assert one.argv[start + 1] == str(4 * rank)
        assert f"VLLM_NIXL_SIDE_CHANNEL_HOST=$DECODE_NODE_{rank + 1}" in env(one)
        assert one.serves
    assert [one.serves for one in cluster[:2]] == [True, False]
    assert env(cluster[1]) == env(cluster[0])
    store = resolve.as_published(catalogue, CHOICES["E6"])
    start = store.launches[1].argv.index("--data-parallel-start-rank")
    assert store.launches[1].argv[start - 2 : start + 2] == (
        *("--data-parallel-address", "$VLLM_INSTANCE_2"),
        *("--data-parallel-start-rank", "4"),
    )
    assert store.router is not None
    assert store.router[:7] == (
        *("vllm-router", "--policy", "cache_aware"),
        *("--backend-url", "http://$VLLM_INSTANCE_1:8000"),
        *("--backend-url", "http://$VLLM_INSTANCE_2:8000"),
    )


def test_images(catalogue: Catalogue) -> None:
    """Recipes without a pin take the brand's released image."""
    images = {
        name: resolve.as_published(catalogue, choice).launches[0].image for name, choice in CHOICES.items()
    }
    assert images == {
        name: "vllm/vllm-openai-rocm:latest" if name == "E3" else "vllm/vllm-openai:latest"
        for name in CHOICES
    }
