"""What the pinned wheel knows, as our recipes and plans rely on it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from kimi_infra.planning import footprint
from tests.parser.checks import Judge
from tests.parser.client import Vocabulary
from tests.parser.newer import ENVIRONMENT, UNKNOWN, Unknown

pytestmark = pytest.mark.parser

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
KNOWN = [
    ("tool parser", "kimi_k3"),
    ("reasoning parser", "kimi_k3"),
    ("load format", "fastsafetensors"),
    ("connector", "SimpleCPUOffloadConnector"),
    ("connector", "MultiConnector"),
    ("connector", "NixlConnector"),
    ("offload key", "cpu_bytes_to_use_per_rank"),
    ("offload key", "lazy_offload"),
    ("attention key", "indexer_kv_dtype"),
    ("indexer dtype", "mxfp4"),
    ("speculative method", "dspark"),
    ("speculative key", "draft_sample_method"),
    ("speculative key", "rejection_sample_method"),
    (ENVIRONMENT, "VLLM_ENGINE_READY_TIMEOUT_S"),
    (ENVIRONMENT, "VLLM_SSM_CONV_STATE_LAYOUT"),
    (ENVIRONMENT, "VLLM_NIXL_SIDE_CHANNEL_HOST"),
    (ENVIRONMENT, "VLLM_NIXL_SIDE_CHANNEL_PORT"),
    (ENVIRONMENT, "VLLM_ROCM_USE_AITER"),
    (ENVIRONMENT, "VLLM_ROCM_USE_AITER_MOE_SITUV2"),
    (ENVIRONMENT, "VLLM_USE_BREAKABLE_CUDAGRAPH"),
    ("--moe-backend", "deep_gemm_mega_moe"),
    ("--kv-cache-dtype", "nvfp4"),
    ("--kv-cache-dtype", "nvfp4_ds_mla"),
    ("--dcp-comm-backend", "a2a"),
]
FLAGS = ("--language-model-only", "--headless", "--decode-context-parallel-size", "--additional-config")


def known(vocabulary: Vocabulary, place: str) -> frozenset[str]:
    """The names of a kind, or the choices of an option."""
    if place in vocabulary.names:
        return vocabulary.names[place]
    choices = vocabulary.options[place]
    assert choices is not None, f"{place} takes any text"
    return choices


@pytest.mark.parametrize(("place", "name"), KNOWN, ids=lambda word: word.replace(" ", "-"))
def test_names_of_our_recipes(judge: Judge, place: str, name: str) -> None:
    """Each name stands in one of the wheel's own registries."""
    assert name in known(judge.vocabulary, place)


def test_flags_of_our_recipes(judge: Judge) -> None:
    """Each flag is an option, and none of them takes one value of a list."""
    assert {flag: judge.vocabulary.options.get(flag, "missing") for flag in FLAGS} == dict.fromkeys(FLAGS)


def test_every_registry_is_filled(judge: Judge) -> None:
    """A registry that a new version keeps elsewhere would come out empty and refuse or accept all."""
    sizes = {kind: len(names) for kind, names in judge.vocabulary.names.items()}
    assert [kind for kind, size in sizes.items() if size < 5] == []


def test_the_share_of_memory(judge: Judge) -> None:
    """What an engine takes of an accelerator when no flag says it (vllm/config/cache.py)."""
    assert judge.vocabulary.gpu_memory_utilization == float(footprint.UTILISATION)


def test_the_version_is_the_pinned_one(judge: Judge) -> None:
    """The wheel that is asked is the one that pyproject.toml names."""
    (pinned,) = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["vllm"]
    assert judge.vocabulary.version == pinned.partition("==")[2]


@pytest.mark.parametrize("entry", UNKNOWN, ids=lambda entry: entry.name)
def test_the_named_list_is_still_needed(judge: Judge, entry: Unknown) -> None:
    """An entry that the wheel has learnt must go."""
    assert entry.name not in known(judge.vocabulary, entry.place)
