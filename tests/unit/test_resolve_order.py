"""The public format's merge order, on recipes written for the test in that format."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import EnvEntry, Launch
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Word
from kimi_infra.planning import compose, merge

pytestmark = pytest.mark.compiler

HERE = Provenance(origin=Origin.OURS, source="test")
TAXONOMY = {
    "hardware_profiles": {
        "gb300": {"brand": "NVIDIA", "generation": "blackwell", "gpu_count": 4, "vram_gb": 1152},
        "h200": {"brand": "NVIDIA", "generation": "hopper", "gpu_count": 8, "vram_gb": 1128},
        "mi355x": {"brand": "AMD", "generation": "amd", "gpu_count": 8, "vram_gb": 2304},
    }
}
STRATEGIES: dict[str, dict[str, object]] = {
    "single_node_tp": {"deploy_type": "single_node"},
    "multi_node_tp": {"deploy_type": "multi_node", "env": {"GLOO": "$IFACE_NAME", "NCCL": "$IFACE_NAME"}},
}
RECIPE: dict[str, object] = {
    "meta": {"title": "Example", "tasks": ["text"]},
    "model": {"model_id": "org/example", "base_args": ["--base", "--repeated", "base"]},
    "variants": {"default": {"precision": "bf16", "vram_minimum_gb": 2000}},
    "compatible_strategies": ["single_node_tp", "multi_node_tp"],
}


def catalogue(root: pathlib.Path, **changes: object) -> pathlib.Path:
    """Write a catalogue of one plain public recipe."""
    files = {"taxonomy": TAXONOMY, "models/org/example": {**RECIPE, **changes}}
    files |= {f"strategies/{name}": {"name": name, **rest} for name, rest in STRATEGIES.items()}
    for name, content in files.items():
        file = root / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return root


def launch(root: pathlib.Path, choice: dict[str, object] | None = None, **changes: object) -> Launch:
    """Resolve the example and return its last rank."""
    default = {"hardware": "gb300", "strategy": "multi_node_tp", "nodes": 2, "features": None}
    read = recipes.read_catalogue(catalogue(root, **changes))
    chosen = Choice(model="org/example", **{**default, **(choice or {})})  # type: ignore[arg-type]
    return compose.compose(read, chosen, strict=False).launches[-1]


def words(text: str) -> tuple[Word, ...]:
    """Split a test's command line; ``''`` is an empty word."""
    return tuple(Word(text=word.replace("''", ""), provenance=HERE) for word in text.split())


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("--a 1 --b --a 2", "--b --a 2"),  # the last one stays, at its own place
        ("--a=1 --a 1 -a 1", "--a=1 --a 1 -a 1"),  # three spellings are three flags
        ("--enable-x --no-enable-x", "--enable-x --no-enable-x"),
        ("--a -1 --a 2", "-1 --a 2"),  # a negative number counts as a flag
        ("--a 1 2 --a 3", "2 --a 3"),  # a second value is loose and stays
        ("x x --a", "x x --a"),
        ("--a '' 1 ''", "--a 1"),  # empty words go first
        ("", ""),
    ],
)
def test_repeated_flags(given: str, kept: str) -> None:
    """Of a repeated flag the last occurrence stays with its value."""
    merged = merge.flags(words(given))
    assert " ".join(token for flag in merged.kept for token in flag.tokens) == kept


def test_repeated_variables() -> None:
    """A later value wins at the first one's place."""
    entries = [EnvEntry(name=name, value=value, provenance=HERE) for name, value in ("A1", "B2", "A3")]
    merged = merge.env(entries)
    assert [(entry.name, entry.value) for entry in merged.kept] == [("A", "3"), ("B", "2")]
    assert [(entry.name, entry.value) for entry in merged.replaced] == [("A", "1")]


def test_every_group_stands_in_the_public_order(tmp_path: pathlib.Path) -> None:
    """Base, variant, exact hardware, strategy, parallel, override, hardware, features; env alike."""
    block = {"extra_args": ["--hw"], "extra_env": {"HW": "1", "NCCL": "changed"}}
    result = launch(
        tmp_path,
        model={**RECIPE["model"], "base_env": {"BASE": "1", "ZERO": 0}},  # type: ignore[dict-item]
        variants={
            "default": {
                "precision": "bf16",
                "extra_args": ["--variant"],
                "extra_env": {"VARIANT": "1"},
                "hardware_overrides": {
                    "gb300": {"extra_args": ["--exact"], "extra_env": {"EXACT": "1"}},
                    "blackwell": {"extra_args": ["--variant-hw"]},
                },
            }
        },
        strategy_overrides={
            "multi_node_tp": {
                "extra_args": ["--override"],
                "vllm_args": ["--repeated", "override"],
                "env": {"OVERRIDE": "1"},
                "extra_env": {"EXTRA": "1"},
                "hardware_overrides": {"gb300": {"extra_args": ["--strategy-exact"]}},
            }
        },
        hardware_overrides={"blackwell": block, "nvidia": {"extra_args": ["--never"]}},
        features={"second": {"args": ["--f2"]}, "first": {"args": ["--f1"]}, "off": {"args": ["--off"]}},
        opt_in_features=["off"],
    )
    assert " ".join(result.args) == (
        "--base --variant --exact --tensor-parallel-size 8 --nnodes 2 --node-rank 1 --master-addr $HEAD_IP "
        "--headless --override --repeated override --hw --variant-hw --strategy-exact --f2 --f1"
    )
    assert [f"{entry.name}={entry.value}" for entry in result.env] == [
        *("BASE=1", "ZERO=0", "VARIANT=1", "EXACT=1", "GLOO=$IFACE_NAME", "NCCL=changed"),
        *("OVERRIDE=1", "EXTRA=1", "HW=1"),
    ]


