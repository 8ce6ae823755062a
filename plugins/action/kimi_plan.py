"""Plan all hosts together from what the probe found; the roles lay out what this returns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from kimi_infra.converge import vault
from kimi_infra.deploy import site
from kimi_infra.errors import KimiInfraError
from kimi_infra.observe import probe


class ActionModule(ActionBase):
    """``kimi_plan: {inventory: DIR}``; wants ``kimi_probe`` registered on every host of the play.

    Returns ``hosts`` (each role's part, by host) and ``secret_files`` (by host and deployment).
    """

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"inventory"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan and render."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        hostvars = (task_vars or {})["hostvars"]
        try:
            ready = site.read_ready(Path(self._task.args["inventory"]))
            facts = {
                host.name: probe.parse(host.name, str(hostvars[host.name]["kimi_probe"]["answer"]))
                for host in ready.hosts
                if "answer" in hostvars.get(host.name, {}).get("kimi_probe", {})
            }
            converge = site.converge(ready, facts, vault.secret_store(os.environ))
        except KimiInfraError as error:
            raise AnsibleActionFail(str(error)) from error
        return {
            **result,
            "changed": False,
            "hosts": {host.name: converge.role_data(host.name) for host in ready.hosts},
            "secret_files": {host.name: converge.secret_files(host.name) for host in ready.hosts},
        }
