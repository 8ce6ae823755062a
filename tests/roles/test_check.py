"""What kimi_check refuses, run by the real ansible-playbook; no host is contacted."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from kimi_infra.observe import pinning
from tests import planted
from tests.roles.controller import ROOT, ansible

pytestmark = pytest.mark.fast

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMqXgRLKG73K+sIxs5oj3E2nhu/4FHxOcrmAd4Wv7ki7"
SWITCHED_OFF = "-o StrictHostKeyChecking=no"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """An inventory without a fault."""
    folder = tmp_path / "inventory"
    folder.mkdir()
    return planted.laid("base", folder)


def play(inventory: Path, *words: str, playbook: str = "check", **environ: str) -> tuple[int, str]:
    """Run a playbook of the product; return its exit code and its words on one line."""
    path = str(ROOT / "playbooks" / f"{playbook}.yml")
    home = inventory.parent
    done = ansible("ansible-playbook", "-i", str(inventory), path, *words, home=home, environ=environ)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def pins() -> tuple[str, ...]:
    """Return the pins of playbooks/group_vars as words."""
    text = yaml.safe_load((ROOT / "playbooks" / "group_vars" / "all.yml").read_text())["kimi_ssh_pinned"]
    return tuple(shlex.split(text.replace("{{ host_key }}", KEY)))


def client(front: str, last: tuple[str, ...]) -> pinning.Client:
    """Return a client with words before the pins' place, and in it."""
    given = (
        pinning.Given(source="front", words=tuple(shlex.split(front))),
        pinning.Given(source="last", words=last),
    )
    return pinning.Client(host="tray-a", address="192.0.2.11", host_key=KEY, program="ssh", given=given)


def found(*clients: pinning.Client) -> list[tuple[str, str]]:
    """Return where each fault is and the first word of what it is."""
    return [(fault.where, fault.what.split()[0]) for fault in pinning.faults(clients)]


@pytest.mark.parametrize(
    "front", ["", "-J jump.example -C", "-o StrictHostKeyChecking=yes", "-o ControlMaster=auto -4"]
)
def test_options_that_leave_the_pins_alone_are_taken(front: str) -> None:
    """A jump host, and what says the same as the pins, is no fault."""
    assert found(client(front, pins())) == []


@pytest.mark.parametrize(
    "option",
    [
        "StrictHostKeyChecking=no",
        "StrictHostKeyChecking=accept-new",
        "stricthostkeychecking off",
        "UserKnownHostsFile=/tmp/known",
        "GlobalKnownHostsFile=/tmp/known",
        "KnownHostsCommand=/bin/other %H",
        "KnownHostsCommand=none",
        "VerifyHostKeyDNS=yes",
        "NoHostAuthenticationForLocalhost=yes",
    ],
)
def test_an_option_before_the_pins_is_refused_by_name(option: str) -> None:
    """However it is written, the first value is the one that ssh takes, and its source is named."""
    name = option.replace("=", " ").split()[0]
    faults = found(client(f'-o "{option}"', pins()))
    assert [(where, what.lower()) for where, what in faults] == [("front", name.lower())]


def test_lost_pins_are_one_fault_of_what_replaced_them() -> None:
    """Not one fault for each option that is no longer given."""
    assert found(client("-C", ("-v",))) == [("last", "this")]


def test_hosts_share_a_fault() -> None:
    """A setting that is wrong for many hosts is told once, with their names."""
    one = client("-o StrictHostKeyChecking=no", pins())
    other = pinning.Client(host="tray-b", address="192.0.2.12", host_key=KEY, program="ssh", given=one.given)
    (fault,) = pinning.faults([one, other])
    assert fault.what.endswith("of tray-a, tray-b")


def test_options_that_ssh_refuses_are_a_fault() -> None:
    """What ssh cannot read is not taken for harmless."""
    (fault,) = pinning.faults([client("-o NoSuchOption=1", pins())])
    assert "nosuchoption" in str(fault).lower()


def test_a_good_inventory_passes(inventory: Path) -> None:
    """With --limit to whole deployments too, and with the one consent that there is."""
    assert play(inventory)[0] == 0
    code, said = play(inventory, "--limit", "kimi", "-e", "kimi_consent=restart")
    assert code == 0
    assert "ok=1" in said


