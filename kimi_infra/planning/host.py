"""From the recipe page's form to the form that hosts run.

The page's command assumes one machine after another with a person in front of it.
Here its placeholders are resolved per host, and what the page leaves to luck is stated:
the device and address of each rank, the ports, the weights' path, the container's devices.
Every such difference is named in :attr:`DeploymentPlan.differences`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kimi_infra.domain import paths
from kimi_infra.domain.facts import HostFacts
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Deployment, Host
from kimi_infra.domain.launch import HEAD_IP, IFACE_NAME, EnvEntry, Flag, Launch, Role
from kimi_infra.domain.plan import Budget, Container, DeploymentPlan, Port, RankPlan, Volume
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning.budget import ENGINE_READY, VLLM_ENGINE_READY
from kimi_infra.planning.budget import budget as compute_budget

Facts = Mapping[str, HostFacts]
"""Host name -> what the probe found there; empty while no host was asked."""

_CACHE_TARGET = "/root/.cache"
"""Where vLLM, Triton's and FlashInfer's caches live inside the image (its user is root)."""

_ULIMITS = ("memlock=-1", "stack=67108864")
"""RDMA and pinned memory need unlimited memlock; the daemon's own default is 8 MiB."""

DIFFERENCES = (
    "host network instead of -p 8000:8000: ranks also meet on ephemeral ports, in both directions",
    "CDI devices instead of --gpus all --privileged: they survive a daemon-reload and open nothing else",
    "the image by its ID with pulling switched off: what was verified is what runs",
    "weights read-only from one plain path, served under the model id: the page's client call works",
    "VLLM_HOST_IP per host: without it two hosts advertise the address of their default route",
    "the interface variables hold each host's own device: names differ between hosts",
    "secrets in a 0600 env file: a flag would show them in ps and in docker inspect",
    "--shutdown-timeout: without it a stop drops open requests without an answer",
    "--log-driver none: the journal has the engine's lines; docker's own copy grows without a bound",
    "compile and graph caches kept on the host: a restart does not compile again",
)


def plan(
    deployment: Deployment, profile: HardwareProfile, launches: Sequence[Launch], facts: Facts
) -> DeploymentPlan:
    """Plan one engine.

    Args:
        deployment: What the operator wrote.
        profile: The hardware of each of its hosts.
        launches: One a host, in rank order, as :func:`kimi_infra.planning.resolve.resolve` gives them.
        facts: What is known of the hosts so far; may be empty.

    Raises:
        SpecError: a host does not carry its engine address.
    """
    _check_addresses(deployment, facts)
    deadlines = compute_budget(launches[0].env, deployment.timeouts)
    engine = _Engine(deployment=deployment, profile=profile, deadlines=deadlines)
    ranks = tuple(
        _rank(engine, launch, host, facts.get(host.name))
        for launch, host in zip(launches, deployment.hosts, strict=True)
    )
    return DeploymentPlan(
        deployment=deployment,
        hardware=profile,
        ranks=ranks,
        world_size=world_size(launches[0]),
        ports=_ports(deployment),
        budget=deadlines,
        differences=DIFFERENCES,
    )


def world_size(launch: Launch) -> int:
    """Ranks of the engine's world group: TP x PP x DP."""
    size = 1
    for flag in launch.flags:
        if flag.name in {"--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"}:
            size *= int(flag.tokens[1])
    return size


