"""What can be seen in the compiled commands only."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.recipe import Settings, StrategyOverride
from kimi_infra.errors import SpecError
from kimi_infra.planning import compose, presets, refusals, resolve
from tests.unit import test_refusals_example as example
from tests.unit.test_refusals_example import POOLS, choice, plain, words

pytestmark = pytest.mark.compiler

CLUSTER: dict[str, Any] = {"hardware": "gb300", "strategy": "pd_cluster", "nodes": 6, "pools": POOLS}


def late(asked: Choice, **recipe: Any) -> list[str]:
    """Return what is refused once the choice is compiled, although nothing was before."""
    catalogue = plain(**recipe)
    laid = presets.expanded(catalogue, asked)
    assert refusals.faults(catalogue, laid) == ()
    return [
        str(fault) for fault in refusals.after(catalogue, laid, compose.compose(catalogue, laid, strict=True))
    ]


def connectors(found: Resolution, role: str) -> list[str]:
    """Return the connector words of a role's first node."""
    launch = next(it for it in found.launches if it.role.value == role)
    return [flag.tokens[1] for flag in launch.flags if flag.name == "--kv-transfer-config"]


def test_a_tier_without_prefixes_is_refused() -> None:
    """The engine would merely warn and switch it off; the refusal names both, and where the flag is from."""
    asked = choice("plain", kv_offload="simple", advanced_args=("--no-enable-prefix-caching",))
    assert late(asked) == [
        (
            "kv_offload: vLLM switches the KV tier SimpleCPUOffloadConnector off where "
            "--no-enable-prefix-caching stands in the same command, as it does for head nodes "
            "(operator: advanced_args) (got simple); leave kv_offload out, or --no-enable-prefix-caching"
        )
    ]
    assert late(dataclasses.replace(asked, kv_offload=None)) == []
    assert late(dataclasses.replace(asked, advanced_args=())) == []
    with pytest.raises(SpecError, match="switches the KV tier"):
        resolve.resolve(example.CATALOGUE, asked)


def test_the_tier_of_the_prefill_pool_does_not_mind_the_decode_pool() -> None:
    """Decode runs without prefixes and without the tier; prefill has both."""
    found = resolve.resolve(example.CATALOGUE, choice(**CLUSTER, kv_offload="simple"))
    decode = [launch for launch in found.launches if launch.role.value == "decode"]
    assert all("--no-enable-prefix-caching" in launch.args for launch in decode)
    assert connectors(found, "decode") == [example.NIXL]
    (both,) = connectors(found, "prefill")
    children = json.loads(both)["kv_connector_extra_config"]["connectors"]
    assert [child["kv_connector"] for child in children] == ["NixlConnector", "SimpleCPUOffloadConnector"]


def test_a_tier_within_a_multi_connector_is_seen() -> None:
    """The tier is found among a MultiConnector's children, on each role that has it, once."""
    cut = {"pd_cluster": StrategyOverride(hardware_overrides={"gb300": _off()})}
    asked = choice("plain", **CLUSTER, variant="small", kv_offload="simple")
    (fault,) = late(asked, strategy_overrides=cut)
    assert "as it does for prefill nodes (ours: test)" in fault


@pytest.mark.parametrize(
    ("changes", "recipe", "fault"),
    [
        (
            {"advanced_args": ("--no-enable-x",)},
            {"base": "--enable-x"},
            (
                "advanced_args: --enable-x and --no-enable-x set one option in two ways: the second is not "
                "seen "
                "as a repetition of the first (got --no-enable-x); "
                "leave --no-enable-x out, or write it as --enable-x"
            ),
        ),
        (
            {"advanced_args": ("--max_num_seqs=9",)},
            {"base": "--max-num-seqs 8"},
            (
                "advanced_args: --max-num-seqs 8 and --max_num_seqs=9 set one option in two ways: the "
                "second is "
                "not seen as a repetition of the first (got --max_num_seqs=9); "
                "leave --max_num_seqs=9 out, or write it as --max-num-seqs"
            ),
        ),
        (
            {"advanced_args": ("--attention-config.backend", "X")},  # vLLM appends it as a JSON of its own
            {"base": "--attention-config {}"},
            (
                "advanced_args: --attention-config {} and --attention-config.backend X set one option in two "
                "ways: the second is not seen as a repetition of the first (got --attention-config.backend "
                "X); "
                "leave --attention-config.backend out, or write it as --attention-config"
            ),
        ),
        (
            {},
            {"base": "-tp 4"},
            (
                "model: -tp 4 and --tensor-parallel-size 8 set one option in two ways: the second is not "
                "seen as "
                "a repetition of the first (got --tensor-parallel-size 8); keep one of them in the recipe"
            ),
        ),
    ],
)
def test_two_spellings_that_contradict(changes: dict[str, Any], recipe: dict[str, str], fault: str) -> None:
    """The public rules take them for two options, and vLLM takes one of them."""
    base = Settings(args=words(recipe["base"]))
    assert late(choice("plain", **changes), base=base) == [fault]


