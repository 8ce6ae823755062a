"""What the fixture catalogue says, written out as domain values."""

from __future__ import annotations

from kimi_infra.domain.launch import Companion
from kimi_infra.domain.recipe import (
    AdvancedOption,
    CacheFacts,
    Constraint,
    ContextParallel,
    Feature,
    HardwareOverride,
    Layout,
    Mode,
    Preset,
    Recipe,
    Reservation,
    RoleOverride,
    Rule,
    Settings,
    StrategyOverride,
    Terms,
    Value,
    ValueKind,
    Variant,
    Words,
)
from tests.unit.recipe_format.spelling import PAGE, env, given, word, words

_BLOCK = "vllm: {} (block)"
_POOLS = "sibling: {} (pools)"


def _overrides(path: str, **lines: str) -> dict[str, Words]:
    return {key: words(f"{path}.hardware_overrides.{key}.args", line) for key, line in lines.items()}


def _block(path: str, line: str = "", by: str = "seed: {} (page)", **variables: str) -> Settings:
    return Settings(args=words(f"{path}.extra_args", line, by), env=env(f"{path}.extra_env", by, **variables))


_SPEC = "features.spec_decoding.modes"
FEATURES = {
    "tool_calling": Feature(
        args=words("features.tool_calling.args", "--enable-auto-tool-choice --tool-call-parser acme")
    ),
    "reasoning": Feature(args=words("features.reasoning.args", "--reasoning-parser acme")),
    "spec_decoding": Feature(
        default_mode="head",
        modes={
            "head": Mode(
                args=words(
                    f"{_SPEC}.head.args", '--speculative-config {"method":"mtp","num_speculative_tokens":3}'
                ),
                variants=("default", "fp8"),
            ),
            "draft": Mode(
                args=words(
                    f"{_SPEC}.draft.args",
                    '--speculative-config {"method":"eagle3","model":"<value:draft_model>",'
                    '"num_speculative_tokens":"<value:draft_tokens>"}',
                ),
                hardware_overrides=_overrides(
                    f"{_SPEC}.draft",
                    b300='--speculative-config {"method":"eagle3","kind":"exact"}',
                    blackwell='--speculative-config {"method":"eagle3","kind":"generation"}',
                    amd='--speculative-config {"method":"eagle3","kind":"brand"}',
                    default='--speculative-config {"method":"eagle3","kind":"default"}',
                ),
                unsupported_hardware=frozenset({"hopper", "mi355x"}),
            ),
            "ngram": Mode(
                args=words(f"{_SPEC}.ngram.args", '--speculative-config {"method":"ngram"}'),
                variants=("nvfp4",),
            ),
        },
    ),
    "text_only": Feature(
        args=words("features.text_only.args", "--language-model-only"),
        strategies=("single_node_tp", "multi_node_tp"),
    ),
    "encoder_parallel": Feature(
        hardware_overrides=_overrides(
            "features.encoder_parallel",
            nvidia="--mm-encoder-attn-backend FLASHINFER",
            amd="--mm-encoder-attn-backend ROCM_AITER_FA",
        )
    ),
    "cascade": Feature(
        args=words("features.cascade.args", "--cascade"),
        companion=Companion(label="Cascade daemon", command="cascaded --port 7000"),
    ),
    "small_cache": Feature(args=words("features.small_cache.args", "--kv-cache-dtype <value:cache_dtype>")),
    "fused_decode": Feature(args=words("features.fused_decode.args", "<value:fused_args>")),
}

