"""What a stage is to bring about, in a form that reads well as a difference; nothing of it is secret."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from kimi_infra.cloud import stages
from kimi_infra.deploy import layout, site
from kimi_infra.domain.inventory import Host, Inventory, SecretRef
from kimi_infra.domain.plan import DeploymentPlan, HostLayout, RankPlan
from kimi_infra.rendering import docker

_SHOWN = 16


def references(inventory: Inventory) -> tuple[SecretRef, ...]:
    """Return every secret reference of an inventory."""
    found = [ref for each in inventory.deployments for ref in (each.api.key, each.hub_token)]
    return tuple(dict.fromkeys(ref for ref in found if ref is not None))


def targets(found: site.Site) -> dict[str, str]:
    """Return where each host is reached."""
    return {host.name: target(host) for host in found.hosts}


def target(host: Host) -> str:
    """Return where one host is reached, as ssh writes it."""
    return f"{host.user}@{host.address}:{host.port}"


def allowed(found: site.Site) -> dict[str, list[str]]:
    """Return the standing consent of each deployment."""
    return {each.name: sorted(each.allow) for each in found.inventory.deployments}


def plan(stage: stages.Stage, found: site.Site) -> dict[str, object]:
    """Return the stage's part of the plan as far as it is known without asking a host."""
    plans = site.offline(found)
    if stage is stages.VERIFY:
        return {each.deployment.name: layout.plan_hash(each) for each in plans}
    layouts = {each.deployment.name: layout.layouts(each, _hidden) for each in plans}
    if stage is stages.SERVE:
        return {each.deployment.name: _ranks(each, layouts[each.deployment.name]) for each in plans}
    every = tuple(one for several in layouts.values() for one in several)
    offline = site.Converge(plans=plans, layouts=every)
    return {host.name: _part(offline, host, stage) for host in found.hosts}


def _part(offline: site.Converge, host: Host, stage: stages.Stage) -> Mapping[str, object]:
    return offline.role_data(host.name)[stage.role]


def _hidden(_: SecretRef) -> str:
    return "hidden"


def _ranks(each: DeploymentPlan, layouts: tuple[HostLayout, ...]) -> dict[str, object]:
    by_host = {one.host: one for one in layouts}
    return {rank.host.name: _rank(rank, by_host[rank.host.name]) for rank in each.ranks}


def _rank(rank: RankPlan, laid: HostLayout) -> dict[str, object]:
    return {
        "role": rank.role.value,
        "unit": rank.unit,
        "command": list(docker.run_argv(rank)),
        "env": {entry.name: entry.value for entry in rank.env},
        "files": {file.path: _hash(file.content) for file in laid.files if not file.secret},
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_SHOWN]
