"""The public format of one recipe, ``models/ORG/REPO.yaml``, as pydantic models.

Every key of the format is here; what only the public page reads is accepted and not read.
Every model keeps the order of its file.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from kimi_infra.config import recipe_extensions as ours
from kimi_infra.config.recipe_base import (
    Count,
    Env,
    Gigabytes,
    HardwareCounts,
    HardwareSizes,
    Model,
    Named,
    PageText,
    Size,
    Text,
    Vouchers,
    Words,
    either,
)


class HardwareBlock(Model):
    """``hardware_overrides.<key>``."""

    extra_args: Words
    extra_env: Env


class VariantHardwareBlock(HardwareBlock):
    """``variants.<v>.hardware_overrides.<key>``; the image counts for an exact hardware key only."""

    docker_image: str | None = None


class CudaImages(Model):
    """Images by the CUDA that they were built with."""

    cu129: str | None = None
    cu130: str | None = None


class Images(CudaImages):
    """``docker_image`` by brand; its own CUDA builds are NVIDIA's."""

    nvidia: (
        Annotated[CudaImages, either(str, lambda it: {"cu130": it}, dict, "an image, or images by CUDA")]
        | None
    ) = None
    amd: str | None = None
    tpu: str | None = None
    intel: str | None = None


Image = Annotated[Images, either(str, lambda it: {"nvidia": it}, dict, "an image, or images by brand")]
"""A plain image is NVIDIA's."""


class Constraint(Model):
    """``variants.<v>.precision_hardware``."""

    brand: str | None = None
    generation: str | None = None


class Variant(Model):
    """``variants.<v>``."""

    precision: str
    vram_minimum_gb: Gigabytes = 0
    model_id: str | None = None
    min_vllm_version: PageText = None
    docker_image: Image | None = None
    extra_args: Words
    extra_env: Env
    tp: HardwareSizes
    supported_hardware: Words
    precision_hardware: Constraint | None = None
    hardware_overrides: Named[VariantHardwareBlock]
    default_modes: Named[str]
    label: PageText = None
    description: PageText = None
    guide: PageText = None


class ArgsBlock(Model):
    """A block of arguments that replaces others on its hardware; without any the others stay."""

    args: list[str] | None = None


class Mode(Model):
    """``features.<f>.modes.<m>``."""

    args: Words
    hardware_overrides: Named[ArgsBlock]
    variants: Words
    hardware: Named[str]
    label: PageText = None
    description: PageText = None


class Companion(Model):
    """A process beside the engines."""

    label: str = ""
    description: PageText = None
    command: Annotated[str, Field(min_length=1)]


class Feature(Model):
    """``features.<f>``."""

    args: Words
    hardware_overrides: Named[ArgsBlock]
    strategies: Words
    modes: dict[str, Mode] | None = None
    default_mode: str | None = None
    companion: Companion | None = None
    label: PageText = None
    description: PageText = None


class RoleOverride(Model):
    """``strategy_overrides.pd_cluster.<pool>``."""

    parallelism: str | None = None
    parallel_flag: str | None = None
    nodes: HardwareCounts
    tp: Count | None = None
    extra_args: Words
    vllm_args: Words
    env: Env
    hardware_overrides: Named[HardwareBlock]


class RouterPin(Model):
    """``strategy_overrides.pd_cluster.router``."""

    intra_node_data_parallel_size: Size | None = None


class StrategyOverride(Model):
    """``strategy_overrides.<s>``."""

    extra_args: Words
    vllm_args: Words
    env: Env
    extra_env: Env
    hardware_overrides: Named[HardwareBlock]
    tp: HardwareSizes
    prefill: RoleOverride | None = None
    decode: RoleOverride | None = None
    router: RouterPin | None = None
    pool_modes: Words
    own_pool_modes: ours.PoolModes = Field(alias="x-pool-modes")


class ModelBlock(Model):
    """``model``."""

    model_id: Annotated[str, Field(min_length=1)]
    min_vllm_version: Text | None = None
    nightly_required: bool = False
    docker_image: Image | None = None
    install: PageText = None
    architecture: PageText = None
    parameter_count: PageText = None
    active_parameters: PageText = None
    context_length: PageText = None
    base_args: Words
    base_env: Env
    supports_dcp: bool = False


class Meta(Model):
    """``meta``; ``tasks`` decides which resolver a recipe belongs to."""

    title: str
    tasks: Words
    hardware: Named[str]
    default_hardware: str | None = None
    slug: PageText = None
    provider: PageText = None
    description: PageText = None
    difficulty: PageText = None
    date_added: PageText = None
    date_updated: PageText = None
    performance_headline: PageText = None
    related_recipes: PageText = None


class AdvancedOption(Model):
    """``advanced_options[]``."""

    id: str
    label: str = ""
    description: PageText = None
    args: list[str]


Floor = Annotated[
    dict[str, Count],
    either(int, lambda count: {"*": count}, dict, "a whole number, or a map of strategies to them"),
]
Floors = Annotated[
    Named[Floor],
    either(int, lambda count: {"*": count}, dict, "a whole number, or a map of strategies to them"),
]


class Recipe(Model):
    """One file under ``models/``."""

    meta: Meta
    model: ModelBlock
    dependencies: PageText = None
    features: Named[Feature]
    opt_in_features: Words
    hardware_opt_in_features: Named[list[str]]
    variants: dict[str, Variant]
    compatible_strategies: list[str]
    default_strategy: str | None = None
    strategy_hardware: Named[dict[str, str]]
    strategy_min_gpus: Floors
    hardware_overrides: Named[HardwareBlock]
    strategy_overrides: Named[StrategyOverride]
    kv_offload_support: Named[str]
    kv_cache_strategy_hardware: Named[dict[str, str]]
    advanced_options: Annotated[list[AdvancedOption], Field(default_factory=list)]
    hardware_notes: Named[PageText]
    guide: PageText = None
    omni: PageText = None
    layouts: ours.Layouts | None = Field(default=None, alias="x-layouts")
    values: ours.Values = Field(alias="x-values")
    rules: ours.Rules = Field(alias="x-rules")
    reservations: ours.Reservations = Field(alias="x-notes")
    presets: Named[ours.Preset] = Field(alias="x-presets")
    dcp: ours.ContextParallel | None = Field(default=None, alias="x-dcp")
    cache: ours.Cache | None = Field(default=None, alias="x-cache")
    provenance: Vouchers = Field(alias="x-provenance")


class Unread(Model):
    """Base of models that leave other keys alone."""

    model_config = ConfigDict(extra="ignore")


class OmniModelBlock(Unread):
    """``model`` of a recipe for the page's other resolver."""

    model_id: str = ""


class OmniMeta(Unread):
    """``meta`` of one."""

    title: str = ""
    tasks: list[str]


class OmniRecipe(Unread):
    """As much of a recipe for the page's other resolver as it takes to refuse it by name."""

    meta: OmniMeta
    model: OmniModelBlock = Field(default_factory=OmniModelBlock)
