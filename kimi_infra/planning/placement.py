"""Launches on hosts: which ranks are one engine, where its ranks find each other, and on which ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kimi_infra.domain.inventory import Deployment, Host
from kimi_infra.domain.launch import HEAD_IP, Launch, Role
from kimi_infra.domain.plan import Port
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import parallel

RPC_PORT = 29550
"""vLLM's default of ``--data-parallel-rpc-port`` (vllm: config/parallel.py); no two pools share a host."""
SSH = "SSH"
"""Purpose of the port of a host's sshd."""
_SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_PORT"
_DIGITS = 9
"""Of a number in a command; more count nothing that there is."""
_LOCAL = "--data-parallel-size-local"
_HOST = "--host"
_START = "--data-parallel-start-rank"
_WORLD = (parallel.TENSOR_PARALLEL, "--pipeline-parallel-size", parallel.DATA_PARALLEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One rank on its host."""

    launch: Launch
    host: Host

    def number(self, flag: str) -> int | None:
        """Return the number behind a flag, None when the command has no such flag or no number there.

        Raises:
            SpecError: the number is beyond all sense.
        """
        words = (it.tokens[1] for it in self.launch.flags if it.name == flag and len(it.tokens) > 1)
        return next((_number(flag, word) for word in words if word.isdecimal()), None)

    @property
    def rendezvous(self) -> bool:
        """Whether the rank meets the others at rank 0's master port."""
        return any(flag.name == "--master-addr" for flag in self.launch.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Ranks that are one engine: a pool, or all of a deployment."""

    pool: str | None
    members: tuple[Member, ...]

    @property
    def head(self) -> Host:
        """The host of rank 0."""
        return self.members[0].host

    @property
    def spread_replicas(self) -> bool:
        """Whether data-parallel replicas are on several nodes."""
        return len(self.members) > 1 and (self.members[0].number(parallel.DATA_PARALLEL) or 1) > 1

    @property
    def world_size(self) -> int:
        """TP x PP x DP."""
        size = 1
        for flag in _WORLD:
            size *= self.members[0].number(flag) or 1
        return size


def _number(where: str, word: str) -> int:
    if len(word) > _DIGITS:
        what, remedy = "a number beyond all sense", f"write {_DIGITS} digits or fewer"
        got = f"{word[:_DIGITS]}..., {len(word)} digits"
        raise SpecError((Fault(where=where, what=what, got=got, remedy=remedy),))
    return int(word)


def engines(deployment: Deployment, launches: Sequence[Launch]) -> tuple[Engine, ...]:
    """Give each launch its host."""
    hosts = zip(launches, deployment.hosts, strict=True)
    members = tuple(Member(launch=launch, host=host) for launch, host in hosts)
    if not deployment.pools:
        return (Engine(pool=None, members=members),)
    return tuple(
        Engine(pool=role.value, members=tuple(one for one in members if one.launch.role is role))
        for role in (Role.PREFILL, Role.DECODE)
    )


def addresses(found: Sequence[Engine]) -> Mapping[str, str]:
    """Return what the page's placeholders stand for on every host alike."""
    names = {}
    for engine in found:
        if engine.pool is None:
            names[HEAD_IP] = engine.head.engine_address
            continue
        for rank, member in enumerate(engine.members):
            names[parallel.node(engine.pool, rank)] = member.host.engine_address
        names[f"${engine.pool.upper()}_DP_RPC_PORT"] = str(RPC_PORT)
    return names


def api_port(deployment: Deployment, engine: Engine, launch: Launch) -> int | None:
    """Return the port of a rank's own API; behind a router it is the recipe's, not the operator's."""
    if not launch.serves:
        return None
    return launch.port if engine.pool else deployment.api.port


def listens_on(member: Member) -> str | None:
    """Return the address that a rank's API has to be told to take, None where vLLM's own choice will do.

    Untold, vLLM takes IPv4 alone (vllm: entrypoints/launchers/launcher.py). A router comes by the engine
    address, clients by the one that SSH takes; the unspecified address of IPv6 takes both families, and
    with them the host's own checks by its loopback address.
    """
    host, launch = member.host, member.launch
    newer = any(":" in address for address in (host.address, host.engine_address))
    return "::" if launch.serves and newer else None


def ports(deployment: Deployment, found: Sequence[Engine], *, router: bool) -> Iterator[Port]:
    """Yield every port that the plan knows, and who listens on it."""
    if router:
        yield Port(number=deployment.api.port, purpose="router", host=deployment.head.name)
    for engine in found:
        of_pool = f" of {engine.pool}" if engine.pool else ""
        for member in engine.members:
            number = api_port(deployment, engine, member.launch)
            if number is not None:
                yield Port(number=number, purpose=f"API{of_pool}", host=member.host.name)
        yield from _meeting(deployment, engine, of_pool)
        for member in engine.members:
            yield from _side_channels(member)


def ssh(deployment: Deployment) -> Iterator[Port]:
    """Yield what is taken on the hosts before anything of the plan's starts."""
    for host in deployment.hosts:
        yield Port(number=host.port, purpose=SSH, host=host.name)


def _meeting(deployment: Deployment, engine: Engine, of_pool: str) -> Iterator[Port]:
    head, first = engine.head.name, engine.members[0]
    if first.rendezvous:
        yield Port(number=deployment.ports.master, purpose=f"rendezvous of the ranks{of_pool}", host=head)
    if (first.number(parallel.DATA_PARALLEL) or 1) > (first.number(_LOCAL) or 1):
        yield Port(number=RPC_PORT, purpose=f"data-parallel ranks{of_pool}", host=head)
    if len(engine.members) > 1:
        yield Port(number=deployment.ports.supervisor, purpose=f"rank supervisors{of_pool}", host=head)


def _side_channels(member: Member) -> Iterator[Port]:
    """Yield a port for each scheduler of the host, counted by data-parallel rank (vllm: NIXL connector)."""
    texts = (it.value for it in member.launch.env if it.name == _SIDE_CHANNEL and it.value.isdecimal())
    base = next(texts, None)
    if base is None or not member.launch.serves:
        return
    first = _number(_SIDE_CHANNEL, base) + (member.number(_START) or 0)
    for number in range(first, first + (member.number(_LOCAL) or 1)):
        yield Port(number=number, purpose="KV transfer (NIXL)", host=member.host.name)
