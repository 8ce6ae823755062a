"""The plan for people: what runs where, and why it is so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from kimi_infra.domain.inventory import Deployment
from kimi_infra.domain.plan import DeploymentPlan, RankPlan
from kimi_infra.errors import Need
from kimi_infra.rendering import docker, grouping, shell

_BUDGET_NOTES = {
    "joined": "all rank supervisors connected",
    "engine_ready": "weights loaded, API listening",
    "first_answer": "first completion, its compilation included",
    "unit_start": "systemd TimeoutStartSec: the three above and a margin",
    "shutdown": "open requests may finish",
    "container_stop": "docker stop -t",
    "unit_stop": "systemd TimeoutStopSec",
}


def plans(found: Sequence[DeploymentPlan], needs: Sequence[Need]) -> str:
    """Return all deployments of an inventory and what is needed before applying."""
    blocks = ["\n".join(_deployment(plan)) for plan in found]
    if needs:
        blocks.append("\n".join(["needed before applying", *(f"  {need}" for need in needs)]))
    return "\n\n".join(blocks) + "\n"


def not_acted_on(deployment: Deployment) -> tuple[str, ...]:
    """Return what this version accepts and does nothing about, each with its value."""
    found = []
    if deployment.offload is not None and deployment.offload.policy != "off":
        policy, reserve = deployment.offload.policy, deployment.offload.reserve
        found.append(
            f"offload: policy {policy}, reserve {reserve} bytes; the KV cache has no host-memory tier"
        )
    if "reboot" in deployment.allow:
        found.append("allow: reboot; no host is rebooted")
    return tuple(found)


def _deployment(plan: DeploymentPlan) -> Iterator[str]:
    deployment = plan.deployment
    choice = deployment.choice
    yield f"deployment {deployment.name}: {choice.model}"
    yield f"  {choice.strategy} on {len(plan.ranks)} x {plan.hardware.title}, world size {plan.world_size}"
    digest = f"at {deployment.image.digest}" if deployment.image.pinned else "(not pinned yet)"
    yield f"  image {deployment.image.name} {digest}"
    yield f"  weights {deployment.model_path}"
    for rank in plan.ranks:
        yield ""
        yield from _rank(rank)
    yield ""
    yield "  ports"
    yield from _table((str(port.number), port.host, port.purpose) for port in plan.ports)
    yield "  time budget"
    seconds = ((field.name, getattr(plan.budget, field.name)) for field in fields(plan.budget))
    yield from _table((name, f"{value} s", _BUDGET_NOTES[name]) for name, value in seconds)
    yield "  hosts run something else than the recipe page in these points"
    yield from (f"    - {difference}" for difference in plan.differences)
    idle = not_acted_on(deployment)
    if idle:
        yield "  accepted, not acted on by this version"
        yield from (f"    - {value}" for value in idle)


def _rank(rank: RankPlan) -> Iterator[str]:
    yield f"  {rank.host.name}: rank {rank.rank} ({rank.role.value}), unit {rank.unit}"
    host = rank.host
    yield f"    ssh {host.user}@{host.address}, engine {host.engine_address} on {rank.interface}"
    yield "    command"
    lines = grouping.by_option(docker.run_argv(rank))
    yield from (f"      {' '.join(shell.quote(word) for word in line)}" for line in lines)
    yield "    where each flag comes from"
    yield from _table((" ".join(flag.tokens), str(flag.provenance)) for flag in rank.flags)
    yield "    environment"
    yield from _table((f"{entry.name}={entry.value}", str(entry.provenance)) for entry in rank.env)
    if rank.secret_names:
        yield f"    secrets, in a file that root alone can read: {', '.join(rank.secret_names)}"


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    found = list(rows)
    widths = [max(len(row[column]) for row in found) for column in range(len(found[0]))] if found else []
    for row in found:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"      {'  '.join(cells)}".rstrip()
