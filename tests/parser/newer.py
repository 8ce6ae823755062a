"""Names in our commands that the pinned wheel does not know, each with who vouches for it.

Nothing else passes: a test fails for any other unknown name, for an entry that the wheel has learnt,
and for an entry that no cell of the matrix uses any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from kimi_infra.domain.provenance import Origin, Provenance

ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """One name."""

    place: str
    """The option whose value it is, or ``environment``."""
    name: str
    provenance: Provenance
    why: str
    """Why the wheel does not know it."""


UNKNOWN = (
    Unknown(
        place="--moe-backend",
        name="ppu_deep_gemm_w4a16",
        provenance=Provenance(origin=Origin.SEED, source="guide, overview: 810E"),
        why="comes with the PPU plugin vllm-sail, which is in the PPU images only",
    ),
    Unknown(
        place=ENVIRONMENT,
        name="VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4",
        provenance=Provenance(
            origin=Origin.SIBLING, source="moonshotai/Kimi-K3: hardware_overrides.amd.extra_env"
        ),
        why="older than the wheel: vllm/envs.py has VLLM_ROCM_USE_AITER_MOE_SITUV2=a8w4 in its place",
    ),
)
