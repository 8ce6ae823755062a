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
    """After a reboot of either host both ranks start anew and the engine answers."""
    assert converged.first.code == 0
    before = lab.boot_id(host)
    started = {name: operator.invocation(name) for name in operator.UNITS}
    assert lab.reboot(host) != before
    _wait_until_served()
    # A surviving rank cannot rejoin: both must have been started anew.
    assert not {operator.invocation(name) for name in operator.UNITS} & set(started.values())


def test_boot_does_not_wait_for_the_engine(converged: Converged) -> None:
    """multi-user.target is reached while the rank is still starting."""
    assert converged.first.code == 0
    operator.on_host(operator.WORKER, "systemctl", "stop", operator.UNITS[operator.WORKER])
    lab.reboot(operator.HEAD)
    # The head waits for its worker, for as long as we leave that one stopped.
    deadline = time.monotonic() + 30
    target = rank = ""
    while time.monotonic() < deadline and (target, rank) != ("active", "activating"):
        target = operator.on_host(operator.HEAD, "systemctl", "is-active", "multi-user.target", check=False)
        rank = operator.on_host(
            operator.HEAD, "systemctl", "is-active", operator.UNITS[operator.HEAD], check=False
        )
        target, rank = target.strip(), rank.strip()
    assert (target, rank) == ("active", "activating")
    operator.on_host(operator.WORKER, "systemctl", "start", "--no-block", operator.UNITS[operator.WORKER])
    _wait_until_served()


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
