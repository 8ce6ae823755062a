"""Ask one host for its facts: one program, one round trip, nothing left behind."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from kimi_infra.deploy import site
from kimi_infra.errors import KimiInfraError
from kimi_infra.observe import probe


class ActionModule(ActionBase):
    """``kimi_probe: {inventory: DIR}``; returns ``facts``, the answer as the host gave it."""

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"inventory"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the probe from standard input, so that no file is written on the host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        host = str((task_vars or {})["inventory_hostname"])
        try:
            request = probe.request(site.read(Path(self._task.args["inventory"])).inventory, host)
            command = shlex.join(probe.command(request))
            done = self._low_level_execute_command(command, in_data=probe.source().encode())
            if done["rc"]:
                raise AnsibleActionFail(
                    f"{host}: the probe ended with {done['rc']}: {done['stderr'].strip()}"
                )
            probe.parse(host, done["stdout"])
        except KimiInfraError as error:
            raise AnsibleActionFail(str(error)) from error
        return {**result, "changed": False, "answer": done["stdout"]}
