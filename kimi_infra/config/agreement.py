"""Checks between values: ranks and addresses within a group or pool, ports within and between deployments.

Drafts may have faults of their own: a field without a usable value is None and never blamed twice.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kimi_infra.config.models import DeploymentModel, HostModel
from kimi_infra.config.values import fill_in, plain_address
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain.inventory import KV_TIER_BYTES
from kimi_infra.errors import Fault

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
CLUSTER = "pd_cluster"
"""Name of the strategy whose hosts are in pools."""
_ROUTER_PORT = 30000
"""The public page's port of the router of a prefill/decode cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDraft:
    """A host as far as it could be read."""

    name: str
    model: HostModel
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentDraft:
    """An entry of deployment.yml as far as it could be read, with the hosts of its group."""

    index: int
    model: DeploymentModel
    at: Place
    hosts: tuple[HostDraft, ...] | None
    """None when the group is not known."""
    pools: Mapping[str, tuple[HostDraft, ...]] | None = None
    """Hosts by pool; None unless this is a prefill/decode cluster whose pools are known."""

    @property
    def clustered(self) -> bool:
        """Whether the hosts are in pools."""
        return self.model.strategy == CLUSTER

    @property
    def api_port(self) -> int | None:
        """Port that clients use; None when it has a fault."""
        if self.clustered and self.at.under("api", "port").value is None:
            return _ROUTER_PORT
        return self.model.api.port if self.model.api else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PortUse:
    number: int
    name: str
    at: Place


def faults(deployments: Sequence[DeploymentDraft]) -> Iterator[Fault]:
    """Find everything that contradicts something else."""
    yield from _names(deployments)
    for draft in deployments:
        yield from _repeats(draft)
        yield from _nodes(draft)
        yield from _pools(draft)
        yield from _all_ranks(draft)
        yield from _offload(draft)
        yield from _loopback(draft)
        yield from _families(draft)
        yield from _ports_within(draft)
    yield from _addresses(deployments)
    for first, second in itertools.combinations(deployments, 2):
        yield from _ports_between(first, second)


def _names(deployments: Iterable[DeploymentDraft]) -> Iterator[Fault]:
    seen: dict[str, int] = {}
    for draft in deployments:
        name = draft.model.name
        if name is not None and seen.setdefault(name, draft.index) != draft.index:
            what = f"deployments[{seen[name]}] has this name too"
            yield draft.at.under("name").fault(what, "give each deployment its own name")


def _repeats(draft: DeploymentDraft) -> Iterator[Fault]:
    mounts = draft.model.mounts or []
    for index, path in enumerate(mounts):
        known = path == draft.model.model_path or path in mounts[:index]
        if known and path is not None and not fill_in(path):
            what = "the engine sees this directory already"
            yield draft.at.under("mounts", index).fault(what, "remove it from mounts")


def _nodes(draft: DeploymentDraft) -> Iterator[Fault]:
    nodes, hosts = draft.model.nodes, draft.hosts
    if nodes is not None and hosts and nodes != len(hosts):
        what = f"group {draft.model.group} has {_counted(len(hosts))}"
        remedy = f"write {len(hosts)}, or list the hosts that are meant in hosts.yml"
        yield draft.at.under("nodes").fault(what, remedy)


def _pools(draft: DeploymentDraft) -> Iterator[Fault]:
    asked = draft.at.under("pools")
    if draft.model.strategy is not None and not draft.clustered and asked.value is not None:
        what = f"strategy {draft.model.strategy} has no pools"
        yield asked.fault(what, f"remove it, or choose strategy {CLUSTER}", got=False)


def _all_ranks(draft: DeploymentDraft) -> Iterator[Fault]:
    if not draft.clustered:
        yield from _ranks(draft.hosts or (), f"group {draft.model.group}")
    for name, hosts in (draft.pools or {}).items():
        yield from _ranks(hosts, f"pool {name} of group {draft.model.group}")


def _ranks(hosts: Sequence[HostDraft], where: str) -> Iterator[Fault]:
    span = "0" if len(hosts) == 1 else f"0 to {len(hosts) - 1}"
    remedy = f"give the {_counted(len(hosts))} of {where} the ranks {span}"
    holder: dict[int, str] = {}
    for host in hosts:
        rank = host.model.node_rank
        if rank is None:
            continue
        if holder.setdefault(rank, host.name) != host.name:
            what = f"{holder[rank]} is the head already" if rank == 0 else f"{holder[rank]} has this rank too"
            yield host.at.under("node_rank").fault(what, remedy)
        elif rank >= len(hosts):
            what = f"the ranks of the {where.partition(' ')[0]} have a gap"
            yield host.at.under("node_rank").fault(what, remedy)


