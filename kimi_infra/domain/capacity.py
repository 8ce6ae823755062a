"""How much cache an engine's accelerators hold, with all that the answer rests on.

Bytes are fractions, so that what is derived from a published figure gives back exactly that figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from kimi_infra.domain.provenance import Provenance
from kimi_infra.errors import Need


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """The parallel sizes of one engine."""

    tensor: int = 1
    """Ranks that split every weight and each sequence's state; the cache of tokens is the same on all."""
    pipeline: int = 1
    """Stages that split the layers."""
    data: int = 1
    """Replicas of the attention, each with tokens of its own; routed experts are split over all of them."""
    context: int = 1
    """Ranks of a tensor-parallel group that split the cache of tokens (DCP)."""
    expert: bool = False
    """Whether ranks hold whole routed experts instead of slices of all; the bytes are the same."""

    @property
    def ranks(self) -> int:
        """Accelerators of the engine; DCP takes those of the tensor-parallel group."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One thing that an answer rests on."""

    text: str
    provenance: Provenance

    def __str__(self) -> str:
        return f"{self.text} ({self.provenance})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the accelerators of one engine hold; None is what nobody has published."""

    hardware: str
    """Title of the kind of node."""
    accelerators: int
    """In all nodes."""
    sharding: Sharding
    memory: Fraction | None
    """Bytes of one accelerator."""
    utilisation: Fraction
    """Part of :attr:`memory` that the engine may take."""
    weights: Fraction | None
    """Bytes of weights on one rank."""
    beside: Fraction | None
    """Bytes on one rank that are neither weights nor cache."""
    token: Fraction | None
    """Bytes of cache on one rank for each token of a sequence."""
    state: Fraction | None
    """Bytes on one rank for each sequence, whatever its length."""
    context: int
    """Tokens of a full context."""
    missing: tuple[Need, ...]
    """Why an answer is not known."""
    uncounted: tuple[str, ...]
    """What takes memory too and is not in the numbers: they are upper bounds."""
    assumptions: tuple[Assumption, ...]
    remarks: tuple[str, ...]

    @property
    def cache(self) -> Fraction | None:
        """Bytes of one accelerator that are left for the cache; below zero where the rest does not fit."""
        if self.memory is None or self.weights is None or self.beside is None:
            return None
        return self.memory * self.utilisation - self.weights - self.beside

    @property
    def sequence(self) -> Fraction | None:
        """Bytes of one full context on one rank."""
        return None if self.token is None or self.state is None else self.token * self.context + self.state

    @property
    def margin(self) -> Fraction | None:
        """Bytes of one accelerator beyond the first full context; below zero what is lacking."""
        if self.missing or self.cache is None or self.sequence is None:
            return None
        return self.cache - self.sequence

    @property
    def contexts(self) -> Fraction | None:
        """Full contexts that one replica of the attention holds, parts of one included."""
        if self.missing or self.cache is None or self.sequence is None:
            return None
        return max(Fraction(0), self.cache / self.sequence)

    @property
    def tokens(self) -> int | None:
        """Tokens of all replicas, filled with full contexts: the figure that vLLM logs at its start."""
        return None if self.contexts is None else self.sharding.data * int(self.contexts * self.context)

    @property
    def full_contexts(self) -> int | None:
        """Whole contexts that are held at once; none lies in two replicas."""
        return None if self.contexts is None else self.sharding.data * int(self.contexts)

    @property
    def fits(self) -> bool | None:
        """Whether the engine starts: it wants room for one full context (vllm: v1/core/kv_cache_utils.py)."""
        if self.sharding.ranks > self.accelerators:
            return False
        return None if self.margin is None else self.margin >= 0


class Basis(Enum):
    """How a computed figure comes about."""

    BYTES = "bytes"
    """It follows from published bytes alone."""
    CALIBRATION = "calibration"
    """A derived value was taken from it: it agrees because it must."""
    PREDICTION = "prediction"
    """It follows from bytes and from values that other figures gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure beside what the model makes of it."""

    name: str
    published: float
    computed: float
    basis: Basis
    because: str
    """The assumption behind it, and what explains a deviation."""
    provenance: Provenance
    """Who published it."""

    @property
    def deviation(self) -> float:
        """Computed against published, as a part of what was published."""
        return self.computed / self.published - 1