def _check_addresses(deployment: Deployment, facts: Facts) -> None:
    faults = tuple(
        Fault(
            where=f"hosts.yml: {deployment.group}.hosts.{host.name}.engine_address",
            what="no interface of this host that is up carries the address",
            got=host.engine_address,
            remedy=f"give one of its own: {', '.join(sorted(facts[host.name].devices))}",
        )
        for host in deployment.hosts
        if host.name in facts and host.engine_address not in facts[host.name].devices
    )
    if faults:
        raise SpecError(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engine:
    """What the ranks of one engine share."""

    deployment: Deployment
    profile: HardwareProfile
    deadlines: Budget


def _rank(engine: _Engine, launch: Launch, host: Host, facts: HostFacts | None) -> RankPlan:
    deployment = engine.deployment
    address = host.engine_address
    interface = facts.devices[address] if facts else f"<device that carries {address}>"
    resolved = {HEAD_IP: deployment.head.engine_address, IFACE_NAME: interface}
    flags = tuple(
        Flag(tokens=tuple(resolved.get(token, token) for token in flag.tokens), provenance=flag.provenance)
        for flag in (*launch.flags, *_host_flags(deployment, launch, engine.deadlines))
    )
    env = tuple(
        EnvEntry(name=entry.name, value=resolved.get(entry.value, entry.value), provenance=entry.provenance)
        for entry in launch.env
    )
    own_address = EnvEntry(
        name="VLLM_HOST_IP", value=address, provenance=_derived("hosts.yml engine_address")
    )
    role = launch.role.value
    return RankPlan(
        rank=launch.rank,
        role=launch.role,
        host=host,
        unit=f"vllm-{deployment.name}-{role}.service",
        serve_args=(deployment.model_path, *(token for flag in flags for token in flag.tokens)),
        flags=flags,
        env=(*_lengthened(env, engine.deadlines), own_address),
        secret_names=_secret_names(deployment),
        interface=interface,
        container=_container(deployment, engine.profile, role, facts),
    )


def _lengthened(env: Sequence[EnvEntry], deadlines: Budget) -> tuple[EnvEntry, ...]:
    """Give vLLM the plan's own deadline, or it gives up before anybody who waits for it."""
    wanted = str(deadlines.engine_ready)
    if any(entry.name == ENGINE_READY and entry.value == wanted for entry in env):
        return tuple(env)
    source = Provenance(origin=Origin.OPERATOR, source="deployment.yml timeouts.engine_ready")
    ours = EnvEntry(name=ENGINE_READY, value=wanted, provenance=source)
    if not any(entry.name == ENGINE_READY for entry in env):
        return (*env, ours) if deadlines.engine_ready != VLLM_ENGINE_READY else tuple(env)
    return tuple(ours if entry.name == ENGINE_READY else entry for entry in env)


def _host_flags(deployment: Deployment, launch: Launch, deadlines: Budget) -> tuple[Flag, ...]:
    served = Flag(
        tokens=("--served-model-name", launch.model_id),
        provenance=_derived("model path differs from the model id"),
    )
    master = Flag(tokens=("--master-port", str(deployment.ports.master)), provenance=_derived("port plan"))
    shutdown = Flag(
        tokens=("--shutdown-timeout", str(deadlines.shutdown)),
        provenance=Provenance(origin=Origin.VLLM, source="default 0 drops open requests at a stop"),
    )
    api = Flag(tokens=("--port", str(deployment.api.port)), provenance=_derived("deployment.yml api.port"))
    return (served, master, shutdown, api) if launch.role is Role.HEAD else (served, master, shutdown)


def _secret_names(deployment: Deployment) -> tuple[str, ...]:
    names = []
    if deployment.api.key:
        names.append("VLLM_API_KEY")
    if deployment.hub_token:
        names.append("HF_TOKEN")
    return tuple(names)


def _container(
    deployment: Deployment, profile: HardwareProfile, role: str, facts: HostFacts | None
) -> Container:
    reference = deployment.image.reference
    image_id = facts.images.get(reference) if facts else None
    return Container(
        name=f"vllm-{deployment.name}-{role}",
        image_id=image_id or f"<image ID of {reference}>",
        devices=profile.devices,
        ulimits=_ULIMITS,
        capabilities=(),
        volumes=_volumes(deployment),
        env_files=(paths.engine_env(deployment.name), paths.secret_env(deployment.name)),
    )


def _volumes(deployment: Deployment) -> tuple[Volume, ...]:
    mounts = [mount.path for mount in deployment.mounts]
    covered = any(_inside(deployment.model_path, path) for path in mounts)
    shared = mounts if covered else [*mounts, deployment.model_path]
    read_only = tuple(Volume(source=path, target=path, read_only=True) for path in shared)
    return (
        *read_only,
        Volume(source=paths.cache_dir(deployment.name), target=_CACHE_TARGET, read_only=False),
    )


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _ports(deployment: Deployment) -> tuple[Port, ...]:
    head = deployment.head.name
    return (
        Port(number=deployment.api.port, purpose="API", host=head),
        Port(number=deployment.ports.master, purpose="rendezvous of the ranks", host=head),
        Port(number=deployment.ports.supervisor, purpose="rank supervisors", host=head),
    )


def _derived(source: str) -> Provenance:
    return Provenance(origin=Origin.DERIVED, source=source)
