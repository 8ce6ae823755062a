"""Callback of Ansible: note which hidden results (``no_log``) changed something.

ansible-runner 2.4.3 replaces such a result as a whole and drops ``changed`` with it, so drift of a secret
file would go unseen. No value of the result is read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kimi_hidden_changes
type: aggregate
short_description: Note which hidden results changed something
description: Appends host and task of each to the file that KIMI_HIDDEN_CHANGES names.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc] # ansible has no types
    """One line a result: host, tab, the task's UUID."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kimi_hidden_changes"
    CALLBACK_NEEDS_ENABLED = False

    def v2_runner_on_ok(self, result: Any) -> None:
        """Note one result."""
        found = result.result
        if "censored" in found and found.get("changed"):
            with Path(os.environ["KIMI_HIDDEN_CHANGES"]).open("a", encoding="utf-8") as stream:
                stream.write(f"{result.host.get_name()}\t{result.task._uuid}\n")  # noqa: SLF001
