"""What the fixture's taxonomy, strategies and KV stores say, written out as domain values."""

from __future__ import annotations

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import Companion
from kimi_infra.domain.provenance import Origin
from kimi_infra.domain.recipe import (
    DeployType,
    KvOption,
    KvStore,
    Recipe,
    RoleOverride,
    RoleSettings,
    Settings,
    Strategy,
    StrategyOverride,
    Value,
    ValueKind,
    Variant,
)
from tests.unit.recipe_format.spelling import env, given, words

_IFACE = {"GLOO_SOCKET_IFNAME": "$IFACE_NAME", "NCCL_SOCKET_IFNAME": "$IFACE_NAME"}
_EP = "--enable-expert-parallel"


def _profile(key: str, brand: str, generation: str, gpus: int, vram: int, title: str = "") -> HardwareProfile:
    return HardwareProfile(
        key=key,
        title=title or key,
        brand=brand,
        generation=generation,
        gpus_per_node=gpus,
        vram_gb=vram,
    )


PROFILES = {
    "h200": _profile("h200", "NVIDIA", "hopper", 8, 1128, "H200"),
    "b300": HardwareProfile(
        key="b300",
        title="B300",
        brand="NVIDIA",
        generation="blackwell",
        gpus_per_node=8,
        vram_gb=2144,
        devices=("nvidia.com/gpu=all",),
    ),
    "gb300": _profile("gb300", "NVIDIA", "blackwell", 4, 1152, "GB300"),
    "desk": HardwareProfile(
        key="desk",
        title="desk",
        brand="NVIDIA",
        generation="blackwell",
        gpus_per_node=1,
        vram_gb=128,
        scalable=False,
        restricted=True,
    ),
    "mi355x": _profile("mi355x", "AMD", "amd", 8, 2304, "MI355X"),
    "xeon": HardwareProfile(
        key="xeon",
        title="xeon",
        brand="Intel",
        generation="cpu",
        gpus_per_node=2,
        vram_gb=512,
        restricted=True,
    ),
    "trillium": HardwareProfile(
        key="trillium",
        title="trillium",
        brand="Google",
        generation="tpu",
        gpus_per_node=8,
        vram_gb=256,
        restricted=True,
    ),
    "m890": HardwareProfile(
        key="m890",
        title="m890",
        brand="PPU",
        generation="ppu",
        gpus_per_node=8,
        devices=("/dev/ppu0",),
        docker_flags=("--device=/dev/ppu0",),
        preview=True,
    ),
}


def _strategy(
    name: str, line: str = "", shape: str | None = None, flag: str = "--tensor-parallel-size"
) -> Strategy:
    """Return a strategy file without our extension."""
    place = f"operator: strategies/{name}: {{}}"
    several = name.startswith("multi_node")
    return Strategy(
        name=name,
        title=name,
        deploy_type=DeployType.MULTI_NODE if several else DeployType.SINGLE_NODE,
        settings=Settings(
            args=words("vllm_args", line, place), env=env("env", place, **_IFACE) if several else ()
        ),
        parallel_flag=flag,
        parallelism=shape,
    )


def _nixl(role: str) -> str:
    return f'{{"kv_connector":"NixlConnector","kv_role":"{role}","kv_load_failure_policy":"fail"}}'


_PD = "operator: strategies/pd_cluster: {}"
_DATA = "--data-parallel-size"
STRATEGIES = {
    "single_node_tp": Strategy(
        name="single_node_tp", title="One Node, Tensor Parallel", deploy_type=DeployType.SINGLE_NODE
    ),
    "single_node_tep": _strategy("single_node_tep", _EP),
    "single_node_dep": _strategy("single_node_dep", _EP, flag=_DATA),
    "multi_node_tp": Strategy(
        name="multi_node_tp",
        title="Several Nodes, Tensor Parallel",
        deploy_type=DeployType.MULTI_NODE,
        settings=Settings(
            env=env("env", "sibling: strategies/multi_node_tp: {} (interface names)", **_IFACE)
        ),
    ),
    "multi_node_tep": _strategy("multi_node_tep", _EP),
    "multi_node_dep": _strategy("multi_node_dep", f"{_EP} --data-parallel-hybrid-lb", flag=_DATA),
    "multi_node_tp_pp": _strategy("multi_node_tp_pp", shape="tp_pp"),
    "multi_node_tp_dp": _strategy("multi_node_tp_dp", shape="tp_dp"),
    "pd_cluster": Strategy(
        name="pd_cluster",
        title="Two Pools",
        deploy_type=DeployType.PD_CLUSTER,
        roles={
            "prefill": RoleSettings(
                settings=Settings(
                    args=words(
                        "prefill.vllm_args",
                        f"--port 8001 --kv-transfer-config {_nixl('kv_producer')}",
                        _PD,
                    ),
                    env=env(
                        "prefill.env",
                        _PD,
                        NCCL_CUMEM_ENABLE="1",
                        UCX_NET_DEVICES="all",
                        VLLM_NIXL_SIDE_CHANNEL_PORT="5557",
                        VLLM_NIXL_SIDE_CHANNEL_HOST="$PREFILL_NODE_1",
                    ),
                ),
                parallelism="tep",
                parallel_flag="--tensor-parallel-size",
            ),
            "decode": RoleSettings(
                settings=Settings(
                    args=words(
                        "decode.vllm_args",
                        "--port 8002 --kv-transfer-config "
                        f"{_nixl('kv_consumer')} "
                        '--compilation-config {"cudagraph_mode":"FULL_DECODE_ONLY"}',
                        _PD,
                    ),
                    env=env(
                        "decode.env",
                        _PD,
                        VLLM_NIXL_SIDE_CHANNEL_PORT="5558",
                        VLLM_NIXL_SIDE_CHANNEL_HOST="$DECODE_NODE_1",
                    ),
                ),
                parallelism="dep",
                tp=1,
            ),
        },
        router_policy="power_of_two",
    ),
}

