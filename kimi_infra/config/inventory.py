"""An inventory directory (hosts.yml and deployment.yml) → :class:`~kimi_infra.domain.inventory.Inventory`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kimi_infra.config import agreement, asked, reading, varfolders, yamlfile
from kimi_infra.config import hosts as hostsfile
from kimi_infra.config.agreement import DeploymentDraft, HostDraft
from kimi_infra.config.asked import Asked
from kimi_infra.config.hosts import HostsFile
from kimi_infra.config.models import DeploymentFile, DeploymentModel, HostModel, ImageModel
from kimi_infra.config.reading import Findings
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names
from kimi_infra.domain.inventory import (
    Api,
    Deployment,
    Host,
    ImageChoice,
    Inventory,
    Mount,
    Offload,
    Ports,
    Timeouts,
)
from kimi_infra.domain.recipe import POOLS
from kimi_infra.errors import Fault, Need, SpecError

_Finding = TypeVar("_Finding", Fault, Need)
HOSTS = "hosts.yml"
DEPLOYMENT = "deployment.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything that the two files say, right and wrong."""

    inventory: Inventory | None
    """None when there are faults."""
    faults: tuple[Fault, ...]
    asked: tuple[Asked, ...]


def load(path: Path) -> Inventory:
    """Return a checked inventory.

    Raises:
        SpecError: holds every fault of both files.
    """
    result = read(path)
    if result.inventory is None:
        raise SpecError(result.faults)
    return result.inventory


def read(path: Path) -> Reading:
    """Read an inventory with its faults; never raises for what the files hold."""
    found = Findings()
    host_root = yamlfile.read(path / HOSTS, found.faults)
    groups = hostsfile.read(host_root, found) if host_root else None
    found.faults.extend(varfolders.faults(path, groups) if groups else ())
    root = yamlfile.read(path / DEPLOYMENT, found.faults)
    entries = list(_entries(root, found)) if root else []
    hosts = _hosts(groups, entries, found) if groups else {}
    drafts = [_draft(entry, groups, hosts, found) for entry in entries]
    found.faults.extend(agreement.faults(drafts))
    images = {draft.index: _image(draft, path, found) for draft in drafts}
    faults = _in_order(found.faults)
    choices = tuple(asked.of(drafts))
    if faults:
        return Reading(inventory=None, faults=faults, asked=choices)
    inventory = Inventory(
        name=path.resolve().name,
        path=str(path.resolve()),
        deployments=tuple(_deployment(draft, images[draft.index]) for draft in drafts),
        needs=_in_order(found.needs),
    )
    return Reading(inventory=inventory, faults=(), asked=choices)


def _in_order(findings: list[_Finding]) -> tuple[_Finding, ...]:
    """Return each finding once, those of hosts.yml first; a group's variable is read for each host."""
    unique = dict.fromkeys(findings)
    return tuple(sorted(unique, key=lambda finding: not finding.where.startswith(HOSTS)))


def _entries(root: Place, found: Findings) -> Iterator[tuple[int, DeploymentModel, Place]]:
    file = reading.read(DeploymentFile, root, found)
    for index, model in enumerate((file.deployments if file else None) or ()):
        if model is not None:
            yield index, model, root.under("deployments", index)


def _hosts(
    groups: HostsFile, entries: list[tuple[int, DeploymentModel, Place]], found: Findings
) -> dict[str, HostDraft]:
    """Read the hosts of all deployments; all hosts when it cannot be told which ones serve."""
    asked = [model.group for _, model, _ in entries]
    known = [group for group in asked if group == hostsfile.ROOT or group in groups.groups]
    names_ = [name for group in known for name in groups.members(group)]
    if not asked or len(known) < len(asked):
        names_ += groups.places
    drafts = {}
    for name in dict.fromkeys(names_):
        at = groups.variables(name)
        drafts[name] = HostDraft(name=name, model=_host_model(name, at, found), at=at)
    return drafts


def _host_model(name: str, at: Place, found: Findings) -> HostModel:
    model = reading.fields(HostModel, at, found)
    if at.under("ansible_host").value is None:
        model.ansible_host = name
    return model


def _draft(
    entry: tuple[int, DeploymentModel, Place],
    groups: HostsFile | None,
    hosts: dict[str, HostDraft],
    found: Findings,
) -> DeploymentDraft:
    index, model, at = entry
    members = _members(model, at, groups, found) if groups and model.group is not None else None
    serving = None if members is None else tuple(hosts[name] for name in members)
    draft = DeploymentDraft(index=index, model=model, at=at, hosts=serving)
    if not draft.clustered or groups is None or not serving:
        return draft
    return dataclasses.replace(draft, pools=_pools(draft, groups, found))


