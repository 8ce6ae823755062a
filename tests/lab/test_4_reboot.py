"""A host that reboots comes back into service without a hand."""

from __future__ import annotations

import time

import pytest

from kimi_infra import lab
from tests.lab import operator
from tests.lab.conftest import Converged

pytestmark = pytest.mark.lab

SECONDS = 240
"""For boot, both supervisors finding each other, and the engine's whole start."""


@pytest.mark.parametrize("host", [operator.WORKER, operator.HEAD])
def test_the_service_answers_again_after_a_reboot(converged: Converged, host: str) -> None:
    """After a reboot of either host both ranks start anew, without a hand, and the engine answers."""
    assert converged.first.code == 0
    before = lab.boot_id(host)
    started = {name: operator.invocation(name) for name in operator.UNITS}
    # Returns when the host says that its boot is complete, which the engine's start does not delay.
    assert lab.reboot(host) != before
    assert not _answers(), "the boot waited for the engine"
    _wait_until_served()
    # A surviving rank cannot rejoin: both must have been started anew.
    assert not {operator.invocation(name) for name in operator.UNITS} & set(started.values())


def _answers() -> bool:
    asked = operator.cli("ask", str(operator.INVENTORY), "--temperature", "0", "--timeout", "20")
    return asked.returncode == 0


def _wait_until_served() -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if (
            operator.cli("ask", str(operator.INVENTORY), "--temperature", "0", "--timeout", "20").returncode
            == 0
        ):
            return
        time.sleep(1)  # between two questions; the condition is the answer
    status = operator.cli("status", str(operator.INVENTORY))
    raise AssertionError(f"no answer within {SECONDS} s:\n{status.stdout}{status.stderr}")