_FP8 = "variants.fp8"
VARIANTS = {
    "default": Variant(
        precision="bf16",
        vram_minimum_gb=1500,
        supported_hardware=("b300", "gb300", "h200", "mi355x", "xeon", "m890"),
    ),
    "fp8": Variant(
        precision="fp8",
        vram_minimum_gb=200,
        model_id="acme/Glacier-72B-FP8",
        settings=_block(_FP8, "--kv-cache-dtype fp8", "unknown: {}", ACME_VARIANT="fp8"),
        images={"nvidia": "acme/glacier:fp8"},
        tp={"b300": 2, "hopper": 4, "amd": 8, "default": 1},
        default_modes={"spec_decoding": "draft"},
        hardware_overrides={
            "b300": HardwareOverride(
                settings=_block(
                    f"{_FP8}.hardware_overrides.b300", "--exact-variant", "unknown: {}", ACME_EXACT="b300"
                ),
                image="acme/glacier:fp8-b300",
            ),
            "m890": HardwareOverride(image="<value:ppu_image>"),
            "blackwell": HardwareOverride(
                settings=_block(
                    f"{_FP8}.hardware_overrides.blackwell",
                    "--variant-blackwell",
                    "unknown: {}",
                    ACME_VARIANT_HW="blackwell",
                )
            ),
            "nvidia": HardwareOverride(
                settings=_block(f"{_FP8}.hardware_overrides.nvidia", "--variant-nvidia", "unknown: {}")
            ),
        },
    ),
    "nvfp4": Variant(
        precision="nvfp4",
        vram_minimum_gb=100,
        tp={"default": 2},
        precision_hardware=Constraint(brand="NVIDIA", generation="hopper"),
    ),
}

_MULTI, _PD = "strategy_overrides.multi_node_tp", "strategy_overrides.pd_cluster"
STRATEGY_OVERRIDES = {
    "single_node_tp": StrategyOverride(tp={"gb300": 2, "default": 8}),
    "multi_node_tp": StrategyOverride(
        extra_args=words(f"{_MULTI}.extra_args", "--gpu-memory-utilization 0.90"),
        vllm_args=words(f"{_MULTI}.vllm_args", "--max-num-seqs 64"),
        env=env(f"{_MULTI}.env", ACME_STRATEGY="env"),
        extra_env=env(
            f"{_MULTI}.extra_env", ACME_EXTRA="${ACME_STRATEGY}", TOKEN_PATH="/run/<value:cache_dtype>"
        ),
        hardware_overrides={
            "hopper": _block(f"{_MULTI}.hardware_overrides.hopper", "--only-hopper", ACME_HOPPER="1"),
            "gb300": _block(f"{_MULTI}.hardware_overrides.gb300", "--exact-strategy"),
        },
    ),
    "pd_cluster": StrategyOverride(
        env=env(f"{_PD}.env", _POOLS, VLLM_SSM_CONV_STATE_LAYOUT="DS"),
        hardware_overrides={
            "blackwell": _block(f"{_PD}.hardware_overrides.blackwell", "", _POOLS, UCX_TLS="rc,cuda_copy")
        },
        roles={
            "prefill": RoleOverride(
                parallelism="tep",
                nodes={"gb300": 2, "default": 1},
                args=(
                    *words(f"{_PD}.prefill.extra_args", "--max-num-batched-tokens 16384", _POOLS),
                    *words(
                        f"{_PD}.prefill.vllm_args", "--no-disable-hybrid-kv-cache-manager", "ours: {} (kept)"
                    ),
                ),
                env=env(f"{_PD}.prefill.env", _POOLS, ACME_POOL="prefill"),
                hardware_overrides={
                    "gb300": _block(
                        f"{_PD}.prefill.hardware_overrides.gb300",
                        "--exact-prefill",
                        _POOLS,
                        ACME_POOL_HW="gb300",
                    )
                },
            ),
            "decode": RoleOverride(
                parallelism="dep",
                parallel_flag="--data-parallel-size",
                nodes={"default": 2},
                tp=1,
                args=words(f"{_PD}.decode.vllm_args", "--no-enable-prefix-caching", _POOLS),
            ),
        },
        router_dp=4,
        pool_modes=("tep", "dep"),
        own_pool_modes={"prefill": ("tep",), "decode": ("dep", "tep")},
    ),
}

