"""The public recipe format as pydantic models, as far as this version compiles it.

A key of the public format that would change a command and is not here yet is refused as unknown:
a recipe is compiled whole or not at all. Keys that begin with ``x-`` are ours (docs/recipes.md);
a file without them loads unchanged. Every model keeps the order of its file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from kimi_infra.domain.provenance import Origin


def _vouched(text: str) -> str:
    """Hold an ``x-provenance`` entry to ``ORIGIN`` or ``ORIGIN: where in it``."""
    allowed = [origin.value for origin in Origin]
    if text.partition(":")[0] not in allowed:
        raise PydanticCustomError(
            "origin", "the origin is none of {allowed}", {"allowed": ", ".join(allowed)}
        )
    return text


Env = dict[str, Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]]
"""Environment; the public files write some values as numbers."""

Vouchers = dict[str, Annotated[str, AfterValidator(_vouched)]]
"""``x-provenance``: a dotted path in the file, or ``default``, to who vouches for it."""

PageText = Any
"""Read by the public page only; never part of a command."""


class Model(BaseModel):
    """Base of all: strict, closed, frozen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class HardwareBlock(Model):
    """``hardware_overrides.<generation or nvidia>``."""

    extra_args: list[str] = []
    extra_env: Env = {}


class VariantHardwareBlock(HardwareBlock):
    """``variants.<v>.hardware_overrides.<key>``; the image counts for an exact hardware key only."""

    docker_image: str | None = None


class Variant(Model):
    """``variants.<v>``."""

    precision: str
    vram_minimum_gb: int = 0
    model_id: str | None = None
    extra_args: list[str] = []
    extra_env: Env = {}
    supported_hardware: list[str] = []
    hardware_overrides: dict[str, VariantHardwareBlock] = {}
    label: PageText = None
    description: PageText = None
    guide: PageText = None


class FeatureHardwareBlock(Model):
    """``features.<f>.hardware_overrides.<generation or nvidia>``."""

    args: list[str]


class Feature(Model):
    """``features.<f>``."""

    args: list[str]
    hardware_overrides: dict[str, FeatureHardwareBlock] = {}
    strategies: list[str] | None = None
    description: PageText = None
    unknown: str | None = Field(default=None, alias="x-unknown")


class StrategyOverride(Model):
    """``strategy_overrides.<s>`` of strategies other than prefill/decode."""

    extra_args: list[str] = []
    vllm_args: list[str] = []
    env: Env = {}
    extra_env: Env = {}
    hardware_overrides: dict[str, HardwareBlock] = {}


class ModelBlock(Model):
    """``model``."""

    model_id: str
    min_vllm_version: PageText = None
    nightly_required: bool = False
    docker_image: str | dict[str, str | dict[str, str]] = {}
    base_args: list[str] = []
    base_env: Env = {}
    install: PageText = None
    architecture: PageText = None
    parameter_count: PageText = None
    active_parameters: PageText = None
    context_length: PageText = None


class Meta(Model):
    """``meta``; ``tasks`` decides which resolver a recipe belongs to."""

    title: str
    tasks: list[Literal["text", "multimodal", "embedding"]] = []
    hardware: dict[str, str] = {}
    default_hardware: PageText = None
    slug: PageText = None
    provider: PageText = None
    description: PageText = None
    difficulty: PageText = None
    date_added: PageText = None
    date_updated: PageText = None
    performance_headline: PageText = None
    related_recipes: PageText = None


class Recipe(Model):
    """One file under ``models/``."""

    meta: Meta
    model: ModelBlock
    features: dict[str, Feature] = {}
    opt_in_features: list[str] = []
    variants: dict[str, Variant]
    compatible_strategies: list[str]
    default_strategy: PageText = None
    hardware_overrides: dict[str, HardwareBlock] = {}
    strategy_overrides: dict[str, StrategyOverride] = {}
    dependencies: PageText = None
    guide: PageText = None
    layouts: dict[str, dict[str, list[Annotated[int, Field(gt=0)]]]] | None = Field(
        default=None, alias="x-layouts"
    )
    provenance: Vouchers = Field(default={}, alias="x-provenance")


class Strategy(Model):
    """One file under ``strategies/``."""

    name: str
    deploy_type: Literal["single_node", "multi_node", "pd_cluster"]
    display_name: str = ""
    vllm_args: list[str] = []
    env: Env = {}
    parallel_flag: PageText = None
    parallelism: PageText = None
    description: PageText = None
    orientation: PageText = None
    hardware_match: PageText = None
    provenance: Vouchers = Field(default={}, alias="x-provenance")


class HardwareProfile(Model):
    """``hardware_profiles.<key>`` of ``taxonomy.yaml``."""

    brand: str
    generation: str
    gpu_count: Annotated[int, Field(gt=0)]
    vram_gb: int | None = None
    display_name: str = ""
    multi_node: PageText = None
    devices: list[str] = Field(default=[], alias="x-devices")
    preview: bool = Field(default=False, alias="x-preview")


class Taxonomy(Model):
    """``taxonomy.yaml``."""

    hardware_profiles: dict[str, HardwareProfile]
    provenance: Vouchers = Field(default={}, alias="x-provenance")
