"""From the recipe page's form to the form that hosts run.

The page's command assumes one machine after another with a person in front of it.
Here its placeholders are resolved per host, and what the page leaves to luck is stated:
the device and address of each rank, the ports, the weights' path, the container's devices.
Every such difference is named in :attr:`DeploymentPlan.differences`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kimi_infra.domain import fill_in, paths
from kimi_infra.domain.facts import HostFacts
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Deployment
from kimi_infra.domain.launch import IFACE_NAME, EnvEntry, Flag, Resolution, Role
from kimi_infra.domain.plan import Budget, Container, DeploymentPlan, Port, RankPlan, Router, Volume
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import PREFILL
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import budget, differences, placement
from kimi_infra.planning.placement import Engine, Member

Facts = Mapping[str, HostFacts]
"""Host name -> what the probe found there; empty while no host was asked."""

_CACHE_TARGET = "/root/.cache"
"""Where vLLM, Triton's and FlashInfer's caches live inside the image (its user is root)."""

_ULIMITS = ("memlock=-1", "stack=67108864")
"""RDMA and pinned memory need unlimited memlock; the daemon's own default is 8 MiB."""

_CAPABILITIES = {"AMD": ("SYS_PTRACE",)}
"""By brand: ROCm's processes read each other's memory (AMD's own docker line)."""

_SECURITY_OPTIONS = {"AMD": ("seccomp=unconfined",)}
"""By brand, as the public format's docker line has it: ROCm places memory by calls that the profile bars."""

_GIB = 1 << 30
_PLACEHOLDER = re.compile(r"\$[A-Z_][A-Z0-9_]*")


def plan(
    deployment: Deployment, profile: HardwareProfile, resolution: Resolution, facts: Facts
) -> DeploymentPlan:
    """Plan one deployment.

    Args:
        deployment: What the operator wrote.
        profile: The hardware of each of its hosts.
        resolution: One launch a host, as :func:`kimi_infra.planning.resolve.resolve` gives them.
        facts: What is known of the hosts so far; may be empty.

    Raises:
        SpecError: a host does not carry its engine address or cannot hold the KV tier,
            two purposes have one port of a host, or a value names the image.
    """
    engines = placement.engines(deployment, resolution.launches)
    ports = tuple(placement.ports(deployment, engines, router=bool(resolution.router)))
    faults = (
        *_foreign_addresses(deployment, facts),
        *_ports_given_twice(deployment, (*placement.ssh(deployment), *ports)),
        *_values_of_the_image(deployment, resolution),
        *_tier_too_large(deployment, engines, facts),
    )
    if faults:
        raise SpecError(faults)
    env = (entry for launch in resolution.launches for entry in launch.env)
    deadlines = budget.budget(env, deployment.timeouts, profile)
    site = _Site(
        deployment=deployment, profile=profile, deadlines=deadlines, names=placement.addresses(engines)
    )
    ranks = tuple(
        _rank(site, engine, member, facts.get(member.host.name))
        for engine in engines
        for member in engine.members
    )
    return DeploymentPlan(
        deployment=deployment,
        hardware=profile,
        ranks=ranks,
        world_size=sum(engine.world_size for engine in engines),
        ports=ports,
        budget=deadlines,
        differences=differences.listed(deployment, profile, resolution, ranks),
        router=_router(site, resolution.router),
        notes=(*resolution.notes, *differences.image_notes(deployment, profile, resolution)),
        needs=resolution.needs,
        warnings=resolution.warnings,
    )


def _foreign_addresses(deployment: Deployment, facts: Facts) -> Iterator[Fault]:
    for host in deployment.hosts:
        if host.name in facts and host.engine_address not in facts[host.name].devices:
            yield Fault(
                where=f"hosts.yml: {deployment.group}.hosts.{host.name}.engine_address",
                what="no interface of this host that is up carries the address",
                got=host.engine_address,
                remedy=f"give one of its own: {', '.join(sorted(facts[host.name].devices))}",
            )


