"""Where a rendered value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Origin(Enum):
    """Who vouches for a value."""

    SEED = "seed"
    """The two source documents on Kimi-K3.1-Pro."""
    SIBLING = "sibling"
    """The predecessor's public recipe."""
    VLLM = "vllm"
    """Read in vLLM itself."""
    OPERATOR = "operator"
    """Written by the operator in the inventory."""
    DERIVED = "derived"
    """Computed from the plan: ranks, addresses, ports."""
    MEASURED = "measured"
    """Found on a host."""
    UNKNOWN = "unknown"
    """Nobody has said it yet; the operator is asked for it."""
    OURS = "ours"
    """A choice of kimi_infra itself, for example all of the lab's own tiny model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of a value and the place in it."""

    origin: Origin
    source: str
    """The place inside the origin, for example ``features.reasoning`` or ``strategies/multi_node_tp``."""

    def __str__(self) -> str:
        return f"{self.origin.value}: {self.source}"
