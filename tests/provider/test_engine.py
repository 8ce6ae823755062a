"""The product's Pulumi.yaml, program and provider under Pulumi's own engine; hosts are this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kimi_infra.cloud import sources
from tests.provider import engine, tree

pytestmark = pytest.mark.engine

KEY = "canary-of-the-api-key"
PASSPHRASE = "canary-of-the-passphrase"
NAP = "6011"
ROOT = sources.root()


@pytest.fixture(scope="session")
def pulumi() -> Path:
    """Folder of the CLI and its language host."""
    line = [sys.executable, str(ROOT / "tools/setup/get_pulumi.py")]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


class Stack:
    """One stack of the product's program over the tests' own playbooks."""

    def __init__(self, folder: Path, pulumi: Path) -> None:
        self.folder, self.out, self.runtime = folder, folder / "out", folder / "run"
        for name in ("state", "home", "run", "bin"):
            (folder / name).mkdir()
        self.inventory = tree.write_inventory(folder / "inv", self.out)
        self._given = (self.inventory / "group_vars/kimi.yml").read_text()
        self._program(tree.write_tree(folder / "tree"))
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        self.environ = {
            **kept,
            "PATH": f"{pulumi}:{os.environ['PATH']}",
            "VIRTUAL_ENV": sys.prefix,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }
        self.said = ""
        self.good("stack", "init", "test")
        self.good("config", "set", "inventory", "inv")
        self.good("config", "set", "--secret", "--path", 'secrets["KIMI_API_KEY"]', KEY)

    def _program(self, playbooks: Path) -> None:
        """Lay the product's project, its provider pointed at the tests' playbooks."""
        project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
        [named] = project["plugins"]["providers"]
        program = ROOT / named["path"] / "pulumi-resource-kimi"
        wrapper = self.folder / "bin/pulumi-resource-kimi"
        wrapper.write_text(f'#!/bin/sh\nexec {program} --tree {playbooks} "$@"\n')
        wrapper.chmod(0o755)
        named["path"] = "bin"
        project["runtime"]["options"]["virtualenv"] = sys.prefix
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        shutil.copy(ROOT / "__main__.py", self.folder)

    def given(self, **variables: object) -> None:
        """Set variables of the hosts."""
        lines = "".join(f"{name}: {value}\n" for name, value in variables.items())
        (self.inventory / "group_vars/kimi.yml").write_text(self._given + lines)

    def run(self, *words: str) -> tuple[int, str]:
        """Run the CLI; exit code and all that it printed."""
        line = ["pulumi", *words, "--non-interactive"]
        done = subprocess.run(
            line,
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.said += done.stdout
        return done.returncode, done.stdout

    def good(self, *words: str) -> str:
        """Run the CLI, which must succeed."""
        code, text = self.run(*words)
        assert code == 0, text
        return text

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start the CLI, and wait until a task waits on both hosts."""
        process = subprocess.Popen(
            ["pulumi", *words, "--non-interactive"],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        engine.wait_until(lambda: len(self.processes(f"sleep\0{NAP}\0")) == 2, "the waiting task", 60)
        return process

    def processes(self, command: str = "") -> list[int]:
        """Everything that runs with this stack's runtime folder in its environment."""
        mark = f"XDG_RUNTIME_DIR={self.runtime}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                own = mark in (entry / "environ").read_bytes().split(b"\0")
                if own and command.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    @property
    def state(self) -> dict[str, Any]:
        """The resources in state, by name."""
        exported = json.loads(self.good("stack", "export"))
        found = exported["deployment"].get("resources", [])
        return {one["urn"].rpartition("::")[2]: one for one in found}

    @property
    def files(self) -> set[str]:
        """Names of what was put on the hosts."""
        return {path.name for path in self.out.iterdir() if not path.name.startswith(".")}


@pytest.fixture
def stack(tmp_path: Path, pulumi: Path) -> Iterator[Stack]:
    """A stack, after which nothing runs and no secret lies about."""
    made = Stack(tmp_path, pulumi)
    yield made
    assert made.processes() == []
    assert list(made.runtime.iterdir()) == []
    written = [path for part in ("state", "home", "tree", "bin") for path in (tmp_path / part).rglob("*")]
    texts = [path.read_bytes() for path in written if path.is_file()]
    for canary in (KEY, PASSPHRASE):
        assert canary not in made.said
        assert not [text for text in texts if canary.encode() in text]


def test_the_life_of_a_stack(stack: Stack) -> None:
    """Preview, up, no change, drift that a cron job sees, repair, a destroy that tears down."""
    text = stack.good("preview")
    assert stack.files == set()
    assert "kimi: ranks are started on tray-a and tray-b" in text

    text = stack.good("up", "--yes", "--skip-preview", "--logtostderr", "-v=9")
    assert 'kimi: "http://127.0.0.2:8000"' in text
    assert "host_base : Write the file" in text, "progress is seen where there is no terminal"
    assert len(stack.files) == 5 * 2 + 2 * 2
    assert "unchanged" in stack.good("up", "--yes", "--skip-preview", "--expect-no-changes")

    (stack.out / "vllm_serve-tray-b").write_text("by hand\n")
    code, text = stack.run("preview", "--refresh", "--expect-no-changes", "--diff")
    assert code != 0
    for part in ("tray-b: vllm_serve : Write the file", str(stack.out / "vllm_serve-tray-b"), "-by hand"):
        assert part in text
    assert (stack.out / "vllm_serve-tray-b").read_text() == "by hand\n"
    text = stack.good("up", "--yes", "--skip-preview", "--refresh")
    assert (stack.out / "vllm_serve-tray-b").read_text() == "hello\n"
    assert stack.state["site-serve"]["outputs"]["inSync"] is True
    assert stack.state["site-verify"]["outputs"]["applied"] == 2, "verified again after the repair"

    text = stack.good("config", "set", "onDelete", "teardown") + stack.good("up", "--yes", "--skip-preview")
    assert "5 updated" not in text
    stack.good("destroy", "--yes", "--skip-preview")
    assert stack.files == {name for name in stack.files if name.endswith(".secret") or "model_store" in name}
    assert "site-serve" not in stack.state


def test_a_renamed_stack_keeps_its_engines(stack: Stack) -> None:
    """A stack's name is no resource's name; a site that takes over hosts keeps them."""
    stack.good("config", "set", "onDelete", "teardown")
    stack.good("up", "--yes", "--skip-preview")
    before = stack.files
    stack.good("stack", "rename", "other")
    stack.good("up", "--yes", "--skip-preview", "--expect-no-changes")
    program = stack.folder / "__main__.py"
    program.write_text(program.read_text().replace('"site",', '"another",'))
    text = stack.good("up", "--yes", "--skip-preview")
    assert "site-serve" not in stack.state
    assert "kept as they are, for another-" in text
    assert stack.files == before


def test_a_changed_port_says_what_restarts(stack: Stack) -> None:
    """One edit is one update where it counts, its words are in the diff, and destroy keeps what serves."""
    stack.good("up", "--yes", "--skip-preview")
    file = stack.inventory / "deployment.yml"
    file.write_text(file.read_text().replace("port: 8000", "port: 8001"))
    text = stack.good("preview", "--diff")
    assert "ranks that serve go on with what they run until a restart is allowed" in text
    assert '"8000" => "8001"' in text
    assert "2 to update" in text
    text = stack.good("destroy", "--yes", "--skip-preview")
    assert "tray-a, tray-b: kept as they are, engines go on serving (onDelete: retain)" in text
    assert "vllm_serve-tray-a" in stack.files


def test_a_failure_is_kept_and_mended(stack: Stack) -> None:
    """The other host's work stays, the message is the task's, and the next up runs only what is left."""
    stack.given(fail_in="vllm_serve tray-b")
    code, text = stack.run("up", "--yes", "--skip-preview")
    assert code != 0
    assert "tray-b: vllm_serve : Stop where the test says: tray-b has no luck with [secret]; mend it" in text
    assert "vllm_serve-tray-a" in stack.files
    assert stack.state["site-serve"]["initErrors"]
    assert "site-verify" not in stack.state
    code, text = stack.run("up", "--yes", "--skip-preview")
    assert code != 0, "not forgotten"
    assert stack.state["site-hosts"]["outputs"]["applied"] == 1
    stack.given()
    stack.good("up", "--yes", "--skip-preview")
    stack.good("up", "--yes", "--skip-preview", "--expect-no-changes")


@pytest.mark.parametrize("victim", ["pulumi", "provider"])
def test_an_interrupted_up_goes_on(stack: Stack, victim: str) -> None:
    """SIGINT to the CLI, kill -9 of the provider: no orphan, the state is read, the next up ends in sync."""
    stack.given(nap_in="serving_image", nap=NAP)
    process = stack.begin("up", "--yes", "--skip-preview")
    if victim == "pulumi":
        process.send_signal(signal.SIGINT)
    else:
        [provider] = stack.processes("kimi_infra.cloud.server")
        os.kill(provider, signal.SIGKILL)
    text, _ = process.communicate(timeout=60)
    stack.said += text
    assert process.returncode != 0, text
    engine.wait_until(lambda: stack.processes() == [], "the end of all processes")
    assert stack.state["site-hosts"]["outputs"]["inSync"] is True
    stack.given()
    stack.good("up", "--yes", "--skip-preview")
    stack.good("up", "--yes", "--skip-preview", "--expect-no-changes")