LAYOUTS = (
    Layout(strategy="single_node_tp", hardware="b300", nodes=(1,)),
    Layout(
        strategy="single_node_tp",
        hardware="mi355x",
        nodes=(1,),
        note="not run by the publisher",
        unless_preset="agents",
    ),
    Layout(strategy="multi_node_tp", hardware="gb300", nodes=(2, 4)),
    Layout(strategy="multi_node_tep", hardware="m890", nodes=(4,), parallelism="tp_dp"),
    Layout(
        strategy="pd_cluster",
        hardware="gb300",
        nodes=(6,),
        pools={"prefill": 2, "decode": 4},
        note="tried once",
    ),
)

RULES = (
    Rule(
        when=Terms(meets={"features": ("spec_decoding",)}),
        needs=None,
        excludes=Terms(meets={"brand": ("PPU", "Google")}),
        because="seed: PPUs run without drafts",
    ),
    Rule(
        when=Terms(meets={"features": ("fused_decode", "small_cache"), "dcp": ("8", "none")}),
        needs=Terms(
            meets={
                "hardware": ("b300", "gb300"),
                "strategy": ("single_node_tp", "multi_node_tp"),
                "variant": ("default",),
            }
        ),
        excludes=None,
        because="vllm: the fused kernels",
    ),
    Rule(
        when=Terms(meets={"preset": ("baseline", "agents"), "kv_offload": ("tiered",)}),
        needs=None,
        excludes=Terms(meets={"dcp": ("2",)}),
        because="ours",
    ),
    Rule(
        when=Terms(meets={"features": ("fused_decode",)}),
        needs=None,
        excludes=Terms(
            meets={"flags": ("--enforce-eager", "--compilation-config.cudagraph_mode=NONE", "FUSED=0")}
        ),
        because="vllm: graphs",
    ),
)

RESERVATIONS = (
    Reservation(
        when=Terms(meets={"brand": ("AMD", "Google"), "kv_offload": ("simple",)}),
        note="nobody has tried the tier there",
    ),
)

PRESETS = {
    "agents": Preset(
        name="agents",
        title="Agents",
        hardware="mi355x",
        strategy="single_node_tp",
        nodes=1,
        features=("spec_decoding",),
        dcp=8,
        kv_offload="simple",
        args=words("x-presets.agents.args", "--max-num-seqs 48"),
        provenance=given(PAGE, "x-presets.agents"),
    ),
    "plain": Preset(
        name="plain",
        title="Plain",
        hardware="b300",
        strategy="single_node_tp",
        nodes=1,
        features=(),
        dcp=None,
        kv_offload=None,
        args=(),
        provenance=given(PAGE, "x-presets.plain"),
    ),
}

VALUES = {
    "draft_model": Value(name="draft_model", what="the draft's repository", find="the model card"),
    "draft_tokens": Value(
        name="draft_tokens", what="tokens that the draft proposes", find="its card", kind=ValueKind.INTEGER
    ),
    "cache_dtype": Value(name="cache_dtype", what="name of the format", find="vLLM's list"),
    "fused_args": Value(
        name="fused_args", what="flags of the fused path", find="the page", kind=ValueKind.ARGS
    ),
    "ppu_image": Value(name="ppu_image", what="image for PPUs", find="the vendor"),
}

CACHE = CacheFacts(
    layers=24,
    latent_bytes={"fp8": 576, "nvfp4": 352},
    index_bytes={"fp8": 132, "mxfp4": 68},
    formats={"small_cache": ("latent", "nvfp4"), "fused_decode": ("index", "mxfp4")},
    state_layers=69,
    state_bytes=None,
    context=1048576,
    weights_bytes=1561000000000,
    provenance={
        name: given("seed: {} (announcement)", f"x-cache.{name}")
        for name in (
            *("layers", "state_layers", "context", "weights_bytes"),
            *("latent_bytes.fp8", "latent_bytes.nvfp4", "index_bytes.fp8"),
            *("formats.small_cache", "formats.fused_decode"),
        )
    }
    | {
        "index_bytes.mxfp4": given("vllm: {} (indexer)", "x-cache.index_bytes.mxfp4"),
        "state_bytes": given("unknown: {}", "x-cache.state_bytes"),
    },
)

