"""Tasks of vllm_serve, run by the real ansible-playbook against folders and a systemctl over a JSON file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parents[2]
MARK = "# Written by kimi_infra; a change made here is overwritten.\n"

# Over a world of units by name, each with its state, and of the calls that change something.
SYSTEMCTL = """#!{python}
import fnmatch, json, os, sys
path = os.environ["FAKE_SYSTEMD"]
world = json.load(open(path))
words = sys.argv[1:]
units = world["units"]
if words[0] == "show" and "--property=NeedDaemonReload" in words:
    patterns = [word for word in words[1:] if not word.startswith("-")]
    found = [unit for name, unit in units.items() if any(fnmatch.fnmatch(name, p) for p in patterns)]
    print("\\n\\n".join("yes" if unit["behind"] else "no" for unit in found))
elif words[0] == "show":
    unit = units.get(words[1])
    print("LoadState=" + ("loaded" if unit else "not-found"))
    print("ActiveState=" + (unit or {{"active": "inactive"}})["active"])
elif words[0] == "is-active":
    state = units.get(words[1], {{"active": "inactive"}})["active"]
    print(state)
    sys.exit(0 if state == "active" else 3)
elif words[0] == "is-enabled":
    print("enabled")
else:
    world["calls"].append(words)
    if words[0] == "daemon-reload":
        for unit in units.values():
            unit["behind"] = False
    if words[0] == "stop":
        units[words[1]]["active"] = "inactive"
    json.dump(world, open(path, "w"))
"""


class Host:
    """This machine with a systemd of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.units = folder, folder / "system"
        self._world = folder / "world.json"
        (folder / "bin").mkdir()
        self.units.mkdir()
        program = folder / "bin" / "systemctl"
        program.write_text(SYSTEMCTL.format(python=sys.executable))
        program.chmod(0o755)
        self.world = {"units": {}, "calls": []}

    @property
    def world(self) -> dict[str, Any]:
        """What the fake knows."""
        return dict(json.loads(self._world.read_text()))

    @world.setter
    def world(self, new: Mapping[str, Any]) -> None:
        self._world.write_text(json.dumps(new))

    def load(self, units: Mapping[str, object]) -> None:
        """Say what systemd has loaded."""
        self.world = {"units": units, "calls": []}

    def write(self, name: str, *, config: str = "kimi", mark: str = MARK) -> Path:
        """Write a unit that runs a rank with a deployment's configuration."""
        path = self.units / name
        program = f"/usr/local/lib/kimi-infra/kimi-rank run --config /etc/kimi-infra/{config}/rank.json"
        path.write_text(
            f"{mark}[Unit]\nDescription=x\n\n[Service]\nExecStart={program} -- \\\n  docker run\n"
        )
        return path

    def play(self, *files: str) -> str:
        """Run task files of the role; returns what Ansible said."""
        names = ["a", "b", "c", "d"]
        role = {"name": str(ROOT / "roles" / "vllm_serve")}
        tasks: list[object] = [
            {"ansible.builtin.include_role": {**role, "tasks_from": file}} for file in files
        ]
        shown = self._folder / "status.json"
        copy = {"dest": str(shown), "content": "{{ vllm_serve_status | default({}) | to_json }}"}
        tasks.append({"ansible.builtin.copy": copy, "changed_when": False})
        play = [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]
        (self._folder / "play.yml").write_text(yaml.safe_dump(play))
        given = {
            "ansible_python_interpreter": sys.executable,
            "__vllm_serve_unit_root": str(self.units),
            "vllm_serve_deployments": [
                {
                    "name": name,
                    "unit": f"vllm-{name}-worker.service",
                    "config": f"/etc/kimi-infra/{name}/rank.json",
                }
                for name in names
            ],
            "vllm_serve_asked": {
                "results": [{"item": {"name": name}, "stdout": '{"running": false}'} for name in names]
            },
        }
        program = str(Path(sys.executable).parent / "ansible-playbook")
        words = [program, "-c", "local", "-i", "localhost,", "-e", json.dumps(given)]
        environment = {
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self._folder),
            "LC_ALL": "C.UTF-8",
            "FAKE_SYSTEMD": str(self._world),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
        }
        done = subprocess.run(
            [*words, str(self._folder / "play.yml")],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def statuses(self) -> dict[str, object]:
        """What the rollout will read of each deployment."""
        results = json.loads((self._folder / "status.json").read_text())["results"]
        return {one["item"]["name"]: json.loads(one["stdout"]) for one in results}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host without units."""
    return Host(tmp_path)


def unit(active: str, *, behind: bool = False) -> Mapping[str, object]:
    """A unit as systemd has it loaded."""
    return {"active": active, "behind": behind}


def test_a_lost_reload_is_made_up_once(host: Host) -> None:
    """What an earlier run wrote is read by systemd in the next one, and the run after changes nothing."""
    host.load({"vllm-kimi-head.service": unit("active", behind=True), "cron.service": unit("active")})
    assert "changed=1 " in host.play("reload.yml", "reload.yml")
    assert host.world["calls"] == [["daemon-reload"]]


def test_a_rank_under_its_earlier_name_differs_from_the_plan(host: Host) -> None:
    """Head and worker swapped: a unit that runs counts as a stale rank, one that is active serves too."""
    states = {"a": "active", "b": "activating", "c": "inactive"}
    for name in states:
        host.write(f"vllm-{name}-head.service", config=name)
    # Neither the planned unit nor that of another deployment is a leftover.
    host.write("vllm-d-worker.service", config="d")
    host.write("vllm-dd-head.service", config="dd")
    host.load(
        {f"vllm-{name}-head.service": unit(state) for name, state in states.items()}
        | {"vllm-d-worker.service": unit("active"), "vllm-dd-head.service": unit("active")}
    )
    host.play("leftovers.yml", "answers.yml")
    assert host.statuses() == {
        "a": {"running": True, "stale": True, "ready": True},
        "b": {"running": True, "stale": True},
        "c": {"running": False},
        "d": {"running": False},
    }


def test_teardown_removes_our_units_and_no_others(host: Host) -> None:
    """A name is not enough: the first line says whose a unit is. Units of others cause no reload either."""
    mine = host.write("vllm-kimi-head.service")
    theirs = host.write("vllm-theirs.service", mark="# An operator's own.\n")
    (host.units / "kimi-kimi.target").write_text(f"{MARK}[Unit]\n")
    (host.units / "kimi-no.target").write_text(f"[Unit]\n{MARK}")
    (host.units / "kimi-no-boot.service").write_text("[Service]\nExecStart=/bin/true\n")
    host.load(
        {
            "vllm-kimi-head.service": unit("active"),
            "kimi-kimi.target": unit("active"),
            "cron.service": unit("active", behind=True),
        }
    )
    host.play("teardown.yml")
    assert not mine.exists()
    assert theirs.exists()
    assert sorted(path.name for path in host.units.glob("kimi-*")) == [
        "kimi-no-boot.service",
        "kimi-no.target",
    ]
    assert ["stop", "vllm-kimi-head.service"] in host.world["calls"]
    assert ["daemon-reload"] not in host.world["calls"]