def _pools(
    draft: DeploymentDraft, groups: HostsFile, found: Findings
) -> dict[str, tuple[HostDraft, ...]] | None:
    """Return the hosts of each pool; None when one has none, or a host is not in exactly one of them."""
    group, hosts = draft.model.group, draft.hosts or ()
    members = {name: groups.members(name) if groups.has_child(group, name) else () for name in POOLS}
    pools = {name: tuple(host for host in hosts if host.name in members[name]) for name in POOLS}
    empty = [name for name in POOLS if not pools[name]]
    if empty:
        what = f"strategy {draft.model.strategy}, and no hosts in its child group {' and in '.join(empty)}"
        remedy = (
            f"write {group}: {{children: {{prefill: {{hosts: ...}}, decode: {{hosts: ...}}}}}} in {HOSTS}"
        )
        found.faults.append(draft.at.under("group").fault(what, remedy))
    counts = {} if empty else {host.name: sum(host in pool for pool in pools.values()) for host in hosts}
    for host in (host for host in hosts if counts.get(host.name, 1) != 1):
        either = "both" if counts[host.name] else "neither"
        what = f"the host is in {either} of the pools {' and '.join(POOLS)}"
        found.faults.append(host.at.fault(what, "list it in one of the two groups", got=False))
    return None if empty or set(counts.values()) != {1} else pools


def _members(model: DeploymentModel, at: Place, groups: HostsFile, found: Findings) -> tuple[str, ...] | None:
    place, known = at.under("group"), {hostsfile.ROOT, *groups.groups}
    if model.group not in known:
        found.faults.append(place.fault(f"no such group in {HOSTS}", names.closest(model.group, known)))
        return None
    members = groups.members(model.group)
    if not groups.is_complete(model.group):
        return None
    if not members:
        what = f"the group has no hosts in {HOSTS}"
        found.faults.append(place.fault(what, "list its hosts there, or name another group"))
    return members


def _image(draft: DeploymentDraft, base: Path, found: Findings) -> ImageChoice | None:
    image, place = draft.model.image, draft.at.under("image")
    if image is None:
        return None
    digest = image.digest or f"<fill in: digest of {image.name}>"
    return ImageChoice(name=image.name, digest=digest, registry_ca=_certificate(image, place, base, found))


def _certificate(image: ImageModel, at: Place, base: Path, found: Findings) -> str | None:
    place, asked = at.under("registry_ca"), image.registry_ca
    if asked is None:
        return None
    try:
        text = (base / asked).read_text(encoding="ascii")
    except FileNotFoundError:
        found.needs.append(Need(where=place.where, what=f"put the certificate at {asked}: no such file"))
        return None
    except (OSError, ValueError):
        found.faults.append(place.fault(f"{asked} cannot be read", "name a readable PEM file"))
        return None
    if "-----BEGIN CERTIFICATE-----" not in text or re.search("PRIVATE KEY", text):
        what = f"{asked} is not a certificate alone"
        found.faults.append(place.fault(what, "name a PEM file of certificates without a private key"))
    return text


def _deployment(draft: DeploymentDraft, image: ImageChoice | None) -> Deployment:
    model = draft.model
    if image is None or draft.hosts is None:
        raise AssertionError(f"deployments[{draft.index}] has neither faults nor all values")
    return Deployment(
        name=model.name,
        group=model.group,
        hosts=tuple(_in_ranks(draft.pools.values() if draft.pools else (draft.hosts,))),
        choice=asked.choice(draft),
        image=image,
        model_path=model.model_path,
        model_sha256=model.model_sha256,
        api=Api(port=draft.api_port or model.api.port, key=model.api.key),
        hub_token=model.hub_token,
        ports=Ports(master=model.ports.master, supervisor=model.ports.supervisor),
        mounts=tuple(Mount(path=path) for path in model.mounts),
        timeouts=Timeouts(engine_ready=model.timeouts.engine_ready, first_answer=model.timeouts.first_answer),
        offload=_offload(draft),
        allow=frozenset(model.allow),
    )


def _offload(draft: DeploymentDraft) -> Offload | None:
    if draft.at.under("offload").value is None:
        return None
    tier = draft.model.offload
    return Offload(policy=tier.policy, reserve=tier.reserve, per_rank=asked.tier_size(draft))


def _in_ranks(pools: Iterable[Sequence[HostDraft]]) -> Iterator[Host]:
    for hosts in pools:
        yield from sorted(map(_host, hosts), key=lambda host: host.rank)


def _host(draft: HostDraft) -> Host:
    model = draft.model
    return Host(
        name=draft.name,
        address=model.ansible_host or draft.name,
        user=model.ansible_user,
        port=model.ansible_port,
        host_key=model.host_key,
        engine_address=model.engine_address,
        rank=model.node_rank,
        identity_file=model.ansible_ssh_private_key_file,
        ssh_args=model.ansible_ssh_common_args or (),
    )
