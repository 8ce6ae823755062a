"""The catalogue on which refusals are tried, and choices of it against which nothing speaks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice, Instances, PoolChoice
from kimi_infra.domain.launch import Companion
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import (
    Catalogue,
    ContextParallel,
    DeployType,
    Feature,
    KvOption,
    KvStore,
    Layout,
    Mode,
    Preset,
    Recipe,
    RoleOverride,
    RoleSettings,
    Rule,
    Settings,
    Strategy,
    StrategyOverride,
    Terms,
    Value,
    ValueKind,
    Variant,
    Word,
    Words,
)
from kimi_infra.planning import refusals, resolve

pytestmark = pytest.mark.compiler

HERE = Provenance(origin=Origin.OURS, source="test")
HELPER = Companion(label="helper", command="helper serve")
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
TIER = '{"kv_connector":"SimpleCPUOffloadConnector","kv_role":"kv_both"}'


def words(text: str) -> Words:
    """Split a test's command line."""
    return tuple(Word(text=word, provenance=HERE) for word in text.split())


def hardware(key: str, kind: str, gpus: int, vram_gb: int | None = None, **more: Any) -> HardwareProfile:
    """Build a profile; ``kind`` is brand and generation."""
    brand, generation = kind.split()
    return HardwareProfile(
        key=key, title=key, brand=brand, generation=generation, gpus_per_node=gpus, vram_gb=vram_gb, **more
    )


def _strategy(name: str, deploy: str) -> Strategy:
    flag = "--data-parallel-size" if name.endswith("_dep") else "--tensor-parallel-size"
    return Strategy(name=name, title=name, deploy_type=DeployType(deploy), parallel_flag=flag)


def rule(when: dict[str, str], because: str, **side: dict[str, str]) -> Rule:
    """Build a rule; words are separated by spaces."""
    terms = {
        name: Terms(meets={part: tuple(text.split()) for part, text in meets.items()})
        for name, meets in {"when": when, **side}.items()
    }
    return Rule(when=terms["when"], needs=terms.get("needs"), excludes=terms.get("excludes"), because=because)


