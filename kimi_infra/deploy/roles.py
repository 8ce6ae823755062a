"""What each Ansible role gets: plain data, prepared so that a role computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kimi_infra.domain import paths
from kimi_infra.domain.inventory import Deployment
from kimi_infra.domain.plan import DeploymentPlan, HostFile, HostLayout

Data: TypeAlias = dict[str, object]

_BASE_PACKAGES = ("ca-certificates",)


def host_data(
    name: str, plans: Sequence[DeploymentPlan], layouts: Sequence[HostLayout]
) -> Mapping[str, Data]:
    """Return each role's part for the host ``name``; nothing in it is secret."""
    mine = [plan for plan in plans if name in {rank.host.name for rank in plan.ranks}]
    deployments = [plan.deployment for plan in mine]
    own = [layout for layout in layouts if layout.host == name]
    return {
        "host_base": {"packages": list(_BASE_PACKAGES)},
        "container_runtime": {
            "daemon": {"features": {"cdi": True}},
            "registry_cas": _registry_cas(deployments),
            "restart_ok": all("restart" in d.allow for d in deployments),
        },
        "serving_image": {
            "images": [
                {"deployment": d.name, "name": d.image.name, "reference": d.image.reference}
                for d in deployments
            ]
        },
        "model_store": {"models": [{"path": d.model_path, "sha256": d.model_sha256} for d in deployments]},
        "vllm_serve": {"deployments": [_serve(plan, layout) for plan, layout in _pairs(mine, own)]},
        "node_verify": {},
    }


def secret_files(name: str, layouts: Sequence[HostLayout]) -> Mapping[str, list[Data]]:
    """Return the secret files of the host ``name`` by deployment, apart from everything that may be shown."""
    return {
        layout.deployment: [_file(file) for file in layout.files if file.secret]
        for layout in layouts
        if layout.host == name
    }


def _pairs(
    plans: Sequence[DeploymentPlan], layouts: Sequence[HostLayout]
) -> list[tuple[DeploymentPlan, HostLayout]]:
    by_name = {plan.deployment.name: plan for plan in plans}
    return [(by_name[layout.deployment], layout) for layout in layouts]


def _registry_cas(deployments: Sequence[Deployment]) -> list[Data]:
    found = {d.image.registry: d.image.registry_ca for d in deployments if d.image.registry_ca}
    return [{"registry": registry, "pem": pem} for registry, pem in sorted(found.items(), key=str)]


def _serve(plan: DeploymentPlan, layout: HostLayout) -> Data:
    name = layout.deployment
    return {
        "name": name,
        "unit": layout.serving_unit,
        "target": paths.target(name),
        "enabled": list(layout.units),
        "directories": [{"path": path, "mode": "0755"} for path in _directories(layout)],
        "files": [_file(file) for file in layout.files if not file.secret],
        "config": paths.rank_config(name),
        "start_timeout": plan.budget.unit_start,
        "allow": sorted(plan.deployment.allow),
    }


def _directories(layout: HostLayout) -> list[str]:
    """Folders that are ours, parents before children."""
    parents = {file.path.rpartition("/")[0] for file in layout.files} - {paths.UNIT_ROOT}
    return sorted(parents | {paths.cache_dir(layout.deployment)})


def _file(file: HostFile) -> Data:
    # A program of ours is nothing that an operator reads in a diff.
    brief = file.path.startswith(f"{paths.PROGRAM_ROOT}/")
    return {"path": file.path, "content": file.content, "mode": file.mode, "brief": brief}
