"""The public format of what recipes share, as pydantic models: taxonomy, strategies, KV stores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kimi_infra.config import recipe_extensions as ours
from kimi_infra.config.recipe_base import (
    Count,
    Env,
    Gigabytes,
    Model,
    Named,
    OneOrMore,
    PageText,
    Text,
    Vouchers,
    Words,
)
from kimi_infra.config.recipe_schema import Companion


class Role(Model):
    """``prefill`` or ``decode`` of a strategy."""

    vllm_args: Words
    env: Env
    parallelism: str | None = None
    parallel_flag: str | None = None
    tp: Count | None = None


class Router(Model):
    """``router`` of a strategy or a KV store."""

    policy: str | None = None
    port: PageText = None
    install: PageText = None


class Strategy(Model):
    """One file under ``strategies/``."""

    name: str
    deploy_type: Literal["single_node", "multi_node", "pd_cluster"]
    display_name: Text = ""
    vllm_args: Words
    env: Env
    parallel_flag: str = "--tensor-parallel-size"
    parallelism: str | None = None
    prefill: Role | None = None
    decode: Role | None = None
    router: Router | None = None
    description: PageText = None
    orientation: PageText = None
    hardware_match: PageText = None
    provenance: Vouchers = Field(alias="x-provenance")


class Engine(Model):
    """``vllm`` of a KV store."""

    vllm_args: Words
    env: Env
    install: PageText = None
    port: Count = 8000


class PoolArgs(Model):
    """``pd.<pool>`` of a KV store."""

    args: Words


class StorePools(Model):
    """``pd`` of a KV store."""

    prefill: PoolArgs | None = None
    decode: PoolArgs | None = None


class KvStore(Model):
    """One file under ``kv_store/``."""

    name: str
    deploy_type: Literal["kv_store_lb"]
    router: Router | None = None
    vllm: Engine | None = None
    pd: StorePools | None = None
    default_instances: Count = 2
    min_vllm_version: PageText = None
    mooncake_master: PageText = None
    mooncake_vllm_config: PageText = None
    mooncake_store_config: PageText = None
    display_name: PageText = None
    label: PageText = None
    order: PageText = None
    description: PageText = None
    provenance: Vouchers = Field(alias="x-provenance")


class HardwareProfile(Model):
    """``hardware_profiles.<key>`` of ``taxonomy.yaml``."""

    brand: str
    generation: OneOrMore
    """The first one counts."""
    gpu_count: Count
    vram_gb: Gigabytes | None = None
    display_name: Text = ""
    description: PageText = None
    multi_node: PageText = None
    scalable: bool = True
    restricted: bool = False
    devices: Words = Field(alias="x-devices")
    docker_flags: Words = Field(alias="x-docker-flags")
    preview: bool = Field(default=False, alias="x-preview")


class KvOption(Model):
    """``kv_offload.<option>`` of ``taxonomy.yaml``."""

    args: Words
    env: Env
    strategies: Words
    brands: Words
    requires_opt_in: bool = False
    companion: Companion | None = None
    install: PageText = None
    group: PageText = None
    order: PageText = None
    label: PageText = None
    docs_url: PageText = None
    display_name: PageText = None
    description: PageText = None
    pools: ours.Pools = Field(alias="x-pools")


class Taxonomy(Model):
    """``taxonomy.yaml``."""

    hardware_profiles: dict[str, HardwareProfile]
    kv_offload: Named[KvOption]
    kv_offload_groups: PageText = None
    tasks: PageText = None
    strategies: PageText = None
    values: ours.Values = Field(alias="x-values")
    provenance: Vouchers = Field(alias="x-provenance")