PROFILES = (
    hardware("b300", "NVIDIA blackwell", 8, 2144),
    hardware("gb300", "NVIDIA blackwell", 4, 1152),
    hardware("h200", "NVIDIA hopper", 8, 1128),
    hardware("mi355x", "AMD amd", 8, 2304),
    hardware("ppu", "PPU ppu", 16, docker_flags=("--device=/dev/ppu",)),
    hardware("vr200", "NVIDIA rubin", 4, preview=True),
    hardware("station", "NVIDIA blackwell", 1, 280, scalable=False),
    hardware("secret", "NVIDIA blackwell", 8, 2144, restricted=True),
    hardware("npu", "Huawei npu", 8, 512),
)
POOL = Settings(args=words(f"--kv-transfer-config {NIXL}"))
STRATEGIES = (
    *(_strategy(f"single_node_{it}", "single_node") for it in ("tp", "tep", "dep")),
    *(_strategy(f"multi_node_{it}", "multi_node") for it in ("tp", "tep", "dep", "tp_pp")),
    Strategy(
        name="pd_cluster",
        title="pools",
        deploy_type=DeployType.PD_CLUSTER,
        roles={"prefill": RoleSettings(settings=POOL), "decode": RoleSettings(settings=POOL)},
    ),
)
KV_OPTIONS = (
    KvOption(
        name="simple", settings=Settings(args=words(f"--kv-transfer-config {TIER}")), pools=("prefill",)
    ),
    KvOption(name="cache", settings=Settings(), strategies=("single_node_tp",), companion=HELPER),
    KvOption(name="disk", settings=Settings(), requires_opt_in=True, brands=("NVIDIA", "AMD")),
    KvOption(name="everywhere", settings=Settings(), companion=HELPER),
)
KV_STORES = (
    KvStore(
        name="store",
        settings=Settings(args=words("--kv-transfer-config {}")),
        pools={},
        default_instances=2,
        router_policy="cache_aware",
        port=8000,
    ),
)
PLAIN = Recipe(
    key="org/plain",
    model_id="org/plain",
    title="A recipe of the public format",
    tasks=("text",),
    supports_dcp=True,
    features={
        "tools": Feature(args=words("--tools")),
        "draft": Feature(args=words("--draft"), strategies=("single_node_tp", "multi_node_tp")),
        "helped": Feature(args=words("--helped"), companion=HELPER),
        "pick": Feature(
            modes={
                "fast": Mode(args=words("--fast"), unsupported_hardware=frozenset({"amd"})),
                "small": Mode(args=words("--small"), variants=("small",)),
            }
        ),
    },
    opt_in_features=frozenset({"draft", "helped", "pick"}),
    variants={
        "default": Variant(precision="bf16", vram_minimum_gb=1680),
        "small": Variant(precision="nvfp4", vram_minimum_gb=500),
        "rare": Variant(precision="bf16", vram_minimum_gb=500, supported_hardware=("gb300", "h200")),
    },
    strategies=(
        *("single_node_tp", "single_node_tep", "single_node_dep"),
        *("multi_node_tp", "multi_node_tep", "multi_node_dep", "pd_cluster"),
    ),
    kv_offload_support={"everywhere": "unsupported"},
    kv_store_hardware={"store": {"h200": "unsupported"}},
)
DESCRIBED = Recipe(
    key="org/described",
    model_id="org/described",
    title="A recipe whose publisher says what goes together",
    tasks=("text",),
    features={name: Feature(args=words(f"--{name}")) for name in ("tools", "draft", "latency", "packed")},
    opt_in_features=frozenset({"draft", "latency", "packed"}),
    variants={
        "default": Variant(
            vram_minimum_gb=1680, supported_hardware=("b300", "gb300", "vr200", "mi355x", "ppu")
        )
    },
    strategies=("single_node_tp", "single_node_tep", "multi_node_tp", "multi_node_tep", "pd_cluster"),
    strategy_overrides={
        "pd_cluster": StrategyOverride(
            roles={
                "prefill": RoleOverride(parallelism="tep"),
                "decode": RoleOverride(
                    parallelism="dep", tp=1, args=words("--no-enable-prefix-caching --max-num-seqs 8")
                ),
            },
            own_pool_modes={"prefill": ("tep",), "decode": ("dep",)},
        )
    },
    layouts=(
        Layout(strategy="single_node_tp", hardware="b300", nodes=(1,)),
        Layout(strategy="single_node_tep", hardware="b300", nodes=(1,)),
        Layout(
            strategy="single_node_tp",
            hardware="mi355x",
            nodes=(1,),
            note="nobody has run it",
            unless_preset="tuned",
        ),
        Layout(strategy="multi_node_tp", hardware="gb300", nodes=(2,)),
        Layout(strategy="multi_node_tp", hardware="vr200", nodes=(2,), note="neither tuned nor verified"),
        Layout(strategy="multi_node_tep", hardware="ppu", nodes=(2, 4)),
        Layout(strategy="pd_cluster", hardware="gb300", nodes=(6,), pools={"prefill": 2, "decode": 4}),
    ),
    rules=(
        rule({"hardware": "gb300"}, "seed: eight GPUs", needs={"strategy": "multi_node_tp pd_cluster"}),
        rule({"strategy": "pd_cluster"}, "seed: TP8 beside DP16", needs={"hardware": "gb300"}),
        rule({"brand": "PPU"}, "seed: no drafts", excludes={"features": "draft"}),
        rule({"features": "latency"}, "seed: no experts", needs={"strategy": "single_node_tp multi_node_tp"}),
        rule({"features": "packed"}, "seed: its kernels", needs={"brand": "NVIDIA"}),
        rule({"dcp": "8"}, "seed: beside plain TP", needs={"strategy": "single_node_tp multi_node_tp"}),
        rule({"brand": "PPU"}, "vllm: no such group", excludes={"dcp": "8"}),
    ),
    presets={
        "tuned": Preset(
            name="tuned",
            title="Tuned",
            hardware="mi355x",
            strategy="single_node_tp",
            nodes=1,
            features=("draft",),
            dcp=8,
            kv_offload="simple",
            args=(),
            provenance=HERE,
        )
    },
    dcp=ContextParallel(sizes=(8,), args=words("--dcp-comm-backend a2a")),
    values={
        "draft_model": Value(name="draft_model", what="the draft", find="its card"),
        "draft_tokens": Value(name="draft_tokens", what="tokens", find="it", kind=ValueKind.INTEGER),
        "tuned_args": Value(name="tuned_args", what="flags", find="the page", kind=ValueKind.ARGS),
    },
)
CATALOGUE = Catalogue(
    recipes={
        "org/plain": PLAIN,
        "org/described": DESCRIBED,
        "org/omni": Recipe(key="org/omni", model_id="org/omni", title="Omni", tasks=("text", "omni")),
    },
    strategies={it.name: it for it in STRATEGIES},
    profiles={it.key: it for it in PROFILES},
    kv_options={it.name: it for it in KV_OPTIONS},
    kv_stores={it.name: it for it in KV_STORES},
    values={"tier_bytes": Value(name="tier_bytes", what="bytes", find="hosts", kind=ValueKind.INTEGER)},
)
POOLS = {"prefill": PoolChoice(nodes=2), "decode": PoolChoice(nodes=4)}


