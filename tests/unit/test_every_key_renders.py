"""Whole commands of the fixture that uses every key of the public format, word for word.

The expected texts in ``recipe_format/rendered`` follow from the rules of the public format;
a second implementation of these rules, in another language, gave the same ones.
"""

from __future__ import annotations

import json
import pathlib
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kimi_infra.config import recipes
from kimi_infra.deploy import batch
from kimi_infra.domain.inventory import Choice, PoolChoice
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.planning import resolve

pytestmark = pytest.mark.compiler

FIXTURE = pathlib.Path(__file__).parent / "recipe_format"
GLACIER = "acme/Glacier-72B"
TEXTS = sorted((FIXTURE / "rendered").glob("*.txt"))


def cases() -> Iterator[Any]:
    """Yield the claim, the choice and the expected lines of each block of each file."""
    for file in TEXTS:
        for block in file.read_text(encoding="utf-8").split("\n\n"):
            claim, choice, *lines = block.strip().splitlines()
            name = f"{file.stem}: {claim.removeprefix('# ')}"
            yield pytest.param(choice.removeprefix("choice "), lines, id=name)


def public(content: Any) -> Any:
    """Leave out our extensions."""
    if isinstance(content, dict):
        return {key: public(value) for key, value in content.items() if not key.startswith("x-")}
    return [public(item) for item in content] if isinstance(content, list) else content


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """Open the fixture without our extensions, as a file of the public page."""
    root = tmp_path_factory.mktemp("public")
    for file in FIXTURE.rglob("*.yaml"):
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        copy = root / file.relative_to(FIXTURE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(
            yaml.dump(public(content), Dumper=yaml.CSafeDumper, sort_keys=False), encoding="utf-8"
        )
    return recipes.open_catalogue(root, lambda _: None)


def written(answer: dict[str, Any]) -> Iterator[str]:
    """Write an answer as the files do: variables and image again only where they change."""
    before: list[str] = []
    for node in answer["nodes"]:
        yield f"{node['role']} {node['rank']} {shlex.join(node['argv'])}"
        env = shlex.join(f"{name}={value}" for name, value in node["env"].items())
        rest = [f"env {env}".rstrip(), f"image {node['image'] or '-'}"]
        yield from rest if rest != before else ()
        before = rest
    if answer["router"]:
        yield f"router {shlex.join(answer['router'])}"


@pytest.mark.parametrize(("choice", "expected"), list(cases()))
def test_a_choice_renders_as_the_public_rules_say(
    catalogue: Catalogue, choice: str, expected: list[str]
) -> None:
    """Every word of every node, every variable in its place, the image and the router."""
    (answer,) = batch.answers(catalogue, [choice.encode()])
    assert list(written(json.loads(answer))) == expected


def test_every_strategy_store_and_option_is_rendered(catalogue: Catalogue) -> None:
    """No part of the fixture is left to chance."""
    choices = [json.loads(case.values[0]) for case in cases()]
    assert {one.get("strategy") for one in choices} >= catalogue.strategies.keys()
    assert {one.get("kv_offload") for one in choices} >= {*catalogue.kv_options, *catalogue.kv_stores}
    assert {one.get("variant") for one in choices} >= catalogue.recipe(GLACIER).variants.keys() - {"default"}
    assert {one.get("hardware") for one in choices} >= {"b300", "gb300", "h200", "mi355x", "xeon", "trillium"}
    pools = [pool for one in choices for pool in (one.get("pools") or {}).values()]
    modes = {pool["parallelism"] for pool in pools if "parallelism" in pool}
    assert modes == {"tp", "tep", "dep"}


@pytest.fixture(scope="module")
def extended() -> Catalogue:
    """Read the fixture with our extensions."""
    return recipes.read_catalogue(FIXTURE)


def compiled(catalogue: Catalogue, **chosen: Any) -> Resolution:
    """Compile a choice of the fixture as published."""
    return resolve.as_published(catalogue, Choice(model=GLACIER, **chosen))


def test_a_described_shape_is_that_of_its_placement(extended: Catalogue) -> None:
    """The layout of the M890 has one replica a node, and its nodes meet as those of every other shape."""
    found = compiled(extended, hardware="m890", strategy="multi_node_tep", nodes=4, features=())
    base = f"vllm serve {GLACIER} --trust-remote-code --gpu-memory-utilization 0.95"
    shape = "--enable-expert-parallel --tensor-parallel-size 8 --data-parallel-size 4 --nnodes 4"
    meeting = "--node-rank {} --master-addr $HEAD_IP"
    assert [" ".join(launch.argv) for launch in found.launches] == [
        f"{base} {shape} {meeting.format(rank)}{' --headless' if rank else ''}" for rank in range(4)
    ]
    assert {launch.image for launch in found.launches} == {None}


def test_a_pool_has_its_own_modes(extended: Catalogue) -> None:
    """Prefill is tensor and expert parallel whatever is asked, decode as asked."""
    found = compiled(
        extended,
        hardware="gb300",
        strategy="pd_cluster",
        nodes=2,
        features=(),
        pools={role: PoolChoice(nodes=1, parallelism="dep") for role in ("prefill", "decode")},
    )
    prefill, decode = (launch.argv for launch in found.launches)
    assert "--data-parallel-size" not in prefill
    assert "--enable-expert-parallel" in prefill
    assert prefill[prefill.index("--tensor-parallel-size") + 1] == "4"
    assert decode[decode.index("--data-parallel-size") + 1] == "4"


def test_a_preset_and_context_parallelism_stand_before_the_features(extended: Catalogue) -> None:
    """The group of the page's advanced options: row, preset, the operator's words, then features."""
    found = compiled(
        extended,
        hardware="mi355x",
        strategy="single_node_tp",
        nodes=1,
        features=("reasoning",),
        preset="agents",
        dcp=8,
        advanced_args=("--seed", "1"),
    )
    (launch,) = found.launches
    assert launch.argv[launch.argv.index("--decode-context-parallel-size") :][:10] == (
        *("--decode-context-parallel-size", "8", "--dcp-comm-backend", "a2a"),
        *("--max-num-seqs", "48", "--seed", "1", "--reasoning-parser", "acme"),
    )
