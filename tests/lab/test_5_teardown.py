"""Teardown gives the hosts back."""

from __future__ import annotations

import pytest

from tests.lab import operator
from tests.lab.conftest import Converged
from tests.lab.test_1_spine import CHECK_NOISE

pytestmark = pytest.mark.lab

NOISE = (
    *CHECK_NOISE,
    r"/etc/(group|gshadow|passwd|shadow|subuid|subgid)-?",  # compared by content below
    r"/etc/\.pwd\.lock",
    r"/var/lib/dpkg/.*",  # the package database keeps its own history; its list is compared below
    r"/var/lib/docker(/.*)?",  # the lab's bind mount; what is in it is compared below
    r"/var/lib/dbus/.*",
    r"/etc/ld\.so\.cache",
    r"/var/tmp/systemd-private-.*",  # one a boot, for each service with a private /tmp
)
"""Traces that packages leave by design; each is named, and what it stands for is checked on its own."""


def test_teardown_restores_what_was_there(converged: Converged) -> None:
    """File systems, packages, users and listeners are as before the first run."""
    untouched = converged.untouched
    done = operator.playbook("teardown")
    assert done.code == 0, done.output[-5000:]
    for host, before in untouched.before.items():
        assert operator.differences(before, operator.snapshot(host), NOISE) == []
        packages = operator.on_host(host, "dpkg-query", "--show", "--showformat='${Package}\\n'")
        assert "docker" not in packages
        assert "containerd" not in packages
        assert operator.on_host(host, "ls", "-A", "/var/lib/docker") == ""
        assert "docker" not in operator.on_host(host, "getent", "group")
        units = operator.on_host(
            host, "systemctl", "list-units", "--all", "--plain", "--no-legend", "vllm-*", "kimi-*"
        )
        assert units == ""


def test_a_second_teardown_changes_nothing(converged: Converged) -> None:
    """Run again on hosts that have been given back: 0 changed."""
    assert converged.first.code == 0
    again = operator.playbook("teardown")
    assert again.code == 0, again.output[-3000:]
    assert set(again.changed.values()) == {0}