def _ports_given_twice(deployment: Deployment, ports: Sequence[Port]) -> Iterator[Fault]:
    for first, second in itertools.combinations(ports, 2):
        if (first.host, first.number) == (second.host, second.number):
            yield Fault(
                where=f"deployment.yml: ports of {deployment.name}",
                what=f"on {first.host} one port is for {first.purpose} and for {second.purpose}",
                got=str(first.number),
                remedy=_moves(first, second),
            )


def _moves(*ports: Port) -> str:
    """Say what an operator can move; the recipe's own ports stay."""
    keys = ["api.port", "ports.master", "ports.supervisor"]
    if any(port.purpose == placement.SSH for port in ports):
        keys.append(f"ansible_port of {ports[0].host}, where its sshd listens")
    return f"move {', '.join(keys[:-1])} or {keys[-1]}"


def _values_of_the_image(deployment: Deployment, resolution: Resolution) -> Iterator[Fault]:
    """Find given values that are the image's name and nothing else: hosts take it from ``image.name``."""
    launches = resolution.launches
    flags = (it for launch in launches for it in (*launch.flags, *launch.replaced_flags))
    vouched = {origin.source for flag in flags for origin in flag.token_provenances}
    env = (it for launch in launches for it in (*launch.env, *launch.replaced_env))
    vouched |= {entry.provenance.source for entry in env}
    named = {launch.image for launch in launches}
    for name, given in deployment.choice.values.items():
        if name in resolution.used and given in named and f"values.{name}" not in vouched:
            yield Fault(
                where=f"deployment.yml: values.{name} of {deployment.name}",
                what="image.name says it: hosts run the image of that name, whatever stands here",
                got=str(given),
                remedy="write it in image.name and remove it here",
            )


