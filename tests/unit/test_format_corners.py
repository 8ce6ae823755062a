"""Corners of the public rules in which two readings of the format differ."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Launch
from kimi_infra.errors import SpecError
from kimi_infra.planning import resolve
from tests.unit import test_recipe_faults as fixture
from tests.unit.test_recipe_as_published import change

pytestmark = pytest.mark.compiler

GLACIER = fixture.GLACIER


def launch(folder: pathlib.Path, *steps: str | int, value: Any, **chosen: Any) -> Launch:
    """Read the fixture strictly with one value changed, and compile a choice as published."""
    root = fixture.catalogue(folder, f"models/{GLACIER}", change(*steps, value=value))
    base: dict[str, Any] = {"hardware": "b300", "strategy": "single_node_tp", "nodes": 1, "features": ()}
    choice = Choice(model=GLACIER, **(base | chosen))
    return resolve.as_published(recipes.read_catalogue(root), choice).launches[0]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({}, ("--plain", "1")),
        ({"args": []}, ()),
        ({"args": ["--replaced"]}, ("--replaced",)),
    ],
)
def test_a_feature_s_block_without_arguments_keeps_the_plain_ones(
    tmp_path: pathlib.Path, block: dict[str, Any], words: tuple[str, ...]
) -> None:
    """An empty list of arguments replaces, no list does not; either hides the block of the brand."""
    value = {
        "args": ["--plain", "1"],
        "hardware_overrides": {"blackwell": block, "nvidia": {"args": ["--brand"]}},
    }
    found = launch(tmp_path, "features", "reasoning", value=value, features=("reasoning",))
    assert found.args[-len(words) or len(found.args) :] == words
    assert "--brand" not in found.args
    assert ("--plain" in found.args) == ("--plain" in words)


@pytest.mark.parametrize(
    ("block", "words"), [({}, ("--plain",)), ({"args": []}, ()), ({"args": ["-x"]}, ("-x",))]
)
def test_a_mode_s_block_without_arguments_keeps_the_plain_ones(
    tmp_path: pathlib.Path, block: dict[str, Any], words: tuple[str, ...]
) -> None:
    """The same within a mode, whose map ends with the default."""
    mode = {"args": ["--plain"], "hardware_overrides": {"b300": block, "default": {"args": ["--default"]}}}
    found = launch(tmp_path, "features", "reasoning", value={"modes": {"m": mode}}, features=("reasoning",))
    assert [word for word in found.args if word in {"--plain", "--default", "-x"}] == list(words)


def test_a_feature_without_any_mode_left_says_nothing(tmp_path: pathlib.Path) -> None:
    """The key alone makes it a pick-one feature."""
    value = {"args": ["--plain"], "modes": {}}
    found = launch(tmp_path, "features", "reasoning", value=value, features=("reasoning",))
    assert "--plain" not in found.args


def test_a_store_as_strategy_takes_no_option() -> None:
    """The page leaves the option's words and variables out then; a mere unknown strategy takes them."""
    catalogue = recipes.read_catalogue(fixture.ROOT)
    found = {}
    for strategy in ("kv_store_distributed_mooncake", "unknown"):
        choice = Choice(
            model=GLACIER, hardware="b300", strategy=strategy, nodes=1, features=(), kv_offload="tiered"
        )
        (only,) = resolve.as_published(catalogue, choice).launches
        found[strategy] = (
            "--kv-transfer-config" in only.args,
            "PYTHONHASHSEED" in {it.name for it in only.env},
        )
    assert found == {"kv_store_distributed_mooncake": (False, False), "unknown": (True, True)}


def test_an_unknown_variant_has_the_default_modes_of_the_default_one(tmp_path: pathlib.Path) -> None:
    """They switch an opt-in feature on, as for the variant that the name falls back to."""
    at = ("variants", "default", "default_modes")
    given = {"value": {"spec_decoding": "draft"}, "features": None}
    default = launch(tmp_path / "1", *at, **given)
    unknown = launch(tmp_path / "2", *at, **given, variant="int2")
    assert "--speculative-config" in default.args
    assert unknown.args == default.args


def test_beside_a_brand_cuda_builds_are_nobody_s(tmp_path: pathlib.Path) -> None:
    """A map that names any brand is one of brands; its builds belong within ``nvidia``."""
    at = ("model", "docker_image")
    mixed = launch(tmp_path / "1", *at, value={"amd": "acme/amd", "cu130": "acme/cu130"})
    assert mixed.image == "vllm/vllm-openai:nightly"
    assert launch(tmp_path / "2", *at, value={"cu130": "acme/cu130"}).image == "acme/cu130"
    within = launch(tmp_path / "3", *at, value={"nvidia": {"cu129": "acme/cu129"}, "cu130": "acme/cu130"})
    assert within.image == "acme/cu129"


@pytest.mark.parametrize("pools", [{}, {"prefill": {"args": []}}])
def test_a_store_that_names_pools_gives_both_its_variables(
    tmp_path: pathlib.Path, pools: dict[str, Any]
) -> None:
    """The key decides, not what it holds."""
    store = "kv_store_centralized_mooncake"
    root = fixture.catalogue(tmp_path, f"kv_store/{store}", change("pd", value=pools))
    choice = Choice(
        model=GLACIER, hardware="gb300", strategy="pd_cluster", nodes=2, features=(), kv_offload=store
    )
    found = resolve.as_published(recipes.read_catalogue(root), choice)
    for each in found.launches:
        assert "MOONCAKE_CONFIG_PATH" in {entry.name for entry in each.env}


def test_floors_by_mode_and_badges_of_modes_are_legal(tmp_path: pathlib.Path) -> None:
    """Strategies may be named by their mode, also within hardware; a mode may be verified on hardware."""
    floors = {"tp": 8, "dep": 16, "gb300": {"tep": 12}}
    launch(tmp_path / "1", "strategy_min_gpus", value=floors)
    at = ("features", "spec_decoding", "modes", "draft", "hardware")
    launch(tmp_path / "2", *at, value={"hopper": "unsupported", "b300": "verified"})
    with pytest.raises(SpecError, match=r"strategy_min_gpus\.tpe: no such strategy or hardware"):
        launch(tmp_path / "3", "strategy_min_gpus", value={"tpe": 8})
    with pytest.raises(SpecError, match="no such mark of a mode is known"):
        launch(tmp_path / "4", *at, value={"b300": "verifed"})
