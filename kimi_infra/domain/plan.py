"""The plan: what runs where, complete but for what only a host can know."""

from __future__ import annotations

from dataclasses import dataclass, field

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Deployment, Host
from kimi_infra.domain.launch import EnvEntry, Flag, Role


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
    role: Role
    host: Host
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
class DeploymentPlan:
    """One engine."""

    deployment: Deployment
    hardware: HardwareProfile
    ranks: tuple[RankPlan, ...]
    world_size: int
    """TP x PP x DP over all hosts."""
    ports: tuple[Port, ...]
    budget: Budget
    differences: tuple[str, ...]
    """Each way in which hosts run something else than the recipe page shows, and why."""


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
