"""What the operator wrote: hosts and deployments, checked and without a file format.

A string of the form ``<fill in: ...>`` may stand where a value is still to be given;
each such place is listed in :attr:`Inventory.needs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kimi_infra.errors import Need


class SecretSource(Enum):
    """Where a secret reference points."""

    ENV = "env"
    FILE = "file"
    VAULT = "vault"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """The place of a secret, never the secret itself."""

    source: SecretSource
    key: str
    """Name of the environment variable, path of the file (relative to the inventory),
    or ``PATH#KEY`` of an Ansible vault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of a deployment."""

    name: str
    address: str
    """Where SSH goes: ``ansible_host``."""
    user: str
    port: int
    """SSH port."""
    host_key: str
    """Public key line without a host part: ``ssh-ed25519 AAAA...``."""
    engine_address: str
    """The host's own address in the network that carries the engine."""
    rank: int
    """``node_rank``; 0 is the head."""
    identity_file: str | None = None
    """``ansible_ssh_private_key_file``; None leaves the choice to the operator's ssh configuration."""
    ssh_args: tuple[str, ...] = ()
    """``ansible_ssh_common_args`` as words, for example a jump host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChoice:
    """One image, pinned or still to be pinned."""

    name: str
    """Repository and tag, for example ``vllm/vllm-openai:kimi-k31``."""
    digest: str
    """``sha256:...`` of the manifest, or a ``<fill in: ...>``."""
    registry_ca: str | None = None
    """PEM text of the certificate authority of the image's registry; None for a public one."""

    @property
    def repository(self) -> str:
        """The name without its tag."""
        head, _, tail = self.name.rpartition(":")
        return head if head and "/" not in tail else self.name

    @property
    def reference(self) -> str:
        """What is pulled: repository at digest, or the bare name while it is not pinned."""
        return f"{self.repository}@{self.digest}" if self.pinned else self.name

    @property
    def pinned(self) -> bool:
        """Whether the digest has been given."""
        return self.digest.startswith("sha256:")

    @property
    def registry(self) -> str | None:
        """Host and port of the registry, None for docker.io's short names."""
        first, slash, _ = self.name.partition("/")
        return first if slash and ("." in first or ":" in first or first == "localhost") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The head's HTTP interface."""

    port: int
    key: SecretRef | None
    """The API key's place; None leaves the API open to whoever reaches the port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A host path that the engine's container sees read-only at the same path."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """One pool of a prefill/decode cluster."""

    nodes: int | None = None
    """None leaves it to the recipe; 0 is half of the one node that both pools share."""
    parallelism: str | None = None
    """``tp``, ``tep`` or ``dep``; None is the recipe's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """Engines behind the router of a KV store."""

    count: int | None = None
    """None takes the store's default."""
    current: int = 0
    """The one whose commands are asked for, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is asked of a recipe."""

    model: str
    hardware: str
    strategy: str
    nodes: int
    """Of a prefill/decode cluster the sum of its pools."""
    features: tuple[str, ...] | None
    """In the order of emission; None takes the recipe's default list."""
    variant: str = "default"
    accept_preview: bool = False
    feature_modes: Mapping[str, str] = field(default_factory=dict)
    """Feature -> mode, for features that have several."""
    preset: str | None = None
    dcp: int | None = None
    """Decode context parallel size; None is off."""
    kv_offload: str | None = None
    """KV offload option or KV store of the catalogue; None is off."""
    kv_instances: Instances | None = None
    pools: Mapping[str, PoolChoice] | None = None
    """By pool; None leaves both to the public rules."""
    advanced_args: tuple[str, ...] = ()
    """Words that the operator adds to every command."""
    values: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Name of a value that nobody has published -> what the operator gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports that the operator may move; the rest follow from them."""

    master: int = 29501
    """vLLM's own default for ``--master-port`` (vllm: engine/arg_utils.py)."""
    supervisor: int = 29560
    """Rank supervisors: workers connect to the head's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Deadlines that the operator lengthens, in seconds; a shorter one than computed has no effect."""

    engine_ready: int | None = None
    first_answer: int | None = None


KV_TIER = "simple"
"""Name of the KV offload option that is the host-DRAM tier."""
KV_TIER_BYTES = "kv_offload_bytes"
"""Name of the value that is its size for each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """The host-DRAM KV tier's policy."""

    policy: str
    """``off``, ``measured`` or ``fixed``."""
    reserve: int
    """Bytes of host memory that the tier leaves alone."""
    per_rank: int | None = None
    """Bytes that each accelerator pins; of policy ``fixed`` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One engine on one group of hosts."""

    name: str
    group: str
    hosts: tuple[Host, ...]
    """In the order of their ranks, the head first; of a prefill/decode cluster one pool after the other."""
    choice: Choice
    image: ImageChoice
    model_path: str
    """Absolute path of the weights, the same on all hosts."""
    model_sha256: str | None
    """Content hash of the weights (see :mod:`kimi_infra.hostside.probe`); None checks presence only."""
    api: Api
    hub_token: SecretRef | None
    ports: Ports
    mounts: tuple[Mount, ...] = ()
    timeouts: Timeouts = Timeouts()
    offload: Offload | None = None
    allow: frozenset[str] = frozenset()
    """Consent to disturb a serving host: ``restart``, ``reboot``."""

    @property
    def head(self) -> Host:
        """The host of rank 0; of a prefill/decode cluster the one that the router stands on."""
        return self.hosts[0]

    @property
    def pools(self) -> Mapping[str, tuple[Host, ...]]:
        """Hosts by pool, each in the order of its ranks; none for a deployment of one engine."""
        found, first = {}, 0
        for name, pool in (self.choice.pools or {}).items():
            found[name] = self.hosts[first : first + (pool.nodes or 0)]
            first += pool.nodes or 0
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One inventory directory, read and checked."""

    name: str
    """The directory's own name."""
    path: str
    """The directory, absolute; secret files are looked up relative to it."""
    deployments: tuple[Deployment, ...]
    needs: tuple[Need, ...] = field(default=())
    """Values still to be given before anything is applied."""
