"""`pulumi up --stack lab-2node`: the same hosts, files and engine as by ansible-playbook."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kimi_infra import lab
from tests.lab import operator
from tests.lab.conftest import Converged
from tests.lab.test_1_spine import CHECK_NOISE
from tests.lab.test_5_teardown import NOISE

pytestmark = pytest.mark.stack

STACK = "lab-2node"
UNCHANGED = re.compile(r"^\s+(\d+) unchanged$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Pulumi's CLI with the lab's own backend."""

    environ: dict[str, str]

    def run(self, *words: str) -> operator.Run:
        """Run the CLI in the checkout, as an operator would."""
        done = subprocess.run(
            ["pulumi", *words, "--stack", STACK, "--non-interactive", "--color=never"],
            cwd=operator.ROOT,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return operator.Run(code=done.returncode, output=done.stdout)

    def good(self, *words: str) -> str:
        """Run the CLI, which must succeed."""
        done = self.run(*words)
        assert done.code == 0, done.output[-6000:]
        return done.output

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs."""
        found: dict[str, Any] = json.loads(self.good("stack", "output", "--json"))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Hosts as delivered, seen by a preview."""

    before: dict[str, dict[str, str]]
    preview: operator.Run
    after: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """One finished `pulumi up`."""

    output: str
    commands: str
    """Every command line that was seen on this machine while it ran."""


@pytest.fixture(scope="session")
def pulumi(lab_up: lab.LabInfo) -> Engine:
    """Get the CLI as ./run does, and the lab's own backend."""
    assert lab_up.up
    getter = [sys.executable, str(operator.ROOT / "tools/setup/get_pulumi.py")]
    folder = subprocess.run(getter, capture_output=True, text=True, check=True).stdout.strip()
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    engine = Engine(environ={**os.environ, **lab.pulumi_environment(), "PATH": path})
    engine.good("stack", "select", "--create")
    return engine


@pytest.fixture(scope="session")
def delivered(converged: Converged, pulumi: Engine) -> Given:
    """Give the hosts back as delivered, and preview the stack."""
    assert converged.first.code == 0
    lab.reset()
    before = {name: operator.snapshot(name) for name in operator.UNITS}
    preview = pulumi.run("preview", "--diff")
    after = {name: operator.snapshot(name) for name in operator.UNITS}
    return Given(before=before, preview=preview, after=after)


@pytest.fixture(scope="session")
def up(delivered: Given, pulumi: Engine) -> Up:
    """Run `pulumi up` from hosts as delivered, at the highest verbosity."""
    assert delivered.preview.code == 0
    seen: set[str] = set()
    ended = threading.Event()
    sampler = threading.Thread(target=_sample_commands, args=(seen, ended))
    sampler.start()
    try:
        said = pulumi.good("up", "--yes", "--skip-preview", "--logtostderr", "-v=9")
    finally:
        ended.set()
        sampler.join()
    return Up(output=said, commands="\n".join(seen))


def test_a_preview_of_hosts_as_delivered_succeeds_and_changes_nothing(delivered: Given) -> None:
    """The preview says what would be made, and the file systems stay as they were."""
    assert delivered.preview.code == 0, delivered.preview.output[-6000:]
    assert "kimi:index:VllmServe" in delivered.preview.output
    for name, before in delivered.before.items():
        assert operator.differences(before, delivered.after[name], CHECK_NOISE) == []


def test_pulumi_lays_down_the_bytes_that_ansible_lays_down(converged: Converged, up: Up) -> None:
    """Units, env files, programs and image IDs are the same on both hosts, whichever front end wrote them."""
    assert up.output
    for name in operator.UNITS:
        assert operator.laid_down(name) == converged.laid_down[name]


def test_outputs_say_where_it_answers_and_that_all_is_in_sync(up: Up, pulumi: Engine) -> None:
    """Endpoint, image ID per host, plan hash; nothing waits for a restart."""
    assert up.output
    found = pulumi.outputs()
    head = next(host.address for host in lab.status().hosts if host.name == operator.HEAD)
    assert found["endpoints"] == {"kimi": f"http://{head}:8000"}
    assert len(set(found["imageIds"]["kimi"].values())) == 1
    assert set(found["imageIds"]["kimi"]) == set(operator.UNITS)
    assert found["inSync"] is True
    assert found["drift"] == []
    assert found["restartRequired"] == {}


def test_the_passphrase_and_the_secrets_are_nowhere_in_clear(up: Up, pulumi: Engine) -> None:
    """Not in state, not in what `-v=9` prints, on no command line: passphrase, API key and hub token."""
    passphrase = Path(pulumi.environ["PULUMI_CONFIG_PASSPHRASE_FILE"])
    assert passphrase.stat().st_mode & 0o077 == 0
    canaries = {"passphrase": passphrase.read_text().strip(), **operator.secrets()}
    backend = Path(pulumi.environ["PULUMI_BACKEND_URL"].removeprefix("file://"))
    texts = {str(path): path.read_text(errors="replace") for path in backend.rglob("*") if path.is_file()}
    assert any("stacks" in path for path in texts)
    assert "ansible-playbook" in up.commands
    texts |= {"output": up.output, "command lines": up.commands}
    for name, canary in canaries.items():
        assert [place for place, text in texts.items() if canary in text] == [], name


def test_a_second_up_changes_nothing(up: Up, pulumi: Engine) -> None:
    """Every resource is unchanged, and neither rank was started anew."""
    assert up.output
    before = {host: operator.invocation(host) for host in operator.UNITS}
    again = pulumi.good("up", "--yes", "--expect-no-changes")
    assert UNCHANGED.search(again), again
    assert {host: operator.invocation(host) for host in operator.UNITS} == before


def test_a_unit_edited_by_hand_is_seen_and_repaired(up: Up, pulumi: Engine) -> None:
    """A cron job's preview fails and names host, file and difference; `up --refresh` writes the file only."""
    assert up.output
    before = {host: operator.invocation(host) for host in operator.UNITS}
    unit = f"/etc/systemd/system/{operator.UNITS[operator.WORKER]}"
    planned = operator.on_host(operator.WORKER, "sha256sum", unit)
    operator.on_host(operator.WORKER, "sed", "-i", "s/^RestartSec=5$/RestartSec=50/", unit)
    seen = pulumi.run("preview", "--refresh", "--expect-no-changes", "--diff")
    assert seen.code != 0
    for word in (operator.WORKER, unit, "RestartSec=50"):
        assert word in seen.output
    pulumi.good("up", "--refresh", "--yes", "--skip-preview")
    assert operator.on_host(operator.WORKER, "sha256sum", unit) == planned
    assert {host: operator.invocation(host) for host in operator.UNITS} == before
    assert pulumi.outputs()["inSync"] is True


def test_destroy_keeps_hosts_serving_by_default(up: Up, pulumi: Engine) -> None:
    """The stack is gone from state, says so, and the engine goes on."""
    assert up.output
    before = {host: operator.invocation(host) for host in operator.UNITS}
    said = pulumi.good("destroy", "--yes", "--skip-preview")
    assert "retain" in said or "kept" in said, said
    assert {host: operator.invocation(host) for host in operator.UNITS} == before
    assert operator.cli("ask", str(operator.INVENTORY), "--temperature", "0").returncode == 0


def test_destroy_with_teardown_gives_the_hosts_back(delivered: Given, up: Up, pulumi: Engine) -> None:
    """Adopted again and destroyed with `onDelete: teardown`, file systems are as before the first up."""
    assert up.output
    settings = operator.ROOT / f"Pulumi.{STACK}.yaml"
    kept = settings.read_text()
    try:
        pulumi.good("config", "set", "onDelete", "teardown")
        pulumi.good("up", "--yes", "--skip-preview")
        pulumi.good("destroy", "--yes", "--skip-preview")
    finally:
        settings.write_text(kept)
    for host, before in delivered.before.items():
        assert operator.differences(before, operator.snapshot(host), NOISE) == []


def test_hosts_that_do_not_answer_are_an_error_that_names_them(pulumi: Engine, tmp_path: Path) -> None:
    """Two addresses that no lab host has: an error within 30 s, never "gone"; a plan works meanwhile."""
    inventory = _unreachable(tmp_path)
    project = yaml.safe_load((operator.ROOT / "Pulumi.yaml").read_text())
    project["plugins"]["providers"][0]["path"] = str(operator.ROOT / "kimi_infra/cloud/bin")
    project["runtime"]["options"]["virtualenv"] = sys.prefix
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    (tmp_path / "Pulumi.absent.yaml").write_text(f"config:\n  kimi_infra:inventory: {inventory.name}\n")
    shutil.copy(operator.ROOT / "__main__.py", tmp_path)
    environ = {**pulumi.environ, "KIMI_API_KEY": "not-used"}
    words = ["--stack", "absent", "--non-interactive", "--color=never"]
    subprocess.run(
        ["pulumi", "stack", "init", "absent"], cwd=tmp_path, env=environ, check=True, capture_output=True
    )
    began = time.monotonic()
    done = subprocess.run(
        ["pulumi", "preview", *words], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert time.monotonic() - began < 30
    assert done.returncode != 0
    for name in ("tray-a", "tray-b"):
        assert name in done.stdout + done.stderr
    assert operator.cli("plan", str(inventory)).returncode == 0


def _sample_commands(seen: set[str], ended: threading.Event) -> None:
    """Collect the command lines of all processes until told to end."""
    while not ended.wait(0.2):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    seen.add((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))


def _unreachable(folder: Path) -> Path:
    """Return a copy of the gb300 inventory, complete, whose addresses nobody has."""
    copied = folder / "inventory"
    shutil.copytree(operator.ROOT / "inventories" / "gb300-2node", copied)
    key = next(iter(operator.host_keys(operator.INVENTORY).values()))
    network = lab.status().hosts[0].address.rpartition(".")[0]
    for name in ("hosts.yml", "deployment.yml"):
        path = copied / name
        text = re.sub(r'"<fill in: the public SSH host key[^"]*"', json.dumps(key), path.read_text())
        text = re.sub(r'"<fill in: docker[^"]*"', f'"sha256:{"0" * 64}"', text)
        path.write_text(text.replace("192.0.2.11", f"{network}.211").replace("192.0.2.12", f"{network}.212"))
    return copied
