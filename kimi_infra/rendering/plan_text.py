"""The plan for people: what runs where, and why it is so."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from kimi_infra.domain import fill_in
from kimi_infra.domain.launch import Role
from kimi_infra.domain.plan import DeploymentPlan, Port, RankPlan
from kimi_infra.errors import Need
from kimi_infra.rendering import capacity_text, docker, grouping, shell

_FLAG_MOST = 60
_GIB = 1 << 30
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


def not_acted_on(plan: DeploymentPlan) -> tuple[str, ...]:
    """Return what this version accepts and does nothing about, each with its value."""
    found = []
    offload = plan.deployment.offload
    if offload is not None and offload.policy == "measured":
        planned = any(need.where == "offload.per_rank" for need in plan.needs)
        why = "its size is not measured yet" if planned else "the KV cache has no host-memory tier"
        found.append(f"offload: policy {offload.policy}, reserve {offload.reserve} bytes; {why}")
    if "reboot" in plan.deployment.allow:
        found.append("allow: reboot; no host is rebooted")
    return tuple(found)


def _deployment(plan: DeploymentPlan) -> Iterator[str]:
    yield from _header(plan)
    known: dict[tuple[Role, str], RankPlan] = {}
    for rank in plan.ranks:
        yield ""
        # Ranks of one engine differ in few places, which would be lost among all the others.
        first = known.setdefault((_kind(rank), rank.head.name), rank)
        yield from _rank(rank, None if first is rank else first)
    if plan.router:
        yield ""
        yield f"  router on {plan.router.host.name}"
        yield from _command(plan.router.command)
    yield ""
    yield "  ports"
    yield from _table(_ports(plan.ports))
    yield "  time budget"
    seconds = ((field.name, getattr(plan.budget, field.name)) for field in fields(plan.budget))
    yield from _table((name, f"{value} s", _BUDGET_NOTES[name]) for name, value in seconds)
    yield "  hosts run something else than the recipe page in these points"
    yield from (f"    - {difference}" for difference in plan.differences)
    idle = not_acted_on(plan)
    if idle:
        yield "  accepted, not acted on by this version"
        yield from (f"    - {value}" for value in idle)


def _header(plan: DeploymentPlan) -> Iterator[str]:
    deployment = plan.deployment
    choice = deployment.choice
    yield f"deployment {deployment.name}: {choice.model}"
    yield f"  {choice.strategy} on {_nodes(plan)} x {plan.hardware.title}, world size {plan.world_size}"
    digest = f"at {deployment.image.digest}" if deployment.image.pinned else "(not pinned yet)"
    yield f"  image {fill_in.placeholder(deployment.image.name)} {digest}"
    yield f"  weights {deployment.model_path}"
    chosen = [*_chosen(plan)]
    if chosen:
        yield f"  with {', '.join(chosen)}"
    yield from _capacity(plan)
    yield from (f"  note: {note}" for note in plan.notes)
    yield from (f"  warning: {warning}" for warning in plan.warnings)
    counts = ", ".join(f"{origin.value} {count}" for origin, count in plan.origins.items())
    yield f"  origins of flags and variables: {counts}"
    if plan.needs:
        yield "  nobody has published, so deployment.yml must say"
        yield from (f"    {need}" for need in plan.needs)


def _capacity(plan: DeploymentPlan) -> Iterator[str]:
    if not plan.capacity:
        yield "  capacity not known: the recipe says nothing of the model's cache (x-cache)"
    for name, held in plan.capacity.items():
        yield "  capacity" if len(plan.capacity) == 1 else f"  capacity of {name}"
        yield from (f"    {line}" for line in capacity_text.lines(held))


def _nodes(plan: DeploymentPlan) -> str:
    pools = plan.deployment.pools
    return " + ".join(f"{len(hosts)} ({name})" for name, hosts in pools.items()) or str(len(plan.ranks))


def _chosen(plan: DeploymentPlan) -> Iterator[str]:
    choice, offload = plan.deployment.choice, plan.deployment.offload
    if choice.variant != "default":
        yield f"variant {choice.variant}"
    if choice.preset:
        yield f"preset {choice.preset}"
    if choice.dcp:
        yield f"decode context parallelism {choice.dcp}"
    if offload is not None and offload.per_rank:
        yield f"a KV tier of {offload.per_rank / _GIB:g} GiB of host memory a rank"


def _kind(rank: RankPlan) -> Role:
    return Role.HEAD if rank.role is Role.WORKER else rank.role


def _rank(rank: RankPlan, like: RankPlan | None) -> Iterator[str]:
    yield f"  {rank.host.name}: rank {rank.rank} ({rank.role.value}), unit {rank.unit}"
    host = rank.host
    yield f"    ssh {host.user}@{host.address}, engine {host.engine_address} on {rank.interface}"
    yield "    command"
    yield from _command(docker.run_argv(rank))
    but = f", as on {like.host.name} but for" if like else ""
    flags, variables = _flags(rank), _variables(rank)
    yield f"    where each flag comes from{but}"
    yield from _table(_short(row) for row in flags if like is None or row not in _flags(like))
    yield f"    environment{but}"
    yield from _table(row for row in variables if like is None or row not in _variables(like))
    if rank.secret_names:
        yield f"    secrets, in a file that root alone can read: {', '.join(rank.secret_names)}"


def _command(argv: Sequence[str]) -> Iterator[str]:
    for line in grouping.by_option(argv):
        yield f"      {' '.join(shell.quote(word) for word in line)}"


def _short(row: tuple[str, str]) -> tuple[str, str]:
    """Cut a long flag: its whole text stands in the command above."""
    text, source = row
    return (text if len(text) <= _FLAG_MOST else f"{text[: _FLAG_MOST - 3]}...", source)


def _flags(rank: RankPlan) -> list[tuple[str, str]]:
    return [(" ".join(flag.tokens), flag.vouched) for flag in rank.flags]


def _variables(rank: RankPlan) -> list[tuple[str, str]]:
    return [(f"{entry.name}={entry.value}", str(entry.provenance)) for entry in rank.env]


def _ports(ports: Sequence[Port]) -> Iterator[tuple[str, str, str]]:
    """Yield the ports; consecutive ones of one host and purpose are one row."""
    rows = ((port.number - place, port.host, port.purpose, port) for place, port in enumerate(ports))
    for (_, host, purpose), several in itertools.groupby(rows, key=lambda row: row[:3]):
        numbers = [port.number for *_, port in several]
        first, last = numbers[0], numbers[-1]
        yield str(first) if first == last else f"{first}-{last}", host, purpose


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    found = list(rows)
    widths = [max(len(row[column]) for row in found) for column in range(len(found[0]))] if found else []
    for row in found:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"      {'  '.join(cells)}".rstrip()
