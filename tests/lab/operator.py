"""What an operator does in the lab: run playbooks, look at hosts, ask the engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kimi_infra import lab
from kimi_infra.deploy import site

ROOT = Path(__file__).parents[2]
INVENTORY = ROOT / "inventories" / "lab-2node"
HEAD, WORKER = lab.host_names
UNITS = {HEAD: "vllm-kimi-head.service", WORKER: "vllm-kimi-worker.service"}
_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished playbook run."""

    code: int
    output: str

    @property
    def changed(self) -> Mapping[str, int]:
        """Changed tasks by host."""
        return {host: int(changed) for host, _, changed, _, _ in _RECAP.findall(self.output)}


def playbook(name: str, *arguments: str, inventory: Path = INVENTORY, **environ: str) -> Run:
    """Run a playbook as the README says, with more in its environment if asked."""
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", inventory, f"playbooks/{name}.yml", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_FORCE_COLOR": "0", **environ},
    )
    return Run(code=done.returncode, output=done.stdout)


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run kimi-infra."""
    program = Path(sys.executable).with_name("kimi-infra")
    return subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def on_host(host: str, *command: str, stdin: str = "", check: bool = True) -> str:
    """Run a command as root on a lab host and return what it printed."""
    argv = lab.ssh_argv(host, ["sudo", *command])
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"{host}: {command}: {done.stderr}"
    return done.stdout


def snapshot(host: str) -> dict[str, str]:
    """Return a host's file systems (see :mod:`tests.lab.snapshot`)."""
    program = (Path(__file__).parent / "snapshot.py").read_text()
    found: dict[str, str] = json.loads(on_host(host, "python3", "-", stdin=program))
    return found


def differences(before: Mapping[str, str], after: Mapping[str, str], noise: Sequence[str]) -> list[str]:
    """Return the paths that differ, but for those that match a pattern of ``noise``."""
    ignored = re.compile("|".join(f"(?:{pattern})" for pattern in noise))
    paths = sorted(before.keys() | after.keys())
    changed = (path for path in paths if before.get(path) != after.get(path))
    return [
        f"{path}: {before.get(path, 'absent')} => {after.get(path, 'absent')}"
        for path in changed
        if not ignored.fullmatch(path)
    ]


def invocation(host: str) -> str:
    """Return systemd's id of the rank's current start: a restart gives another one."""
    return on_host(host, "systemctl", "show", "--property=InvocationID", "--value", UNITS[host]).strip()


def text_of(argv: Sequence[str]) -> str:
    """Return what a command printed, whatever its exit code."""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def copy_inventory(folder: Path) -> Path:
    """Copy the lab's inventory, to be changed by a test."""
    copied = folder / "lab-copy"
    shutil.copytree(INVENTORY, copied)
    return copied


def replace_text(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text()
    assert old in text, f"{path} does not hold {old}"
    path.write_text(text.replace(old, new))


def host_keys(inventory: Path) -> dict[str, str]:
    """Return each host's pinned key as the inventory gives it."""
    return {host.name: host.host_key for host in site.read(inventory).hosts}


def secrets() -> dict[str, str]:
    """Return the lab's secrets, to be looked for where they must not be."""
    deployment = site.deployment(site.read_ready(INVENTORY), None)
    assert deployment.api.key
    assert deployment.hub_token
    return {
        "API key": Path(deployment.api.key.key).read_text().strip(),
        "hub token": Path(deployment.hub_token.key).read_text().strip(),
    }


def laid_down(host: str) -> str:
    """Return hashes and modes of everything that was laid down on a host, and its image's ID."""
    listing = on_host(
        host,
        "sh",
        "-c",
        "'find /etc/kimi-infra /usr/local/lib/kimi-infra /etc/systemd/system /etc/docker"
        ' -type f -printf "%p %m %u:%g\\n" -exec sha256sum {} \\; | sort\'',
    )
    images = on_host(host, "docker", "images", "--no-trunc", "--quiet")
    return listing + images


def state() -> Path:
    """Return the folder of the lab's own files."""
    return lab.status().state