GLACIER = Recipe(
    key="acme/Glacier-72B",
    model_id="acme/Glacier-72B",
    title="Glacier 72B",
    tasks=("text", "multimodal"),
    minimum_version="0.31.0",
    images={
        "nvidia": "acme/glacier:cu130",
        "amd": "acme/glacier:rocm",
        "tpu": "acme/glacier:tpu",
        "intel": "acme/glacier:cpu",
    },
    image_origins={
        **{
            f"model.docker_image.{brand}": given(_BLOCK, f"model.docker_image.{brand}")
            for brand in ("nvidia", "amd", "tpu", "intel")
        },
        **{
            f"variants.fp8.{place}": given("unknown: {}", f"variants.fp8.{place}")
            for place in (
                "docker_image.nvidia",
                "hardware_overrides.b300.docker_image",
                "hardware_overrides.m890.docker_image",
            )
        },
    },
    nightly=True,
    base=Settings(
        args=(
            word("model.base_args", "--trust-remote-code", _BLOCK),
            word("model.base_args", "--gpu-memory-utilization", "measured: {}"),
            word("model.base_args", "0.95", _BLOCK),
        ),
        env=(
            *env("model.base_env", _BLOCK, ACME_BASE="1"),
            *env("model.base_env", "derived: {} (half)", ACME_RATIO="0.5"),
        ),
    ),
    supports_dcp=True,
    features=FEATURES,
    opt_in_features=frozenset(
        {"spec_decoding", "text_only", "encoder_parallel", "cascade", "small_cache", "fused_decode"}
    ),
    hardware_opt_in_features={"gb300": frozenset({"reasoning"})},
    variants=VARIANTS,
    strategies=(
        *("single_node_tp", "single_node_tep", "multi_node_tp", "multi_node_tep", "multi_node_dep"),
        "pd_cluster",
    ),
    default_strategy="single_node_tp",
    default_hardware="b300",
    strategy_hardware={
        "multi_node_tp_dp": {
            "m890": "supported",
            "blackwell": "supported",
            "amd": "supported",
            "default": "unsupported",
        },
        "single_node_tep": {"mi355x": "unsupported"},
    },
    strategy_min_gpus={
        "multi_node_tp": 8,
        "multi_node_dep": 16,
        "h200": 32,
        "gb300": {"multi_node_tep": 12, "*": 4},
    },
    hardware_marks={
        "b300": "verified",
        "gb300": "verified",
        "h200": "unsupported",
        "desk": "verified",
        "xeon": "verified",
        "m890": "verified",
    },
    hardware_overrides={
        "blackwell": _block(
            "hardware_overrides.blackwell",
            "--load-format fastsafetensors",
            ACME_HARDWARE="blackwell",
            GLOO_SOCKET_IFNAME="changed",
        ),
        "nvidia": _block("hardware_overrides.nvidia", "--load-format auto"),
        "amd": _block("hardware_overrides.amd", VLLM_ROCM_USE_AITER="1"),
    },
    strategy_overrides=STRATEGY_OVERRIDES,
    kv_offload_support={"tiered": "verified", "simple": "unsupported"},
    kv_store_hardware={"kv_store_centralized_mooncake": {"mi355x": "unsupported"}},
    advanced_options=(
        AdvancedOption(id="eager", label="Eager", args=words("advanced_options.0.args", "--enforce-eager")),
        AdvancedOption(
            id="quiet", label="quiet", args=words("advanced_options.1.args", "--disable-log-requests")
        ),
    ),
    layouts=LAYOUTS,
    rules=RULES,
    reservations=RESERVATIONS,
    presets=PRESETS,
    dcp=ContextParallel(sizes=(8, 2), args=words("x-dcp.args", "--dcp-comm-backend a2a")),
    values=VALUES,
    cache=CACHE,
)
