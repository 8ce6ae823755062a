"""Playbooks, run by the real ansible-playbook; no host is contacted."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.roles.controller import ROOT, ansible

pytestmark = pytest.mark.fast

PLAYBOOKS = sorted(path for path in (ROOT / "playbooks").glob("*.yml"))
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGU"
HOSTS = {
    "kimi": {
        "hosts": {
            "tray-a": {"ansible_host": "192.0.2.11", "ansible_user": "ops", "host_key": HOST_KEY},
        }
    }
}


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A hosts.yml, and a deployment.yml with a key that would be a group if Ansible read it."""
    folder = tmp_path / "inventory"
    folder.mkdir()
    (folder / "hosts.yml").write_text(yaml.safe_dump(HOSTS))
    (folder / "deployment.yml").write_text("deployments: [{name: kimi, unknown_key: 1}]\n")
    return folder


@pytest.fixture
def ssh_calls(tmp_path: Path) -> Path:
    """A folder whose ssh writes its arguments down and fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    record = tmp_path / "ssh-calls"
    script = (
        f"#!{sys.executable}\nimport json, sys\n"
        f"print(json.dumps(sys.argv[1:]), file=open({str(record)!r}, 'a'))\nsys.exit(255)\n"
    )
    (folder / "ssh").write_text(script)
    (folder / "ssh").chmod(0o755)
    return folder


def test_every_playbook_parses(tmp_path: Path, inventory: Path) -> None:
    """ansible-playbook finds each action, module and role."""
    names = [str(path) for path in PLAYBOOKS]
    done = ansible("ansible-playbook", "--syntax-check", "-i", str(inventory), *names, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("playbook: ") == len(names)


def test_deployment_yml_is_no_inventory(tmp_path: Path, inventory: Path) -> None:
    """Its keys make no groups."""
    done = ansible("ansible-inventory", "-i", str(inventory), "--list", home=tmp_path)
    assert sorted(json.loads(done.stdout)["all"]["children"]) == ["kimi", "ungrouped"], done.stderr


@pytest.mark.parametrize(
    "playbook", [path for path in PLAYBOOKS if path.stem != "check"], ids=lambda path: path.stem
)
def test_an_inventory_is_checked_before_hosts_are_contacted(playbook: Path) -> None:
    """The first play of each playbook is the check, by itself or through what it imports."""
    first = yaml.safe_load(playbook.read_text())[0]["ansible.builtin.import_playbook"]
    assert first == ("prepare.yml" if playbook.stem == "site" else "check.yml")


def test_a_faulty_inventory_contacts_no_host(tmp_path: Path, inventory: Path, ssh_calls: Path) -> None:
    """The fault is named, the run fails, and ssh was never called."""
    path = f"{ssh_calls}:{os.environ['PATH']}"
    site = str(ROOT / "playbooks" / "site.yml")
    done = ansible("ansible-playbook", "-i", str(inventory), site, home=tmp_path, path=path)
    assert done.returncode == 2
    assert "unknown_key" in done.stdout + done.stderr
    assert not (tmp_path / "ssh-calls").exists()


def test_ssh_is_held_to_the_key_in_the_inventory(tmp_path: Path, inventory: Path, ssh_calls: Path) -> None:
    """The client gets the key as one option's one value, and no file that could say otherwise."""
    play = [{"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.raw": "true"}]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    (tmp_path / "group_vars").symlink_to(ROOT / "playbooks" / "group_vars")
    path = f"{ssh_calls}:{os.environ['PATH']}"
    ansible("ansible-playbook", "-i", str(inventory), str(tmp_path / "play.yml"), home=tmp_path, path=path)
    argv = json.loads((tmp_path / "ssh-calls").read_text().splitlines()[-1])
    values = [argv[at + 1] for at, word in enumerate(argv) if word == "-o"]
    assert f"KnownHostsCommand=/usr/bin/echo %H {HOST_KEY}" in values
    assert {
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=/dev/null",
        "GlobalKnownHostsFile=/dev/null",
    } <= set(values)


def test_ssh_understands_the_pinned_key() -> None:
    """The real ssh reads the option back whole."""
    pinned = yaml.safe_load((ROOT / "playbooks" / "group_vars" / "all.yml").read_text())["kimi_ssh_pinned"]
    options = shlex.split(pinned.replace("{{ host_key }}", HOST_KEY))
    done = subprocess.run(["ssh", "-G", *options, "192.0.2.11"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert f"knownhostscommand /usr/bin/echo %H {HOST_KEY}" in lines
    assert "stricthostkeychecking true" in lines
    assert "verifyhostkeydns false" in lines


@pytest.mark.parametrize("role", sorted((ROOT / "roles").iterdir()), ids=lambda path: path.name)
def test_task_files_stay_small(role: Path) -> None:
    """main.yml is a list of phases; a file that outgrows a screen or two is several files."""
    for path in (role / "tasks").glob("*.yml"):
        assert len(path.read_text().splitlines()) <= 120, path
