"""Hosts as delivered to a served answer, by Ansible, as the README says."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kimi_infra import lab
from tests.lab import operator
from tests.lab.conftest import Converged, Untouched

pytestmark = pytest.mark.lab

CHECK_NOISE = (
    r"/home/ops/\.ansible(/.*)?",  # Ansible's own temporary folder
    r"/root/\.ansible(/.*)?",
    r"/var/log/.*",  # logins, sudo, journal
    r"/var/lib/systemd/.*",  # time stamps of timers, the random seed
    r"/var/cache/.*",
    r"/var/lib/apt/.*",
    r"/home/ops/\.sudo_as_admin_successful",
    r"/var/backups/.*",  # a timer of dpkg's, at midnight
)
"""What may differ after a check run: traces of logging in, and of apt looking things up."""


def test_hosts_are_delivered_without_docker(untouched: Untouched) -> None:
    """The run starts from hosts that do not have a container runtime."""
    assert {name: found.strip() for name, found in untouched.docker.items()} == {
        operator.HEAD: "none",
        operator.WORKER: "none",
    }


def test_a_check_run_of_untouched_hosts_succeeds_and_says_what_it_would_do(untouched: Untouched) -> None:
    """`--check --diff` works before anything is installed and shows the unit it would write."""
    assert untouched.check.code == 0, untouched.check.output[-5000:]
    assert set(untouched.check.changed.values()) != {0}
    assert "vllm-kimi-head.service" in untouched.check.output


def test_a_check_run_changes_nothing(untouched: Untouched) -> None:
    """File systems before and after are the same but for the noise listed above."""
    for name, before in untouched.before.items():
        assert operator.differences(before, untouched.after[name], CHECK_NOISE) == []


def test_site_ends_with_a_verified_engine(converged: Converged) -> None:
    """The first run changes both hosts and ends well, its own verification included."""
    assert all(converged.first.changed[host] > 0 for host in (operator.HEAD, operator.WORKER))


def test_a_second_run_changes_nothing_and_restarts_nothing(converged: Converged) -> None:
    """Run again: 0 changed, and systemd has not started either rank anew."""
    assert converged.first.code == 0
    before = {host: operator.invocation(host) for host in operator.UNITS}
    second = operator.playbook("site")
    assert second.code == 0, second.output[-5000:]
    assert {second.changed[host] for host in operator.UNITS} == {0}, second.output
    assert {host: operator.invocation(host) for host in operator.UNITS} == before


def test_verify_reports_in_text_json_and_junit(converged: Converged, tmp_path: Path) -> None:
    """`kimi-infra verify` finds everything in order and says so in each form."""
    assert converged.first.code == 0
    junit = tmp_path / "junit.xml"
    done = operator.cli("verify", str(operator.INVENTORY), "--json", "--junit", str(junit))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["failures"] == []
    names = {name.partition("[")[0] for name in report["passed"]}
    assert names == {
        "runtime",
        "image",
        "file",
        "unit",
        "command",
        "ports",
        "world",
        "connections",
        "answer",
    }
    assert len(list(ET.parse(junit).iter("testcase"))) == len(report["passed"])  # noqa: S314 -- ours


def test_verify_finds_a_changed_file(converged: Converged) -> None:
    """A unit edited by hand is a finding that names host and file."""
    assert converged.first.code == 0
    unit = f"/etc/systemd/system/{operator.UNITS[operator.WORKER]}"
    operator.on_host(operator.WORKER, "sed", "-i.orig", "s/RestartSec=5/RestartSec=50/", unit)
    try:
        done = operator.cli("verify", str(operator.INVENTORY))
    finally:
        operator.on_host(operator.WORKER, "mv", f"{unit}.orig", unit)
    assert done.returncode == 1
    assert f"{operator.WORKER}: {unit} differs from the plan" in done.stdout


def test_ask_prints_the_answer(converged: Converged) -> None:
    """`kimi-infra ask` prints one legible sentence of the greedy answer."""
    assert converged.first.code == 0
    done = operator.cli("ask", str(operator.INVENTORY), "--temperature", "0")
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert len(words) > 5
    assert done.stdout.strip().endswith(".")


def test_status_shows_both_ranks_ready(converged: Converged) -> None:
    """`kimi-infra status` asks both supervisors."""
    assert converged.first.code == 0
    done = operator.cli("status", str(operator.INVENTORY))
    assert done.returncode == 0, done.stdout
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        f"kimi rank 0 on {operator.HEAD}",
        f"kimi rank 1 on {operator.WORKER}",
    ]


@pytest.mark.parametrize("host", lab.host_names)
def test_systemd_verifies_the_unit_without_a_word(converged: Converged, host: str) -> None:
    """The host's own systemd-analyze prints nothing about the unit."""
    assert converged.first.code == 0
    argv = lab.ssh_argv(host, ["sudo", "systemd-analyze", "verify", "--man=no", operator.UNITS[host], "2>&1"])
    assert operator.text_of(argv) == ""


