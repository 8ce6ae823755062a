"""Compare what hosts hold and run with the plan, and ask the engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from kimi_infra.converge import vault
from kimi_infra.errors import KimiInfraError
from kimi_infra.observe import verify


class ActionModule(ActionBase):
    """``kimi_verify: {inventory: DIR}``; fails with every finding."""

    _supports_check_mode = False
    _VALID_ARGS = frozenset({"inventory"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run all checks."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            report = verify.run(Path(self._task.args["inventory"]), store=vault.secret_store(os.environ))
        except KimiInfraError as error:
            raise AnsibleActionFail(str(error)) from error
        if report.failures:
            raise AnsibleActionFail("\n".join(str(failure) for failure in report.failures))
        return {**result, "changed": False, "checks": report.passed}