@pytest.mark.parametrize(
    ("base", "added"),
    [
        ("--max-num-seqs 8", ("--max_num_seqs=8",)),  # the same said twice
        ("-ac.backend X", ("-ac.other", "Y")),  # two keys of one object
        ("--enable-x", ("--no-enable-y",)),
        ("x y", ("--own", "x", "x")),  # words that are no flags
        ("--own x x", ("--own=x",)),
        ("--decode-context-parallel-size many", ()),  # no number: vLLM says so itself
    ],
)
def test_spellings_that_agree(base: str, added: tuple[str, ...]) -> None:
    """What does not contradict is not refused."""
    assert late(choice("plain", advanced_args=added), base=Settings(args=words(base))) == []


@pytest.mark.parametrize(
    ("base", "added", "whole"),
    [
        ("--load-format x", ("--load-form", "y"), "--load-format"),
        ("--load-format x", ("--load_f=y",), "--load-format"),
        ("--kernels", ("--no-ker",), "--kernels"),
        ("-ac.backend X", ("--attention-conf.backend", "Y"), "--attention-config"),
        ("x", ("--max-num-se", "8", "--max-num-seqs", "9"), "--max-num-seqs"),  # another one of his own
    ],
)
def test_a_beginning_of_a_flag_in_the_command(base: str, added: tuple[str, ...], whole: str) -> None:
    """VLLM takes it for the whole flag, the public rules do not: two of them would stand in the command."""
    told = (
        f"this is a mere beginning of {whole}, for which vLLM may take it "
        f"(got {added[0].partition('=')[0]}); spell the flag out"
    )
    one = Settings(args=words(base))
    assert late(choice("plain", advanced_args=added), base=one) == [f"advanced_args: {told}"]


@pytest.mark.parametrize(
    ("base", "own"),
    [
        ("--tokenizer-mode slow", "--tokenizer"),
        ("--kv-cache-dtype-skip-layers 1", "--kv-cache-dtype"),
        ("--reasoning-parser-plugin x", "--reasoning_parser=y"),
    ],
)
def test_a_whole_flag_that_begins_another(base: str, own: str) -> None:
    """It is a flag of its own, and the recipe's stays what it is."""
    assert late(choice("plain", advanced_args=(own, "x")), base=Settings(args=words(base))) == []


def test_context_parallelism_must_divide_each_pool() -> None:
    """A decode pool of TP1 takes no DCP; the prefill pool at TP8 would."""
    asked = choice("plain", **{**CLUSTER, "variant": "small"}, dcp=8)
    one = {"pd_cluster": StrategyOverride(roles=example.DESCRIBED.strategy_overrides["pd_cluster"].roles)}
    assert late(asked, strategy_overrides=one) == [
        (
            "dcp: dcp 8 does not divide the tensor-parallel size 1 of decode nodes (got 8); "
            "leave dcp out, or choose a strategy whose TP it divides"
        )
    ]


def test_context_parallelism_of_a_feature_must_divide_too() -> None:
    """A feature that gives the flag by itself is held to the group as well; the choice's own was before."""
    base = Settings(args=words("--decode-context-parallel-size 8"))
    asked = choice("plain", variant="small", hardware="gb300")
    assert late(asked, base=base) == [
        (
            "dcp: dcp 8 does not divide the tensor-parallel size 4 of head nodes (got 8); "
            "leave dcp out, or choose a strategy whose TP it divides"
        )
    ]
    refused = resolve.as_published(example.CATALOGUE, dataclasses.replace(asked, dcp=8))
    assert [fault.where for fault in refused.warnings] == ["dcp"]


@pytest.mark.parametrize("offload", [None, "simple"])
@pytest.mark.parametrize(
    "changes", [{}, {"strategy": "single_node_tep"}, CLUSTER], ids=["tp", "tep", "cluster"]
)
def test_no_command_has_two_connectors(changes: dict[str, Any], offload: str | None) -> None:
    """Connectors are composed into one word, so that none can drop another."""
    found = resolve.resolve(example.CATALOGUE, choice(**changes, kv_offload=offload))
    for launch in found.launches:
        names = [flag.name.partition("=")[0] for flag in launch.flags]
        assert names.count("--kv-transfer-config") <= 1
        assert names.count("--kv-transfer-config") == 1 or (offload is None and not changes.get("pools"))


def _off() -> Settings:
    return Settings(args=words("--no-enable-prefix-caching"))