@pytest.mark.parametrize(
    ("words", "environ", "named"),
    [
        ((), {"ANSIBLE_HOST_KEY_CHECKING": "False"}, "environment: ANSIBLE_HOST_KEY_CHECKING: Strict"),
        ((), {"ANSIBLE_SSH_ARGS": SWITCHED_OFF}, "environment: ANSIBLE_SSH_ARGS: Strict"),
        ((f"--ssh-common-args={SWITCHED_OFF}",), {}, "--ssh-common-args: Strict"),
        (("-e", "ansible_ssh_extra_args=-C"), {}, "ansible_ssh_extra_args (<CLI option '-e'>): this stands"),
        (
            ("-e", "ansible_sftp_extra_args=-C"),
            {},
            "ansible_sftp_extra_args (<CLI option '-e'>): this stands",
        ),
        (("-e", f"host_key='{KEY[:-4]}AAAA'"), {}, "not the host key of tray-a"),
        (("-e", "ansible_ssh_common_args='{{ nobody }}'"), {}, "'nobody' is undefined"),
        (("-c", "paramiko_ssh"), {}, "not a connection by ssh (got paramiko_ssh)"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_undoes_the_pins_is_refused_with_its_source(
    inventory: Path, words: tuple[str, ...], environ: dict[str, str], named: str
) -> None:
    """From the environment, the command line and extra variables, before the play that contacts hosts."""
    code, said = play(inventory, *words, playbook="prepare", **environ)
    assert code == 2
    assert named in said
    assert "PLAY [Prepare the hosts]" not in said


def test_another_ansible_cfg_is_named(inventory: Path) -> None:
    """A configuration file that switches the check off is refused by its path."""
    other = inventory.parent / "other.cfg"
    text = (ROOT / "ansible.cfg").read_text().replace("= plugins/", f"= {ROOT}/plugins/")
    other.write_text(text.replace("host_key_checking = true", "host_key_checking = false"))
    code, said = play(inventory, ANSIBLE_CONFIG=str(other))
    assert code == 2
    assert f"host_key_checking ({other}): Strict" in said


def test_a_second_inventory_cannot_replace_the_pins(inventory: Path) -> None:
    """Variables of another inventory are told with file and line."""
    second = inventory.parent / "second.yml"
    second.write_text("kimi:\n  hosts:\n    tray-b:\n      ansible_ssh_extra_args: -C\n")
    # A host's own variables win over playbooks/group_vars.
    code, said = play(inventory, "-i", str(second))
    assert code == 2
    assert f"ansible_ssh_extra_args ({second}:4:" in said
    assert "pinned host keys of tray-b" in said


@pytest.mark.parametrize("given", ["restrat", "true", "teardown"])
def test_a_consent_that_nothing_reads_is_refused(inventory: Path, given: str) -> None:
    """A misspelt consent is none, so it is told with what was meant."""
    code, said = play(inventory, "-e", f"kimi_consent={given}")
    assert code == 2
    assert f"not a consent (got {given})" in said
    assert ("did you mean restart?" in said) == (given == "restrat")


@pytest.mark.parametrize("playbook", ["prepare", "serve", "verify", "restart", "teardown"])
def test_a_limit_that_splits_a_deployment_is_refused(inventory: Path, playbook: str) -> None:
    """Half an engine is never restarted or taken down; --limit does not skip the check either."""
    code, said = play(inventory, "--limit", "tray-a", playbook=playbook)
    assert code == 2
    assert "--limit: deployment kimi is split, without tray-b (got tray-a)" in said
    assert said.count("PLAY [") == 1


def test_a_limit_does_not_skip_the_check(inventory: Path) -> None:
    """Ansible leaves localhost out of a limited run; the faults are found all the same."""
    code, said = play(inventory, "--limit", "kimi", ANSIBLE_SSH_ARGS=SWITCHED_OFF)
    assert code == 2
    assert "ANSIBLE_SSH_ARGS" in said


def test_a_plan_from_some_hosts_facts_is_refused(inventory: Path) -> None:
    """Hosts that were not probed are named, and the plan is not made for the others."""
    tasks = [{"kimi_plan": {"inventory": str(inventory)}, "run_once": True}]
    path = inventory.parent / "plan.yml"
    path.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    done = ansible("ansible-playbook", "-i", str(inventory), str(path), home=inventory.parent)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert (
        "tray-a, tray-b: not probed in this run; ranks are planned together, so run without --limit" in said
    )


def test_the_check_leaves_the_host_alone(inventory: Path) -> None:
    """The ssh program is asked what it would do, and never to do it."""
    recorded = inventory.parent / "ssh"
    real = subprocess.run(["which", "ssh"], capture_output=True, text=True, check=True).stdout.strip()
    recorded.write_text(f'#!/bin/sh\necho "$1" >> {recorded}.calls\nexec {real} "$@"\n')
    recorded.chmod(0o755)
    assert play(inventory, "--limit", "kimi", ANSIBLE_SSH_EXECUTABLE=str(recorded))[0] == 0
    assert set(Path(f"{recorded}.calls").read_text().split()) == {"-G"}
