"""Decide whether the ranks of each deployment start, restart or are left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from kimi_infra.deploy import rollout, site
from kimi_infra.domain.inventory import Deployment
from kimi_infra.errors import KimiInfraError


class ActionModule(ActionBase):
    """``kimi_rollout: {inventory: DIR, consent: false}``; wants ``vllm_serve_status`` on every host.

    ``vllm_serve_status`` is the registered loop, one result a deployment, whose ``item.name`` is the
    deployment and whose ``stdout`` is what ``kimi-rank status`` printed.
    Returns ``hosts``: for each host a list of ``{deployment, unit, action, restart_required, reason}``.
    """

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"inventory", "consent"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Decide from the supervisors' own words."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        hostvars = (task_vars or {})["hostvars"]
        try:
            inventory = site.read_ready(Path(self._task.args["inventory"])).inventory
        except KimiInfraError as error:
            raise AnsibleActionFail(str(error)) from error
        consent = bool(self._task.args.get("consent", False))
        hosts: dict[str, list[dict[str, Any]]] = {}
        for deployment in inventory.deployments:
            decision = rollout.decide(deployment, _statuses(deployment, hostvars), consent=consent)
            for host in deployment.hosts:
                hosts.setdefault(host.name, []).append(
                    {
                        "deployment": deployment.name,
                        "action": decision.action.value,
                        "restart_required": decision.restart_required,
                        "reason": decision.reason,
                    }
                )
        return {**result, "changed": False, "hosts": hosts}


def _statuses(deployment: Deployment, hostvars: Any) -> dict[str, rollout.RankStatus]:
    return {host.name: _status(deployment, hostvars, host.name) for host in deployment.hosts}


def _status(deployment: Deployment, hostvars: Any, host: str) -> rollout.RankStatus:
    results = hostvars[host]["vllm_serve_status"]["results"]
    for one in results:
        if one["item"]["name"] == deployment.name:
            return rollout.RankStatus.parse(json.loads(str(one.get("stdout") or "{}")))
    raise AnsibleActionFail(f"{host}: kimi-rank gave no status of deployment {deployment.name}")