def _offload(draft: DeploymentDraft) -> Iterator[Fault]:
    asked, at = draft.model.offload, draft.at.under("offload", "per_rank")
    policy = asked.policy if asked else None
    if policy == "fixed" and at.value is None:
        remedy = "give it: host memory that each accelerator pins, for example 128 GiB"
        yield at.fault("policy fixed needs the size", remedy, got=False)
    elif policy is not None and policy != "fixed" and at.value is not None:
        yield at.fault(f"policy {policy} takes no size", "write policy: fixed, or remove per_rank")
    if KV_TIER_BYTES in (draft.model.values or {}):
        remedy = "write offload: {policy: fixed, per_rank: 128 GiB} for example"
        place = draft.at.under("values", KV_TIER_BYTES)
        yield place.fault("the size of the tier has a key of its own", remedy)


def _loopback(draft: DeploymentDraft) -> Iterator[Fault]:
    hosts = draft.hosts or ()
    for host in hosts:
        address = _engine_address(host)
        if len(hosts) > 1 and address is not None and address.is_loopback:
            what = "other hosts cannot reach a loopback address"
            remedy = "write the host's own address in the network of the engine"
            yield host.at.under("engine_address").fault(what, remedy)


def _families(draft: DeploymentDraft) -> Iterator[Fault]:
    read = [(host, address) for host in draft.hosts or () if (address := _engine_address(host))]
    for host, address in read:
        first, theirs = read[0]
        if address.version != theirs.version:
            what = f"{first.name} has an IPv{theirs.version} address"
            remedy = "give all hosts of a group addresses of one family"
            yield host.at.under("engine_address").fault(what, remedy)


def _engine_address(host: HostDraft) -> _Address | None:
    text = host.model.engine_address
    return None if text is None or fill_in(text) else ipaddress.ip_address(text)


def _addresses(deployments: Iterable[DeploymentDraft]) -> Iterator[Fault]:
    hosts = {host.name: host for draft in deployments for host in draft.hosts or ()}
    ssh: dict[tuple[str, int], str] = {}
    engine: dict[str, str] = {}
    for host in hosts.values():
        address, port, own = host.model.ansible_host, host.model.ansible_port, host.model.engine_address
        remedy = "give each host its own address"
        if address and port and not fill_in(address):
            holder = ssh.setdefault((plain_address(address), port), host.name)
            if holder != host.name:
                yield host.at.under("ansible_host").fault(f"{holder} has this address too", remedy)
        if own and not fill_in(own) and engine.setdefault(own, host.name) != host.name:
            yield host.at.under("engine_address").fault(f"{engine[own]} has this address too", remedy)


def _port_uses(draft: DeploymentDraft) -> Iterator[_PortUse]:
    model = draft.model
    planned = (
        ("api.port", draft.api_port),
        ("ports.master", model.ports.master if model.ports else None),
        ("ports.supervisor", model.ports.supervisor if model.ports else None),
    )
    for name, number in planned:
        if number is not None:
            yield _PortUse(number=number, name=name, at=draft.at.under(*name.split(".")))


def _ports_within(draft: DeploymentDraft) -> Iterator[Fault]:
    seen: dict[int, str] = {}
    for use in _port_uses(draft):
        if seen.setdefault(use.number, use.name) != use.name:
            what = f"port {use.number} is {seen[use.number]} too"
            yield use.at.fault(what, "give each purpose its own port")
        for host in draft.hosts or ():
            if host.model.ansible_port == use.number:
                yield use.at.fault(f"SSH of {host.name} has port {use.number} too", "choose another port")


def _ports_between(first: DeploymentDraft, second: DeploymentDraft) -> Iterator[Fault]:
    names = {host.name for host in first.hosts or ()}
    shared = [host.name for host in second.hosts or () if host.name in names]
    taken = {use.number: use.name for use in _port_uses(first)}
    for use in _port_uses(second):
        if shared and use.number in taken:
            other = f"deployments[{first.index}].{taken[use.number]}"
            what = f"port {use.number} is {other} too, on {' and '.join(shared)}"
            remedy = (
                "give each deployment hosts of its own; only engines without GPUs may share, on other ports"
            )
            yield use.at.fault(what, remedy)


def _counted(hosts: int) -> str:
    return f"{hosts} host{'' if hosts == 1 else 's'}"
