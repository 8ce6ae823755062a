"""The plan: what runs where, complete but for what only a host can know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from kimi_infra.domain.capacity import Capacity
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Deployment, Host
from kimi_infra.domain.launch import EnvEntry, Flag, Role
from kimi_infra.domain.provenance import Origin
from kimi_infra.errors import Fault, Need


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A bind mount of the engine's container."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """How the engine's container is started on a host; the engine's own arguments are the rank's."""

    name: str
    image_id: str
    """``sha256:...``, or a placeholder in angle brackets before the image is on the host."""
    devices: tuple[str, ...]
    """CDI names or device nodes."""
    ulimits: tuple[str, ...]
    capabilities: tuple[str, ...]
    security_options: tuple[str, ...]
    volumes: tuple[Volume, ...]
    env_files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One TCP port and who listens on it."""

    number: int
    purpose: str
    host: str
    """Name of the listening host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Deadlines in seconds, each one outside the one before it."""

    joined: int
    """From a rank's start to all supervisors connected; a peer that is missing longer is reported."""
    engine_ready: int
    """vLLM's own: ``VLLM_ENGINE_READY_TIMEOUT_S``."""
    first_answer: int
    """From an engine that listens to a completion answered (first-request compilation included)."""
    unit_start: int
    """systemd's ``TimeoutStartSec``: the three above and a margin."""
    shutdown: int
    """vLLM's ``--shutdown-timeout``: open requests may finish."""
    container_stop: int
    """``docker stop -t``: above the shutdown by what a worker needs (lab: 13 s)."""
    unit_stop: int
    """systemd's ``TimeoutStopSec``: above the container's, and above the head's for a worker that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One rank on one host."""

    rank: int
    """Within its engine: of a prefill/decode cluster within its pool."""
    role: Role
    host: Host
    head: Host
    """Where rank 0 of the same engine is."""
    engine_ranks: int
    """Nodes of the same engine, this one counted."""
    api_port: int | None
    """Of its own API; None where rank 0 alone has one."""
    unit: str
    """Name of the systemd unit with its suffix."""
    serve_args: tuple[str, ...]
    """Everything behind ``vllm serve``: the model path, then the flags."""
    flags: tuple[Flag, ...]
    """The flags of ``serve_args`` with their provenance."""
    env: tuple[EnvEntry, ...]
    """Not secret; written to a file of its own."""
    secret_names: tuple[str, ...]
    """Names of the variables in the secret env file."""
    interface: str
    """Device of the engine address, or a placeholder in angle brackets."""
    container: Container


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """The process in front of several APIs."""

    host: Host
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """One engine, or the two pools of a prefill/decode cluster."""

    deployment: Deployment
    hardware: HardwareProfile
    ranks: tuple[RankPlan, ...]
    """In the order of the deployment's hosts."""
    world_size: int
    """TP x PP x DP over all hosts."""
    ports: tuple[Port, ...]
    budget: Budget
    differences: tuple[str, ...]
    """Each way in which hosts run something else than the recipe page shows, and why."""
    router: Router | None = None
    notes: tuple[str, ...] = ()
    """What the publisher says against the choice without ruling it out."""
    needs: tuple[Need, ...] = ()
    """Values that nobody has published and nobody has given; each stands in a command as a placeholder."""
    warnings: tuple[Fault, ...] = ()
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    """What the accelerators hold, by pool or of the one ``engine``; empty where no cache facts are known."""

    @property
    def origins(self) -> Mapping[Origin, int]:
        """How many flags and variables each origin vouches for; what all ranks share counts once."""
        flags = (
            (flag.name, flag.value_provenance or flag.provenance)
            for rank in self.ranks
            for flag in rank.flags
        )
        variables = ((entry.name, entry.provenance) for rank in self.ranks for entry in rank.env)
        found = Counter(provenance.origin for _, provenance in {*flags, *variables})
        return {origin: found[origin] for origin in Origin if found[origin]}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFile:
    """One rendered file as it lies on a host."""

    path: str
    content: str = field(repr=False)
    """May be secret; not in the representation, which ends in reports of failed checks."""
    mode: str
    """Octal, four digits, for example ``0644``."""
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLayout:
    """Everything that one host gets from one deployment."""

    deployment: str
    host: str
    rank: int
    role: Role
    files: tuple[HostFile, ...]
    units: tuple[str, ...]
    """Units to enable, in no order."""
    serving_unit: str
    """The one of them that is the rank."""
