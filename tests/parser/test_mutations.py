"""Planted mistakes in commands that are otherwise right: each is told, by the layer that can know."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from kimi_infra.domain.launch import Launch
from tests.parser import commands
from tests.parser.checks import Judge

pytestmark = pytest.mark.parser

NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_producer", "kv_load_failure_policy": "fail"}
TIER = {
    "kv_connector": "SimpleCPUOffloadConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 137438953472, "lazy_offload": False},
}


def transfer(**changes: object) -> tuple[str, str]:
    """Return --kv-transfer-config for NIXL, with keys changed."""
    return "--kv-transfer-config", json.dumps(NIXL | changes)


def both(first: Mapping[str, object], second: Mapping[str, object]) -> tuple[str, str]:
    """Return --kv-transfer-config for two connectors in one."""
    outer = {"kv_connector": "MultiConnector", "kv_role": "kv_both"}
    return "--kv-transfer-config", json.dumps(
        outer | {"kv_connector_extra_config": {"connectors": [first, second]}}
    )


def flag(*tokens: str) -> Callable[[Launch], Launch]:
    """Return the change that gives a flag."""
    return lambda before: commands.with_flag(before, *tokens)


def variable(name: str, value: str) -> Callable[[Launch], Launch]:
    """Return the change that sets a variable."""
    return lambda before: commands.with_env(before, name, value)


SPECULATION = '{"method":"dspark","model":"org/draft","num_speculative_tokens":7}'
MISTAKES = {
    # The ten of the plan.
    "misspelt-flag": (flag("--tensor-paralel-size", "8"), ["arguments: unrecognized arguments"]),
    "bad-moe-backend": (
        flag("--moe-backend", "deep_gem"),
        ["arguments: argument --moe-backend: invalid choice"],
    ),
    "bad-kv-cache-dtype": (
        flag("--kv-cache-dtype", "nvfp8"),
        ["arguments: argument --kv-cache-dtype: invalid choice"],
    ),
    "bad-load-format": (flag("--load-format", "fastsafetensor"), ["registry: --load-format: no load format"]),
    "bad-json": (
        flag("--kv-transfer-config", '{"kv_connector":'),
        ["arguments: argument --kv-transfer-config: 1 validation error"],
    ),
    "unknown-key-in-json": (
        flag(*transfer(kv_rank=0)),
        ["arguments: argument --kv-transfer-config: 1 validation error"],
    ),
    "unknown-role": (
        flag(*transfer(kv_role="kv_sender")),
        ["arguments: argument --kv-transfer-config: 1 validation error"],
    ),
    "tensor-parallel-no-number": (
        flag("--tensor-parallel-size", "eight"),
        ["arguments: argument --tensor-parallel-size/-tp: invalid int value: 'eight'"],
    ),
    "unknown-tool-parser": (
        flag("--tool-call-parser", "kimi_k9"),
        [
            "registry: --tool-call-parser: no tool parser",
            "engine: KeyError: 'invalid tool call parser: kimi_k9",
        ],
    ),
    "unknown-variable": (
        variable("VLLM_ENGINE_READY_TIMEOUT", "3600"),
        ["environment: Unknown vLLM environment variable detected: VLLM_ENGINE_READY_TIMEOUT"],
    ),
    "unknown-connector": (
        flag(*transfer(kv_connector="NixleConnector")),
        ["connector: Unsupported connector type: NixleConnector"],
    ),
    "headless-with-a-value": (
        flag("--headless", "true"),
        ["arguments: unrecognized arguments: true"],
    ),
    # What the parser alone would let pass.
    "shortened-flag": (
        flag("--enable-expert", "--trust-remote-code"),
        ["registry: --enable-expert is short for"],
    ),
    "unknown-reasoning-parser": (
        flag("--reasoning-parser", "kimi"),
        ["registry: --reasoning-parser: no reasoning parser"],
    ),
    "tools-without-a-parser": (
        lambda before: commands.without_flag(before, "--tool-call-parser"),
        ["serve: TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser"],
    ),
    "bad-value-of-a-variable": (
        variable("VLLM_SSM_CONV_STATE_LAYOUT", "ds"),
        ["environment: VLLM_SSM_CONV_STATE_LAYOUT: Invalid value 'ds'"],
    ),
    "unknown-inner-connector": (
        flag(*both(NIXL, {**TIER, "kv_connector": "SimpleOffloadConnector"})),
        ["connector: Unsupported connector type: SimpleOffloadConnector"],
    ),
    "unknown-key-in-an-inner-connector": (
        flag(*both({**NIXL, "kv_ip": "192.0.2.1"}, TIER)),
        ["connector: 1 validation error for KVTransferConfig"],
    ),
    "misspelt-key-that-is-ignored": (
        flag(*both(NIXL, {**TIER, "kv_connector_extra_config": {"cpu_bytes_to_use_per_gpu": 1}})),
        ["registry: SimpleCPUOffloadConnector reads no cpu_bytes_to_use_per_gpu"],
    ),
    "unknown-key-of-attention": (
        flag("--attention-config", '{"index_kv_dtype":"mxfp4"}'),
        ["arguments: argument --attention-config"],
    ),
    "unknown-index-dtype": (
        flag("--attention-config", '{"indexer_kv_dtype":"mxfp8"}'),
        ["arguments: argument --attention-config"],
    ),
    "unknown-key-of-speculation": (
        flag("--speculative-config", SPECULATION.replace("num_speculative", "num_draft")),
        ["speculation: num_draft_tokens: no field of SpeculativeConfig"],
    ),
    "unknown-method-of-speculation": (
        flag("--speculative-config", SPECULATION.replace("dspark", "dsparks")),
        ["speculation: method: Input should be"],
    ),
    "bad-graph-mode": (
        flag("--compilation-config", '{"cudagraph_mode":"FULL_DECODE"}'),
        ["arguments: KeyError: 'FULL_DECODE'"],
    ),
    "context-parallel-no-divisor": (
        flag("--decode-context-parallel-size", "3"),
        ["engine: 1 validation error for ParallelConfig"],
    ),
    "unknown-attention-backend": (
        flag("--attention-backend", "FLASHMLA_DENSE"),
        ["engine: Unknown attention backend: 'FLASHMLA_DENSE'"],
    ),
    "more-nodes-than-divide-the-world": (
        flag("--nnodes", "3"),
        ["engine: Invalid data-parallel launch options"],
    ),
    "rank-that-is-no-node": (flag("--node-rank", "2"), ["engine: Invalid data-parallel launch options"]),
    "placeholder-of-nobody": (flag("--master-addr", "$MASTER"), ["placeholder: $MASTER is not a value"]),
    "value-still-open": (
        flag("--kv-cache-dtype", "<operator: the dtype; ask the publisher>"),
        ["placeholder: <operator", "arguments: argument --kv-cache-dtype: invalid choice"],
    ),
}


@pytest.mark.parametrize(("change", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_planted_mistake_is_told(judge: Judge, change: Callable[[Launch], Launch], told: list[str]) -> None:
    """A mistake in the page's own command is told by exactly the layers that see it."""
    complaints = judge.check_launch(change(commands.head()))
    assert len(complaints) == len(told), complaints
    assert [said[: len(start)] for said, start in zip(complaints, told, strict=True)] == told