def _tier_too_large(deployment: Deployment, engines: Sequence[Engine], facts: Facts) -> Iterator[Fault]:
    """Find hosts that cannot pin a tier of a stated size: the engine would not start, or be killed."""
    tier = deployment.offload
    if tier is None or not tier.per_rank:
        return
    for engine in engines:
        ranks = engine.world_size // len(engine.members)
        holders = engine.members if engine.pool in {None, PREFILL} else ()
        for name in (member.host.name for member in holders if member.host.name in facts):
            total = facts[name].memory_total
            free = max(0, total - tier.reserve)
            if total and tier.per_rank * ranks > free:
                left = f"the {free / _GIB:.1f} GiB that the reserve leaves there"
                yield Fault(
                    where=f"deployment.yml: offload of {deployment.name}",
                    what=f"{ranks} ranks on {name} would pin more than {left}",
                    got=f"{tier.per_rank / _GIB:.1f} GiB per rank",
                    remedy=f"write per_rank: {free // ranks // _GIB} GiB or less",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """What all ranks share."""

    deployment: Deployment
    profile: HardwareProfile
    deadlines: Budget
    names: Mapping[str, str]
    """Placeholder -> what it stands for on every host."""


def _rank(site: _Site, engine: Engine, member: Member, facts: HostFacts | None) -> RankPlan:
    deployment, launch, host = site.deployment, member.launch, member.host
    address = host.engine_address
    interface = facts.devices[address] if facts else f"<device that carries {address}>"
    names = {**site.names, IFACE_NAME: interface}
    flags = tuple(
        dataclasses.replace(flag, tokens=tuple(_filled(token, names) for token in flag.tokens))
        for flag in (*launch.flags, *_host_flags(site, engine, member))
    )
    env = tuple(
        EnvEntry(name=entry.name, value=_filled(entry.value, names), provenance=entry.provenance)
        for entry in launch.env
    )
    own_address = EnvEntry(
        name="VLLM_HOST_IP", value=address, provenance=_derived("hosts.yml engine_address")
    )
    name = _name(deployment, member)
    return RankPlan(
        rank=launch.rank,
        role=launch.role,
        host=host,
        head=engine.head,
        engine_ranks=len(engine.members),
        api_port=placement.api_port(deployment, engine, launch),
        unit=f"{name}.service",
        serve_args=(deployment.model_path, *(token for flag in flags for token in flag.tokens)),
        flags=flags,
        env=(*_lengthened(env, site), own_address),
        secret_names=_secret_names(deployment),
        interface=interface,
        container=_container(site, engine, name, facts),
    )


def _name(deployment: Deployment, member: Member) -> str:
    """Return the name of a rank's unit and container; nodes of a pool are numbered."""
    role, rank = member.launch.role, member.launch.rank
    numbered = f"-{rank}" if role in {Role.PREFILL, Role.DECODE} else ""
    return f"vllm-{deployment.name}-{role.value}{numbered}"


def _filled(text: str, names: Mapping[str, str]) -> str:
    """Put in what placeholders stand for, each as a whole name."""
    return _PLACEHOLDER.sub(lambda match: names.get(match[0], match[0]), text)


def _lengthened(env: Sequence[EnvEntry], site: _Site) -> tuple[EnvEntry, ...]:
    """Give vLLM the plan's own deadline, or it gives up before anybody who waits for it."""
    wanted = str(site.deadlines.engine_ready)
    name = budget.ENGINE_READY
    if any(entry.name == name and entry.value == wanted for entry in env):
        return tuple(env)
    source = budget.longer_by(site.deadlines, site.deployment.timeouts)
    ours = EnvEntry(name=name, value=wanted, provenance=source)
    if not any(entry.name == name for entry in env):
        return (*env, ours) if site.deadlines.engine_ready != budget.VLLM_ENGINE_READY else tuple(env)
    return tuple(ours if entry.name == name else entry for entry in env)


def _host_flags(site: _Site, engine: Engine, member: Member) -> Iterator[Flag]:
    deployment, launch = site.deployment, member.launch
    yield Flag(
        tokens=("--served-model-name", launch.model_id),
        provenance=_derived("model path differs from the model id"),
    )
    if member.rendezvous:
        port = str(deployment.ports.master)
        yield Flag(tokens=("--master-port", port), provenance=_derived("port plan"))
    yield Flag(
        tokens=("--shutdown-timeout", str(site.deadlines.shutdown)),
        provenance=Provenance(origin=Origin.VLLM, source="default 0 drops open requests at a stop"),
    )
    address = placement.listens_on(member)
    if address:
        source = "hosts.yml: the API is reached at an IPv6 address, and untold vLLM listens on IPv4 alone"
        yield Flag(tokens=("--host", address), provenance=_derived(source))
    if launch.serves and not engine.pool:
        port = str(deployment.api.port)
        yield Flag(tokens=("--port", port), provenance=_derived("deployment.yml api.port"))


def _router(site: _Site, command: Sequence[str] | None) -> Router | None:
    if command is None:
        return None
    host, port = site.deployment.head, site.deployment.api.port
    own = {"$ROUTER_HOST": host.engine_address, "$ROUTER_PORT": str(port)}
    urls = {name: f"[{text}]" if ":" in text else text for name, text in site.names.items()}
    words = (_filled(word, urls if "://" in word else own) for word in command)
    return Router(host=host, command=tuple(words))


def _secret_names(deployment: Deployment) -> tuple[str, ...]:
    names = []
    if deployment.api.key:
        names.append("VLLM_API_KEY")
    if deployment.hub_token:
        names.append("HF_TOKEN")
    return tuple(names)


def _container(site: _Site, engine: Engine, name: str, facts: HostFacts | None) -> Container:
    deployment, profile = site.deployment, site.profile
    reference = fill_in.image(deployment.image)
    image_id = facts.images.get(reference) if facts else None
    unknown = reference if fill_in.is_open(deployment.image.name) else f"<image ID of {reference}>"
    return Container(
        name=name,
        image_id=image_id or unknown,
        devices=(*profile.devices, differences.RDMA) if engine.pool else profile.devices,
        ulimits=_ULIMITS,
        capabilities=_CAPABILITIES.get(profile.brand, ()),
        security_options=_SECURITY_OPTIONS.get(profile.brand, ()),
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


def _derived(source: str) -> Provenance:
    return Provenance(origin=Origin.DERIVED, source=source)
