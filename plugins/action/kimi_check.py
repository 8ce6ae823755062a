"""Refuse an inventory that cannot be applied, before any host is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from kimi_infra.deploy import site
from kimi_infra.errors import KimiInfraError


class ActionModule(ActionBase):
    """``kimi_check: {inventory: DIR}``; runs on the controller only."""

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"inventory"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read and check; fail with every fault at once."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            found = site.read_ready(Path(self._task.args["inventory"]))
        except KimiInfraError as error:
            raise AnsibleActionFail(str(error)) from error
        return {**result, "changed": False, "deployments": [d.name for d in found.inventory.deployments]}