def test_what_is_no_mistake(judge: Judge) -> None:
    """What the mistakes are planted in is right: the page's own commands, and options beside them."""
    right = [
        commands.with_flag(commands.head(), *transfer()),
        commands.with_flag(commands.head(), *both(NIXL, TIER)),
        commands.with_flag(commands.head(), "--attention-config", '{"indexer_kv_dtype":"mxfp4"}'),
        commands.with_flag(commands.head(), "--speculative-config", SPECULATION),
        commands.with_flag(commands.head(), "--compilation-config", '{"cudagraph_mode":"FULL_DECODE_ONLY"}'),
        commands.with_env(commands.head(), "VLLM_SSM_CONV_STATE_LAYOUT", "DS"),
    ]
    assert judge.check_cell([commands.head(), commands.worker()]) == []
    assert [judge.check_launch(launch) for launch in right] == [[]] * len(right)


def test_the_worker_of_an_unknown_parser_is_told_by_the_registry_alone(judge: Judge) -> None:
    """On nodes without an API vLLM checks no parser: without the registry a worker's would pass."""
    wrong = commands.with_flag(commands.worker(), "--tool-call-parser", "kimi_k9")
    assert judge.check_launch(wrong) == ["registry: --tool-call-parser: no tool parser is called kimi_k9"]
