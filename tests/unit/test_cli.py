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
from kimi_infra.observe import ssh
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
    for verb in (["plan"], ["render"], ["status"], ["ask"], ["verify"]):
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
    assert named[:2] == chosen[:2]
    assert named[1].startswith(begins)


@pytest.mark.parametrize("form", ["shell", "docker", "systemd"])
def test_rendering_says_what_is_needed_before_applying(form: str) -> None:
    """On standard error, so that standard output is the commands alone."""
    code, text, error = run("render", GB300, "--as", form)
    assert code == 0
    assert "needed before applying" not in text
    assert error.startswith("kimi-infra: needed before applying:\n  hosts.yml: ")
    assert len(error.splitlines()) == 4


@pytest.mark.parametrize(
    "options",
    [["--hardware", "gb300"], ["--features", "none"], ["--nodes", "2", "--accept-preview"]],
    ids=lambda options: options[0],
)
def test_a_choice_beside_an_inventory_is_refused(options: list[str]) -> None:
    """Exit code 2 names each option that would have had no effect, even where it equals the default."""
    code, text, error = run("render", GB300, *options)
    assert (code, text) == (2, "")
    names = [word for word in options if word.startswith("--")]
    assert all(f"  {name}: an INVENTORY makes this choice itself" in error for name in names)
    assert error.startswith(f"kimi-infra: {len(names)} fault")


@pytest.mark.parametrize("features", ["", " ", "reasoning,", ",reasoning"])
def test_an_empty_feature_is_told_of_none(features: str) -> None:
    """Exit code 2, and the remedy is the word for no feature at all."""
    code, _, error = run("render", "--features", features)
    assert code == 2
    assert f"--features: an empty name (got {features!r}); give none for no feature" in error


def test_a_choice_by_options_is_refused_in_their_words() -> None:
    """A remedy names an option, never a line of a file that is not there."""
    code, _, error = run("render", "--hardware", "vr200", "--features", "nosuch", "--nodes", "0")
    assert code == 2
    assert "--accept-preview: hardware vr200 is a preview" in error
    assert "; give --accept-preview, or choose other hardware" in error
    assert "--nodes: an engine needs at least one node" in error
    assert "--features: " in error
    assert "accept_preview" not in error


def test_a_plan_says_what_is_accepted_and_not_acted_on(tmp_path: Path) -> None:
    """The plan lists such values of the deployment, as text and as JSON; without any there is no heading."""
    heading = "accepted, not acted on by this version"
    assert heading not in run("plan", GB300)[1]
    inventory = planted.laid("base", tmp_path)
    file = inventory / "deployment.yml"
    file.write_text(file.read_text() + "    allow: [restart, reboot]\n    offload: {policy: measured}\n")
    below = run("plan", str(inventory))[1].partition(heading)[2].split("\n\n")[0].splitlines()[1:]
    (deployment,) = json.loads(run("plan", str(inventory), "--json")[1])["deployments"]
    assert [line.strip().removeprefix("- ") for line in below] == deployment["not_acted_on"]
    assert [value.partition(":")[0] for value in deployment["not_acted_on"]] == ["offload", "allow"]
    assert "policy measured" in deployment["not_acted_on"][0]


@pytest.mark.parametrize("form", ["systemd", "json"])
def test_what_hosts_run_needs_an_inventory(form: str) -> None:
    """A choice without hosts has no units: exit code 2."""
    code, text, error = run("render", "--as", form)
    assert (code, text) == (2, "")
    assert "INVENTORY" in error


def test_units_are_rendered_without_a_host() -> None:
    """`--as systemd` shows every file of each host, what only a host knows as a placeholder."""
    code, text, _ = run("render", GB300, "--as", "systemd")
    assert code == 0
    heads = [line for line in text.splitlines() if line.startswith("# tray-")]
    for host, unit in (("tray-a", "head"), ("tray-b", "worker")):
        assert {
            f"# {host}: /etc/kimi-infra/kimi/rank.json",
            f"# {host}: /etc/kimi-infra/kimi/engine.env",
            f"# {host}: /etc/kimi-infra/kimi/secret.env (not shown: holds secrets)",
            f"# {host}: /etc/systemd/system/kimi-kimi.target",
            f"# {host}: /etc/systemd/system/kimi-kimi-boot.service",
            f"# {host}: /etc/systemd/system/vllm-kimi-{unit}.service",
        } <= set(heads)
    assert text.count("ExecStart=") == 4
    assert "<image ID of vllm/vllm-openai:kimi-k31>" in text
    assert "VLLM_API_KEY" not in text
    assert "import " not in text


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


@pytest.mark.parametrize("printed", ["[]", "null", "[" * 100_000, "", "\ufffd"], ids=lambda text: text[:4])
def test_a_supervisor_that_prints_something_else_is_trouble(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` names both hosts and ends with exit code 1, whatever they print."""
    monkeypatch.setattr(ssh, "run", lambda *_, **__: printed)
    code, out, error = run("status", str(planted.laid("base", tmp_path)))
    assert (code, error) == (1, "")
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "kimi rank 0 on tray-a",
        "kimi rank 1 on tray-b",
    ]


def test_a_machine_without_ssh_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` reports it for each host instead of ending in a traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, _ = run("status", str(planted.laid("base", tmp_path)))
    assert code == 1
    assert out.count("ssh did not start") == 2


def test_a_terminal_without_utf8_gets_escapes(tmp_path: Path) -> None:
    """What the terminal's encoding lacks ends in no traceback."""
    inventory = planted.laid("base", tmp_path)
    file = inventory / "deployment.yml"
    file.write_text(file.read_text().replace("/srv/models", "/srv/深"), encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).with_name("kimi-infra"), "plan", inventory],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1:strict"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"weights /srv/\\u6df1/" in done.stdout


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
