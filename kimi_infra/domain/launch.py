"""What one rank runs, in the recipe page's own terms."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kimi_infra.domain.provenance import Provenance
from kimi_infra.errors import Fault, Need

HEAD_IP = "$HEAD_IP"
"""Placeholder of the recipe page: the head's engine address."""
IFACE_NAME = "$IFACE_NAME"
"""Placeholder of the recipe page: the device that carries a host's own engine address."""


class Role(Enum):
    """What a node is to its deployment."""

    HEAD = "head"
    """Rank 0 of a deployment of one engine: holds the API."""
    WORKER = "worker"
    """Any other rank of one."""
    PREFILL = "prefill"
    """A node of the prefill pool of a prefill/decode cluster; its rank counts within the pool."""
    DECODE = "decode"
    """A node of the decode pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag with its values, or a single loose word."""

    tokens: tuple[str, ...]
    provenance: Provenance
    value_provenance: Provenance | None = None
    """Who vouches for the value, where that is another one than who vouches for the flag."""

    @property
    def name(self) -> str:
        """The flag as written, for example ``--tensor-parallel-size``."""
        return self.tokens[0]

    @property
    def vouched(self) -> str:
        """Who vouches for it, for people; the value first."""
        if self.value_provenance is None:
            return str(self.provenance)
        return f"{self.value_provenance}; the flag {self.provenance}"

    @property
    def token_provenances(self) -> tuple[Provenance, ...]:
        """One for each of the tokens."""
        values = len(self.tokens) - 1
        return (self.provenance, *([self.value_provenance or self.provenance] * values))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvEntry:
    """One environment variable of the engine."""

    name: str
    value: str
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One node's ``vllm serve``, placeholders still in place."""

    rank: int
    role: Role
    model_id: str
    flags: tuple[Flag, ...]
    env: tuple[EnvEntry, ...]
    image: str | None
    """Name and tag as the recipe gives it, without a digest; None where the public rules leave none."""
    device_flags: tuple[str, ...] = ()
    """By which the page's ``docker run`` hands over the accelerators; hosts get them another way."""
    port: int = 8000
    """Of its API, where it has one."""
    replaced_flags: tuple[Flag, ...] = ()
    """Flags that a later one of the same name ousted, in their order."""
    replaced_env: tuple[EnvEntry, ...] = ()
    """Variables whose value a later entry changed, in their order."""

    @property
    def args(self) -> tuple[str, ...]:
        """All tokens behind the model."""
        return tuple(token for flag in self.flags for token in flag.tokens)

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole command."""
        return ("vllm", "serve", self.model_id, *self.args)

    @property
    def serves(self) -> bool:
        """Whether the node has an API of its own."""
        return all(flag.name != "--headless" for flag in self.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A process beside the engines."""

    label: str
    command: str
    """As the page shows it; never executed by us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A choice, compiled."""

    launches: tuple[Launch, ...]
    """One a node, in the order of their ranks; prefill before decode."""
    router: tuple[str, ...] | None = None
    """The command of the router in front of several APIs, placeholders in place."""
    companions: tuple[Companion, ...] = ()
    needs: tuple[Need, ...] = ()
    """Values that stand as placeholders in the commands; a need's place is the value's name."""
    used: frozenset[str] = frozenset()
    """Names of the values that the commands asked for, whether given or not."""
    notes: tuple[str, ...] = ()
    """What the publisher says against this choice without ruling it out."""
    warnings: tuple[Fault, ...] = ()
    """As published only: what the public page does in silence and we would have refused."""