def test_a_strategy_s_hardware_block_ousts_the_others(tmp_path: pathlib.Path) -> None:
    """Even an empty block of the strategy drops the recipe's, arguments and environment both."""
    result = launch(
        tmp_path,
        hardware_overrides={"blackwell": {"extra_args": ["--hw"], "extra_env": {"HW": "1"}}},
        strategy_overrides={"multi_node_tp": {"hardware_overrides": {"nvidia": {}}}},
    )
    assert "--hw" not in result.args
    assert "HW" not in {entry.name for entry in result.env}


def test_nvidia_counts_where_the_generation_has_no_block(tmp_path: pathlib.Path) -> None:
    """``nvidia`` stands in for a missing generation, on that brand only."""
    overrides = {"nvidia": {"extra_args": ["--nv"]}, "blackwell": {"extra_args": ["--bw"]}}
    single = {"strategy": "single_node_tp", "nodes": 1}
    for hardware, expected in (("gb300", "--bw"), ("h200", "--nv"), ("mi355x", None)):
        result = launch(tmp_path, {**single, "hardware": hardware}, hardware_overrides=overrides)
        assert {"--bw", "--nv"} & set(result.args) == ({expected} if expected else set())


def test_features_come_in_the_order_chosen(tmp_path: pathlib.Path) -> None:
    """A chosen list is emitted as written; on its hardware an override replaces a feature's arguments."""
    features = {
        "a": {"args": ["--a"], "hardware_overrides": {"blackwell": {"args": ["--a-bw"]}}},
        "b": {"args": ["--b"], "strategies": ["multi_node_tp"]},
    }
    assert launch(tmp_path, {"features": ("b", "a")}, features=features).args[-2:] == ("--b", "--a-bw")
    assert launch(tmp_path, {"features": ()}, features=features).args[-1] == "--headless"
    single = {"strategy": "single_node_tp", "nodes": 1}
    assert launch(tmp_path, single, features=features).args[-1] == "--a-bw"  # b is left out by default only


@pytest.mark.parametrize(
    ("hardware", "vram", "size"),
    [("gb300", 2000, "4"), ("gb300", 288, "1"), ("gb300", 289, "4"), ("mi355x", 0, "8")],
)
def test_one_node_takes_one_gpu_or_all(tmp_path: pathlib.Path, hardware: str, vram: int, size: str) -> None:
    """A variant that fits one GPU gets one, any other all of the node; without a size all of it, too."""
    variants = {"default": {"precision": "bf16", "vram_minimum_gb": vram}}
    choice = {"hardware": hardware, "strategy": "single_node_tp", "nodes": 1}
    assert launch(tmp_path, choice, variants=variants).args[-2:] == ("--tensor-parallel-size", size)


@pytest.mark.parametrize(
    ("image", "nightly", "hardware", "expected"),
    [
        ("org/x:1", False, "gb300", "org/x:1"),
        ("org/x:1", False, "mi355x", "vllm/vllm-openai-rocm:latest"),  # a plain text is NVIDIA's
        ({"amd": "org/amd:1"}, True, "gb300", "vllm/vllm-openai:nightly"),
        ({"nvidia": {"cu129": "org/x:129", "cu130": "org/x:130"}}, False, "gb300", "org/x:130"),
        ({"cu129": "org/x:129", "cu130": "org/x:130"}, False, "gb300", "org/x:130"),
    ],
)
def test_images(tmp_path: pathlib.Path, image: object, nightly: bool, hardware: str, expected: str) -> None:
    """All public spellings of ``docker_image`` lead to one image per brand."""
    model = {"model_id": "org/example", "docker_image": image, "nightly_required": nightly}
    choice = {"hardware": hardware, "strategy": "single_node_tp", "nodes": 1}
    assert launch(tmp_path, choice, model=model).image == expected


def test_the_worked_example_of_the_predecessor(tmp_path: pathlib.Path) -> None:
    """Kimi-K3 on two GB300 trays: a recipe of other values renders by the same rules."""
    attention = '{"use_prefill_query_quantization":true,"mla_prefill_backend":"flashinfer"}'
    hardware_args = ["--load-format", "fastsafetensors", "--no-enable-flashinfer-autotune"]
    hardware_args += ["--max-model-len", "1048576", "--kv-cache-dtype", "fp8"]
    hardware_args += ["--attention-config", attention, "--enable-prefix-caching"]
    base_args = ["--trust-remote-code", "--gpu-memory-utilization", "0.95"]
    result = launch(
        tmp_path,
        model={"model_id": "moonshotai/Kimi-K3", "base_args": base_args},
        hardware_overrides={"blackwell": {"extra_args": hardware_args, "extra_env": {"TIMEOUT": "3600"}}},
        features={
            "tool_calling": {"args": ["--enable-auto-tool-choice", "--tool-call-parser", "kimi_k3"]},
            "reasoning": {"args": ["--reasoning-parser", "kimi_k3"]},
        },
    )
    assert " ".join((result.model_id, *result.args)) == (
        "moonshotai/Kimi-K3 --trust-remote-code --gpu-memory-utilization 0.95 --tensor-parallel-size 8 "
        "--nnodes 2 --node-rank 1 --master-addr $HEAD_IP --headless --load-format fastsafetensors "
        "--no-enable-flashinfer-autotune --max-model-len 1048576 --kv-cache-dtype fp8 "
        f"--attention-config {attention} --enable-prefix-caching --enable-auto-tool-choice "
        "--tool-call-parser kimi_k3 --reasoning-parser kimi_k3"
    )
    assert {flag.provenance.origin for flag in result.flags} == {Origin.OPERATOR, Origin.DERIVED}
