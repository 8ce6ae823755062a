"""A plan to the files of each host, secrets resolved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping

from kimi_infra import hostside
from kimi_infra.domain import paths
from kimi_infra.domain.inventory import SecretRef
from kimi_infra.domain.plan import DeploymentPlan, HostFile, HostLayout, RankPlan
from kimi_infra.rendering import docker, envfile, units

Resolver = Callable[[SecretRef], str]
"""Gives a secret for its reference, or raises :class:`kimi_infra.errors.SecretError`."""


def layouts(plan: DeploymentPlan, resolve: Resolver) -> tuple[HostLayout, ...]:
    """Render every file of every rank.

    Raises:
        SecretError: a reference leads nowhere.
        UnsafeTextError: a value cannot be written in the syntax of the file that needs it.
    """
    return tuple(_layout(plan, rank, resolve) for rank in plan.ranks)


def plan_hash(plan: DeploymentPlan) -> str:
    """Name what the whole group runs: equal on all ranks, another when a command or the weights differ."""
    commands = [
        (docker.run_argv(rank), [(entry.name, entry.value) for entry in rank.env]) for rank in plan.ranks
    ]
    return hashlib.sha256(json.dumps([plan.deployment.model_sha256, commands]).encode()).hexdigest()


def rank_config(plan: DeploymentPlan, rank: RankPlan) -> Mapping[str, object]:
    """Return the rank supervisor's configuration."""
    deployment, budget = plan.deployment, plan.budget
    name = deployment.name
    listening = [port for port in plan.ports if port.host == rank.host.name]
    return {
        "deployment": name,
        "rank": rank.rank,
        "role": rank.role.value,
        "ranks": rank.engine_ranks,
        "plan": plan_hash(plan),
        "container": rank.container.name,
        "head_address": rank.head.engine_address,
        "own_address": rank.host.engine_address,
        "interface": rank.interface,
        "supervisor_port": deployment.ports.supervisor,
        "master_port": deployment.ports.master,
        "api_port": deployment.api.port if rank.api_port is None else rank.api_port,
        "model": deployment.choice.model,
        # Other weights at the same path are in no command.
        "model_sha256": deployment.model_sha256,
        "inputs": [paths.rank_config(name), paths.engine_env(name), paths.secret_env(name)],
        "secret_env": paths.secret_env(name),
        "ports": [{"number": port.number, "purpose": port.purpose} for port in listening],
        "seconds": {
            "joined": budget.joined,
            "engine_ready": budget.engine_ready,
            "first_answer": budget.first_answer,
            "shutdown": budget.shutdown,
            "container_stop": budget.container_stop,
        },
    }


def _layout(plan: DeploymentPlan, rank: RankPlan, resolve: Resolver) -> HostLayout:
    name = plan.deployment.name
    boot = paths.boot_unit(name)
    config = json.dumps(rank_config(plan, rank), indent=2) + "\n"
    environment = envfile.docker([(entry.name, entry.value) for entry in rank.env])
    return HostLayout(
        deployment=name,
        host=rank.host.name,
        rank=rank.rank,
        role=rank.role,
        files=(
            *_programs(),
            HostFile(path=paths.rank_config(name), content=config, mode="0644"),
            HostFile(path=paths.engine_env(name), content=environment, mode="0644"),
            HostFile(path=paths.secret_env(name), content=_secrets(plan, resolve), mode="0600", secret=True),
            HostFile(path=paths.unit_path(paths.target(name)), content=units.target(plan), mode="0644"),
            HostFile(path=paths.unit_path(boot), content=units.boot(plan), mode="0644"),
            HostFile(path=paths.unit_path(rank.unit), content=units.rank(plan, rank), mode="0644"),
        ),
        units=(boot, rank.unit),
        serving_unit=rank.unit,
    )


def _secrets(plan: DeploymentPlan, resolve: Resolver) -> str:
    deployment = plan.deployment
    references = (("VLLM_API_KEY", deployment.api.key), ("HF_TOKEN", deployment.hub_token))
    return envfile.docker([(name, resolve(reference)) for name, reference in references if reference])


def _programs() -> Iterator[HostFile]:
    for path, (content, mode) in hostside.rank_files().items():
        yield HostFile(path=path, content=content, mode=mode)