def test_the_controllers_host_keys_are_pinned(converged: Converged, tmp_path: Path) -> None:
    """A host that shows another key than the inventory's is not talked to."""
    assert converged.first.code == 0
    copied = operator.copy_inventory(tmp_path)
    keys = operator.host_keys(copied)
    operator.replace_text(copied / "hosts.yml", keys[operator.WORKER], keys[operator.HEAD])
    # A new connection: one that an earlier run keeps open has shown the right key already.
    done = operator.playbook("serve", inventory=copied, ANSIBLE_SSH_ARGS="-o ControlPath=none")
    assert done.code == 4, done.output[-3000:]
    assert "UNREACHABLE" in done.output


def test_an_engine_address_that_the_host_does_not_have(converged: Converged, tmp_path: Path) -> None:
    """The probe sees it, the message names the host's own addresses, and no file is written."""
    assert converged.first.code == 0
    copied = operator.copy_inventory(tmp_path)
    address = next(host.address for host in lab.status().hosts if host.name == operator.WORKER)
    operator.replace_text(
        copied / "hosts.yml", f'engine_address: "{address}"', 'engine_address: "198.51.100.99"'
    )
    before = operator.on_host(operator.WORKER, "sha256sum", "/etc/kimi-infra/kimi/rank.json")
    done = operator.playbook("site", inventory=copied)
    assert done.code == 2
    assert "no interface of this host that is up carries the address" in done.output
    assert address in done.output
    assert operator.on_host(operator.WORKER, "sha256sum", "/etc/kimi-infra/kimi/rank.json") == before


def test_a_model_path_that_is_not_on_the_hosts(converged: Converged, tmp_path: Path) -> None:
    """Preparing refuses, before any unit is written, and names the path."""
    assert converged.first.code == 0
    copied = operator.copy_inventory(tmp_path)
    operator.replace_text(copied / "deployment.yml", "/opt/kimi-lab/models/lab-tiny", "/opt/kimi-lab/absent")
    done = operator.playbook("prepare", "--tags", "model_store", inventory=copied)
    assert done.code == 2
    assert "/opt/kimi-lab/absent" in done.output


def test_a_changed_plan_does_not_restart_a_serving_group(converged: Converged, tmp_path: Path) -> None:
    """Without consent the files are written, the ranks go on, and the report says what is needed."""
    assert converged.first.code == 0
    copied = operator.copy_inventory(tmp_path)
    (copied / "deployment.yml").write_text(
        (copied / "deployment.yml")
        .read_text()
        .replace("    allow: []", "    allow: []\n    ports: {master: 29601}")
    )
    before = {host: operator.invocation(host) for host in operator.UNITS}
    try:
        changed = operator.playbook("serve", inventory=copied)
        assert {host: operator.invocation(host) for host in operator.UNITS} == before
        assert changed.code == 0, changed.output[-3000:]
        assert "vllm_serve_restart_required" in changed.output
    finally:
        restored = operator.playbook("serve")
    assert restored.code == 0, restored.output[-3000:]
    assert {host: operator.invocation(host) for host in operator.UNITS} == before