def choice(model: str = "described", /, **changes: Any) -> Choice:
    """Build a choice of the example that works, with changes."""
    whole = Choice(model=f"org/{model}", hardware="b300", strategy="single_node_tp", nodes=1, features=None)
    return dataclasses.replace(whole, **changes)


def plain(**changes: Any) -> Catalogue:
    """Return the catalogue with the public recipe changed."""
    changed = dataclasses.replace(PLAIN, **changes)
    return dataclasses.replace(CATALOGUE, recipes={**CATALOGUE.recipes, "org/plain": changed})


def told(asked: Choice, catalogue: Catalogue = CATALOGUE) -> list[str]:
    """Return the refusals of a choice, in their order."""
    return [str(fault) for fault in refusals.faults(catalogue, asked)]


@pytest.mark.parametrize(
    "asked",
    [
        choice(),
        choice(strategy="single_node_tep"),
        choice(dcp=8, features=("latency", "packed"), kv_offload="simple"),
        choice(hardware="gb300", strategy="multi_node_tp", nodes=2, dcp=8),
        choice(hardware="gb300", strategy="pd_cluster", nodes=6, pools=POOLS, kv_offload="simple"),
        choice(hardware="vr200", strategy="multi_node_tp", nodes=2, accept_preview=True),
        choice(hardware="ppu", strategy="multi_node_tep", nodes=4),
        choice(hardware="mi355x", preset="tuned", features=("draft",), dcp=8, kv_offload="simple"),
        choice(preset="baseline"),
        choice("plain", dcp=8),
        choice("plain", strategy="multi_node_dep", nodes=2, hardware="h200"),
        choice("plain", variant="small", hardware="gb300", strategy="pd_cluster", nodes=2),
        choice("plain", variant="small", strategy="pd_cluster", nodes=1),  # both pools on one node
        choice("plain", kv_offload="cache", features=("helped", "pick"), feature_modes={"pick": "fast"}),
        choice("plain", kv_offload="store", kv_instances=Instances(current=1)),
    ],
)
def test_nothing_speaks_against_a_good_choice(asked: Choice) -> None:
    """What is described or within the public rules compiles."""
    assert told(asked) == []
    assert resolve.resolve(CATALOGUE, asked).launches
