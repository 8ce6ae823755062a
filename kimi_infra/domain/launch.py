"""What one rank runs, in the recipe page's own terms."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kimi_infra.domain.provenance import Provenance

HEAD_IP = "$HEAD_IP"
"""Placeholder of the recipe page: the head's engine address."""
IFACE_NAME = "$IFACE_NAME"
"""Placeholder of the recipe page: the device that carries a host's own engine address."""


class Role(Enum):
    """What a rank is to its engine."""

    HEAD = "head"
    """Rank 0: holds the API."""
    WORKER = "worker"
    """Any other rank: headless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag with its values, or a single loose word."""

    tokens: tuple[str, ...]
    provenance: Provenance

    @property
    def name(self) -> str:
        """The flag as written, for example ``--tensor-parallel-size``."""
        return self.tokens[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvEntry:
    """One environment variable of the engine."""

    name: str
    value: str
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One rank's ``vllm serve``, placeholders still in place."""

    rank: int
    role: Role
    model_id: str
    flags: tuple[Flag, ...]
    env: tuple[EnvEntry, ...]
    image: str
    """Name and tag as the recipe gives it, without a digest."""
    device_flags: tuple[str, ...] = ()
    """By which the page's ``docker run`` hands over the accelerators; hosts get them another way."""

    @property
    def args(self) -> tuple[str, ...]:
        """All tokens behind the model."""
        return tuple(token for flag in self.flags for token in flag.tokens)
