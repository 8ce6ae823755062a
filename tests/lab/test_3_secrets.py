"""Secrets are where they are used, and nowhere else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kimi_infra import lab
from tests.lab import operator
from tests.lab.conftest import Converged

pytestmark = pytest.mark.lab

SEARCHED = ("/etc", "/var", "/usr/local", "/home", "/root", "/run", "/tmp")
"""Everything on a host that someone writes to."""
ALLOWED = (
    "/etc/kimi-infra/kimi/secret.env",
    # docker keeps a container's environment here; its folder is root's alone (0710 and 0700).
    "/var/lib/docker/containers/",
    "/run/docker/containerd/",
    "/run/containerd/",
    "/var/lib/containerd/",
    "/var/run/",  # the same files as /run
)


@pytest.mark.parametrize("host", list(operator.UNITS))
def test_no_file_of_a_host_holds_a_secret_but_its_own(converged: Converged, host: str) -> None:
    """A search of all that is written on a host finds each canary in the secret file and docker's record."""
    assert converged.first.code == 0
    for name, secret in operator.secrets().items():
        listing = operator.on_host(
            host, "grep", "-rlaFs", "--devices=skip", "-f", "-", *SEARCHED, stdin=f"{secret}\n", check=False
        )
        found = listing.splitlines()
        assert ALLOWED[0] in found, f"the search itself is broken: {name} is not even in its own file"
        assert [path for path in found if not path.startswith(ALLOWED)] == [], name


@pytest.mark.parametrize("host", list(operator.UNITS))
def test_files_that_hold_secrets_are_roots_alone(converged: Converged, host: str) -> None:
    """Another user of the host cannot read the secret file, nor look into docker's folder."""
    assert converged.first.code == 0
    for path in (ALLOWED[0], "/var/lib/docker/containers"):
        done = subprocess.run(
            [*lab.ssh_argv(host, ["cat" if path == ALLOWED[0] else "ls", path])],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert "Permission denied" in done.stderr


@pytest.mark.parametrize("host", list(operator.UNITS))
def test_no_command_line_journal_or_unit_shows_a_secret(converged: Converged, host: str) -> None:
    """ps, the journal, systemctl cat and docker's log are clean."""
    assert converged.first.code == 0
    unit = operator.UNITS[host]
    shown = {
        "ps": operator.on_host(host, "ps", "-eww", "-o", "args"),
        "journal": operator.on_host(host, "journalctl", "--no-pager", "--all"),
        "unit": operator.on_host(host, "systemctl", "cat", unit),
        "properties": operator.on_host(host, "systemctl", "show", unit),
    }
    for name, secret in operator.secrets().items():
        assert [place for place, text in shown.items() if secret in text] == [], name


def test_what_ansible_and_the_cli_print_shows_no_secret(converged: Converged) -> None:
    """The runs' own output, at the highest verbosity and with diffs, is clean."""
    loud = operator.playbook("serve", "-vvvv", "--diff")
    assert loud.code == 0, loud.output[-3000:]
    plan = operator.cli("plan", str(operator.INVENTORY), "--json")
    rendered = operator.cli("render", str(operator.INVENTORY), "--as", "systemd")
    status = operator.cli("status", str(operator.INVENTORY), "--json")
    verified = operator.cli("verify", str(operator.INVENTORY))
    asked = operator.cli("ask", str(operator.INVENTORY))
    texts = {
        "verify": verified.stdout + verified.stderr,
        "ask": asked.stdout + asked.stderr,
        "check": converged.untouched.check.output,
        "first run": converged.first.output,
        "loud run": loud.output,
        "plan": plan.stdout + plan.stderr,
        "render": rendered.stdout + rendered.stderr,
        "status": status.stdout + status.stderr,
    }
    for name, secret in operator.secrets().items():
        assert [place for place, text in texts.items() if secret in text] == [], name


def test_the_controller_keeps_no_secret(converged: Converged, tmp_path: Path) -> None:
    """No run left a canary in the checkout, in Ansible's own folders, in memory files, logs or reports."""
    assert converged.first.code == 0
    junit = tmp_path / "junit.xml"
    assert operator.cli("verify", str(operator.INVENTORY), "--json", "--junit", str(junit)).returncode == 0
    folders = (operator.ROOT, Path.home() / ".ansible", operator.state())
    places = ("/tmp", "/dev/shm", "/var/tmp", *(str(folder) for folder in folders))
    for name, secret in operator.secrets().items():
        done = subprocess.run(
            [
                *("grep", "-rlaFs", "--devices=skip", "--exclude-dir=.git", "--exclude-dir=.venv"),
                # The hosts' disks are searched on the hosts; the secrets' own files are what is referred to.
                *("--exclude-dir=hosts", "--exclude-dir=secrets", "-f", "-", *places),
            ],
            input=f"{secret}\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "", name
