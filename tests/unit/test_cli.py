"""The command line: exit codes, and what is refused before a host is contacted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kimi_infra import cli
from tests import planted

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[2]
GB300 = str(ROOT / "inventories" / "gb300-2node")


def run(*arguments: str) -> tuple[int, str, str]:
    """Run the command line in this process: exit code, standard output, standard error."""
    done = CliRunner().invoke(cli.app, arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("case", planted.CASES)
def test_a_planted_fault_is_refused_by_every_verb(case: str, tmp_path: Path) -> None:
    """Exit code 2 and the golden text, whether the verb would contact a host or not."""
    inventory = str(planted.laid(case, tmp_path))
    for verb in (["plan"], ["render"], ["status"], ["ask"]):
        assert run(*verb, inventory) == (2, "", f"kimi-infra: {planted.text(case)}")


def test_a_missing_value_is_listed_by_a_plan() -> None:
    """The gb300 inventory can be planned as shipped: exit code 0, and what is needed comes last."""
    code, text, _ = run("plan", GB300)
    needed = text.partition("needed before applying\n")[2]
    assert code == 0
    assert [line.split()[0] for line in needed.splitlines()] == [
        "hosts.yml:",
        "hosts.yml:",
        "deployment.yml:",
    ]
    assert "docker buildx imagetools inspect vllm/vllm-openai:kimi-k31" in needed


@pytest.mark.parametrize("verb", ["status", "ask", "verify"])
def test_a_missing_value_is_refused_by_a_verb_that_contacts_hosts(verb: str) -> None:
    """Exit code 2, and the text says what is needed."""
    code, text, error = run(verb, GB300)
    assert (code, text) == (2, "")
    assert "needed before applying" in error
    assert "image.digest" in error


def test_a_plan_as_json_holds_commands_origins_and_needs() -> None:
    """A program finds every rank's command, each flag's origin, and what is needed."""
    code, text, _ = run("plan", GB300, "--json")
    plan = json.loads(text)
    (deployment,) = plan["deployments"]
    assert code == 0
    assert deployment["commands"]["tray-b"][:2] == ["/usr/bin/docker", "run"]
    origins = {flag["provenance"]["origin"] for flag in deployment["ranks"][0]["flags"]}
    assert origins == {"seed", "derived", "vllm"}
    assert len(plan["needed_before_applying"]) == 3


@pytest.mark.parametrize(
    ("form", "begins"), [("shell", "# Head (node 0)\nexport"), ("docker", "# Head (node 0)\ndocker run")]
)
def test_an_inventory_renders_like_its_choice(form: str, begins: str) -> None:
    """The page's form of an inventory is that of the same choice by options."""
    named = run("render", GB300, "--as", form)
    chosen = run("render", "--hardware", "gb300", "--strategy", "multi_node_tp", "--nodes", "2", "--as", form)
    assert named == chosen
    assert named[1].startswith(begins)


@pytest.mark.parametrize("form", ["systemd", "json"])
def test_what_hosts_run_needs_an_inventory(form: str) -> None:
    """A choice without hosts has no units: exit code 2."""
    code, text, error = run("render", "--as", form)
    assert (code, text) == (2, "")
    assert "INVENTORY" in error


def test_units_are_rendered_without_a_host() -> None:
    """`--as systemd` shows both units, what only a host knows as a placeholder."""
    code, text, _ = run("render", GB300, "--as", "systemd")
    assert code == 0
    assert text.count("ExecStart=") == 2
    assert "<image ID of vllm/vllm-openai:kimi-k31>" in text


def test_a_host_that_does_not_answer_is_a_failure_not_a_refusal(tmp_path: Path) -> None:
    """`status` of hosts on which nobody listens names them: exit code 1."""
    inventory = planted.laid("base", tmp_path)
    hosts = inventory / "hosts.yml"
    text = hosts.read_text()
    for rank in (1, 2):
        closed = f"ansible_host: 127.0.0.{rank}\n      ansible_port: 1"
        text = text.replace(f"ansible_host: 192.0.2.1{rank}", closed)
    hosts.write_text(text)
    code, out, _ = run("status", str(inventory))
    assert code == 1
    assert out.count("cannot be reached") == 2


@pytest.mark.parametrize("case", ["21-faults-everywhere", planted.NEEDS])
def test_a_playbook_refuses_before_it_contacts_a_host(case: str, tmp_path: Path) -> None:
    """ansible-playbook ends with 2 and the golden text, and has not even started ssh."""
    (tmp_path / "inventory").mkdir()
    inventory = planted.laid(case, tmp_path / "inventory")
    called = tmp_path / "ssh-was-called"
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\ntouch {called}\nexit 255\n")
    ssh.chmod(0o755)
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, "playbooks/site.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}", "ANSIBLE_FORCE_COLOR": "0"},
    )
    shown = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    for line in planted.text(case).splitlines()[1:]:
        assert " ".join(line.split()) in shown
    assert not called.exists()