_OPTION = "ours: taxonomy: {} (fixture)"
OPTIONS = {
    "simple": KvOption(
        name="simple",
        settings=Settings(
            args=words(
                "kv_offload.simple.args",
                '--kv-transfer-config {"kv_connector":"SimpleCPUOffloadConnector","kv_role":"kv_both",'
                '"kv_connector_extra_config":{"cpu_bytes_to_use_per_rank":"<value:tier_bytes>"}}',
                "vllm: taxonomy: {} (connector)",
            )
        ),
        pools=("prefill",),
    ),
    "tiered": KvOption(
        name="tiered",
        settings=Settings(
            args=words(
                "kv_offload.tiered.args",
                '--kv-transfer-config {"kv_connector":"OffloadingConnector","kv_role":"kv_both"}',
                _OPTION,
            ),
            env=env("kv_offload.tiered.env", _OPTION, PYTHONHASHSEED="0"),
        ),
        brands=("NVIDIA", "AMD"),
        requires_opt_in=True,
    ),
    "sidecar": KvOption(
        name="sidecar",
        settings=Settings(
            args=words(
                "kv_offload.sidecar.args",
                '--kv-transfer-config {"kv_connector":"SidecarConnector","kv_role":"kv_both"}',
                _OPTION,
            )
        ),
        strategies=("single_node_tp", "single_node_tep", "single_node_dep"),
        companion=Companion(label="Sidecar server", command="sidecar serve --port 5555"),
    ),
}

_STORE = '--kv-transfer-config {"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both"}'
_WHERE = "ours: kv_store/kv_store_distributed_mooncake: {} (fixture)"
_PLAIN = "operator: kv_store/kv_store_centralized_mooncake: {}"


def _both(role: str) -> str:
    return (
        '--kv-transfer-config {"kv_connector":"MultiConnector","kv_role":"kv_both",'
        '"kv_connector_extra_config":{"connectors":['
        f'{{"kv_connector":"NixlConnector","kv_role":"{role}"}},'
        '{"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both"}]}}'
    )


STORES = {
    "kv_store_centralized_mooncake": KvStore(
        name="kv_store_centralized_mooncake",
        settings=Settings(
            args=words("vllm.vllm_args", _STORE, _PLAIN),
            env=env("vllm.env", _PLAIN, MOONCAKE_CONFIG_PATH="$MOONCAKE_CONFIG_PATH"),
        ),
        pools={},
        default_instances=2,
        router_policy="cache_aware",
        port=8000,
    ),
    "kv_store_distributed_mooncake": KvStore(
        name="kv_store_distributed_mooncake",
        settings=Settings(
            args=words("vllm.vllm_args", _STORE, _WHERE),
            env=(
                *env("vllm.env", _WHERE, MOONCAKE_CONFIG_PATH="$MOONCAKE_CONFIG_PATH"),
                *env(
                    "vllm.env",
                    "sibling: kv_store/kv_store_distributed_mooncake: {} (public store)",
                    PYTHONHASHSEED="0",
                ),
            ),
        ),
        pools={
            "prefill": words("pd.prefill.args", _both("kv_producer"), _WHERE),
            "decode": words("pd.decode.args", _both("kv_consumer"), _WHERE),
        },
        default_instances=1,
        router_policy="consistent_hash",
        port=8100,
    ),
}

VALUES = {
    "tier_bytes": Value(
        name="tier_bytes",
        what="bytes of the tier",
        find="measured on the hosts",
        kind=ValueKind.INTEGER,
        origin=Origin.MEASURED,
    )
}

PEBBLE = Recipe(
    key="acme/Pebble-1B",
    model_id="acme/Pebble-1B",
    title="Pebble 1B",
    tasks=("text",),
    minimum_version="0.3",
    images={"nvidia": "acme/pebble:cu129"},
    image_origins={
        place: given("operator: {}", place)
        for place in (
            "model.docker_image.nvidia",
            "variants.amd.docker_image.amd",
            "variants.newer.docker_image.nvidia",
        )
    },
    variants={
        "default": Variant(precision="bf16", tp={"default": 1}),
        "amd": Variant(precision="bf16", images={"amd": "acme/pebble:rocm"}),
        "newer": Variant(precision="bf16", images={"nvidia": "acme/pebble:cu130"}),
    },
    strategies=("single_node_tp", "pd_cluster"),
    strategy_min_gpus={"*": 2},
    hardware_marks={"trillium": "verified"},
    strategy_overrides={
        "pd_cluster": StrategyOverride(roles={"prefill": RoleOverride(nodes={"default": 3}, tp=2)})
    },
)

MURMUR = Recipe(key="acme/Murmur-Omni", model_id="acme/Murmur-Omni", title="Murmur", tasks=("omni", "text"))
