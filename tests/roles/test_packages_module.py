"""Packages come with a record of what is new, and exactly these go again."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.roles.conftest import RunModule

pytestmark = pytest.mark.fast

# A package manager over a JSON file: {"installed": [...], "depends": {package: [...]}, "calls": [...]}.
FAKE = """#!{python}
import json, os, sys
path = os.environ["FAKE_DPKG"]
world = json.load(open(path))
tool, words = os.path.basename(sys.argv[0]), sys.argv[1:]
depends, installed = world["depends"], world["installed"]

def closure(names):
    names = set(names)
    while True:
        more = names | {{d for n in names for d in depends.get(n, [])}}
        if more == names:
            return names
        names = more

def takes_along(names):
    names = set(names)
    while True:
        more = names | {{n for n in installed if names & set(depends.get(n, []))}}
        if more == names:
            return names
        names = more

if tool == "dpkg-query":
    print("\\n".join(f"ii  {{n}}" for n in installed))
    print("rc  leftover")
    sys.exit(0)
world["calls"].append([tool, *words])
verb = words[0]
names, skip = [], False
for word in words[1:]:
    if skip or word.startswith("-"):
        skip = word == "-o"
        continue
    names.append(word)
if verb == "update" and world.get("locked"):
    world["locked"] -= 1
    json.dump(world, open(path, "w"))
    sys.exit("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)")
if verb == "install":
    new = sorted(closure(names) - set(installed))
    print("Inst base-files [12] (13 Debian:13 [amd64])")
    print("\\n".join(f"Inst {{n}}:amd64 (1.0 Debian:13 [amd64])" for n in new))
    print("\\n".join(f"Remv {{n}} [1.0]" for n in world.get("conflicts", [])))
    if "--simulate" not in words:
        world["installed"] += new
        if world.get("dies"):
            json.dump(world, open(path, "w"))
            sys.exit("E: Sub-process /usr/bin/dpkg returned an error code (1)")
if verb in ("purge", "remove"):
    gone = takes_along(names) & set(installed)
    print("\\n".join(f"Purg {{n}} [1.0]" for n in sorted(gone)))
    if "--simulate" not in words:
        world["installed"] = [n for n in installed if n not in gone]
json.dump(world, open(path, "w"))
"""
DEPENDS = {"docker.io": ["containerd", "iptables"], "containerd": ["runc"]}


class Apt:
    """A host's packages, the module, and its receipt."""

    def __init__(self, folder: Path, run: RunModule) -> None:
        self._world, self._run = folder / "world.json", run
        self.receipt, self.data = folder / "receipts" / "packages.json", folder / "docker"
        self.set(installed=["base-files", "runc"], depends=DEPENDS, calls=[])

    def set(self, **changes: object) -> None:
        """Change the host."""
        self._world.write_text(json.dumps({**self.world, **changes}))

    @property
    def world(self) -> Mapping[str, list[str]]:
        """The host as it is."""
        world: Mapping[str, list[str]] = json.loads(self._world.read_text()) if self._world.exists() else {}
        return world

    @property
    def installed(self) -> list[str]:
        """What is installed."""
        return sorted(self.world["installed"])

    def verbs(self) -> list[str]:
        """The verbs that changed something."""
        return [call[1] for call in self.world["calls"] if "--simulate" not in call]

    def install(self, *names: str, check: bool = False) -> dict[str, object]:
        """Install, docker by default."""
        wanted = list(names or ("docker.io",))
        data, receipt = [str(self.data)], str(self.receipt)
        return self._run("kimi_packages", names=wanted, receipt=receipt, data=data, check=check)

    def take_off(self, *, check: bool = False) -> dict[str, object]:
        """Tear down."""
        return self._run("kimi_packages", state="absent", receipt=str(self.receipt), check=check)


@pytest.fixture
def apt(tmp_path: Path, run_module: RunModule, monkeypatch: pytest.MonkeyPatch) -> Apt:
    """A host with runc, but without docker."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("apt-get", "dpkg-query"):
        (tools / tool).write_text(FAKE.format(python=sys.executable))
        (tools / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DPKG", str(tmp_path / "world.json"))
    return Apt(tmp_path, run_module)


def test_dependencies_that_are_new_go_again_and_others_stay(apt: Apt) -> None:
    """What was there before docker (runc) outlives it; containerd came with it and goes with it."""
    before = apt.installed
    assert apt.install()["installed"] == ["containerd", "docker.io", "iptables"]
    assert apt.take_off()["removed"] == ["containerd", "docker.io", "iptables"]
    assert apt.installed == before
    assert apt.verbs() == ["update", "install", "purge"]


def test_what_is_there_is_left_alone(apt: Apt) -> None:
    """No package work at all on a host that has everything: it may be serving (P23, P25)."""
    apt.install()
    before = apt.verbs()
    assert not apt.install()["changed"]
    assert apt.verbs() == before


def test_a_check_run_does_nothing_and_shows_what_is_missing(apt: Apt) -> None:
    """Not even the package lists are fetched."""
    answer = apt.install(check=True)
    assert answer["changed"]
    assert answer["diff"]["after"] == "docker.io\n"  # type: ignore[index]
    assert apt.world["calls"] == []
    assert not apt.receipt.exists()


def test_an_installation_that_breaks_is_torn_down_too(apt: Apt) -> None:
    """The receipt is written before anything changes."""
    before = apt.installed
    apt.set(dies=True)
    assert apt.install()["failed"]
    assert apt.installed != before
    apt.take_off()
    assert apt.installed == before


def test_nothing_is_removed_to_make_room(apt: Apt) -> None:
    """A docker-ce that docker.io would push out is kept; the message names it."""
    apt.set(conflicts=["docker-ce"])
    answer = apt.install()
    assert answer["failed"]
    assert "docker-ce" in str(answer["msg"])
    assert apt.verbs() == ["update"]


def test_what_others_need_by_now_is_kept(apt: Apt) -> None:
    """A firewall that came later holds iptables; the rest goes, and nothing of others."""
    apt.install()
    apt.set(installed=[*apt.world["installed"], "ufw"], depends={**DEPENDS, "ufw": ["iptables"]})
    answer = apt.take_off()
    assert answer["kept"] == ["iptables"]
    assert apt.installed == ["base-files", "iptables", "runc", "ufw"]


def test_data_that_was_there_before_is_not_purged(apt: Apt) -> None:
    """Debian's purge of docker deletes /var/lib/docker: not where it held something when we came."""
    apt.data.mkdir()
    (apt.data / "volumes").touch()
    apt.install()
    apt.take_off()
    assert apt.verbs()[-1] == "remove"


def test_a_lock_is_waited_for(apt: Apt) -> None:
    """P46: unattended-upgrades on a new host holds the lists' lock for a while."""
    apt.set(locked=1)
    assert apt.install()["changed"]
    assert apt.verbs() == ["update", "update", "install"]


def test_teardown_of_a_host_without_a_receipt_changes_nothing(apt: Apt) -> None:
    """Nothing was installed by us, so nothing goes."""
    assert not apt.take_off()["changed"]
    assert apt.world["calls"] == []
