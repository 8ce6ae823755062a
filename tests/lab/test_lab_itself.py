"""The lab does what it says, shown on a second lab beside whatever else runs on this machine.

Its checkout is an empty folder, so that bridge, subnet, hosts and inventory are its own.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from typer import testing

from kimi_infra import lab
from kimi_infra.errors import LabError
from kimi_infra.lab import commands, layout, network, processes

pytestmark = pytest.mark.lab


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What a lab could leave on the machine."""

    links: frozenset[str]
    mounts: frozenset[str]
    groups: frozenset[str]
    rules: str
    routes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """A lab of another checkout."""

    files: layout.Layout
    info: lab.LabInfo
    before: Traces


def _traces() -> Traces:
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return Traces(
        links=frozenset(os.listdir("/sys/class/net")),  # noqa: PTH208 - names alone
        mounts=frozenset(line.split()[4] for line in mounts),
        groups=frozenset(_output("find", "/sys/fs/cgroup", "-name", "kimi-lab-*").split()),
        rules=_output("nft", "list", "ruleset"),
        routes=_output("ip", "route", "show", "table", "all"),
    )


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def other() -> Iterator[pytest.MonkeyPatch]:
    """Changes that last as long as this file's tests."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def second(other: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Second]:
    """A lab of its own, up; thrown away at the end."""
    first = layout.current()
    checkout = tmp_path_factory.mktemp("checkout")
    files = replace(first, checkout=checkout, state=first.state.with_name("0e57ed"))
    other.setattr(layout, "current", lambda: files)
    lab.down(purge=True)  # of a run that was killed
    before = _traces()
    yield Second(files=files, info=lab.up(print), before=before)
    lab.down(purge=True)


@pytest.fixture
def whole(second: Second) -> Second:
    """Both hosts running, whatever the test before has done to them."""
    lab.up()
    return second


def _on(host: str, *command: str) -> str:
    done = subprocess.run(
        lab.ssh_argv(host, command), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_hosts_are_as_delivered(second: Second) -> None:
    """Each host is a minimal Debian 13 with a sudo user, an empty docker folder and no docker."""
    for host in second.info.hosts:
        assert _on(host.name, "hostname") == host.name
        assert "trixie" in _on(host.name, "cat", "/etc/os-release")
        assert _on(host.name, "sudo", "-n", "id", "-un") == "root"
        assert _on(host.name, "id", "-un") == "ops"
        assert _on(host.name, "systemctl", "is-system-running") == "running"
        assert _on(host.name, "sh", "-c", "'command -v docker dockerd containerd || echo none'") == "none"
        assert _on(host.name, "sudo", "ls", "/var/lib/docker") == ""
        assert _on(
            host.name, "python3", "-c", "'import importlib.util as u; print(u.find_spec(\"yaml\"))'"
        ) == ("None")
        assert f"{host.address}/24" in _on(host.name, "ip", "-br", "address", "show", "host0")


def test_hosts_are_told_apart(second: Second) -> None:
    """Machine ids, host keys and boot ids differ: two hosts are two machines."""
    names = [host.name for host in second.info.hosts]
    for path in ("/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub", "/proc/sys/kernel/random/boot_id"):
        assert len({_on(name, "cat", path) for name in names}) == 2


def test_services_of_the_hosts_are_apart(second: Second) -> None:
    """A service that is killed and stopped on one host leaves its namesake on the other running."""
    names = [host.name for host in second.info.hosts]
    for name in names:
        _on(name, "sudo", "systemd-run", "--quiet", "--unit=namesake", "sleep", "600")
    start = time.monotonic()
    _on("lab-a", "sudo", "systemctl", "kill", "--signal=KILL", "--kill-whom=all", "namesake")
    _on("lab-a", "sudo", "systemctl", "stop", "namesake", "2>/dev/null", "||", "true")
    assert time.monotonic() - start < 20
    states = [_on(name, "systemctl", "is-active", "namesake", "||", "true") for name in names]
    assert states[1] == "active"
    assert states[0] != "active"
    _on("lab-b", "sudo", "systemctl", "stop", "namesake")


def test_the_pinned_key_is_checked(second: Second) -> None:
    """A host that shows another key than the pinned one is not talked to."""
    text = second.files.known_hosts.read_text(encoding="ascii")
    a, b = text.splitlines()
    swapped = f"{a.split()[0]} {' '.join(b.split()[1:])}\n{b.split()[0]} {' '.join(a.split()[1:])}\n"
    second.files.known_hosts.write_text(swapped, encoding="ascii")
    try:
        done = subprocess.run(
            lab.ssh_argv("lab-a", ("true",)), capture_output=True, text=True, check=False, timeout=30
        )
    finally:
        second.files.known_hosts.write_text(text, encoding="ascii")
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr or "verification failed" in done.stderr


def test_apt_works_inside(second: Second) -> None:
    """Package lists are there as delivered, can be renewed, and a package installs."""
    assert second.info.apt_cache is not None
    assert "Candidate: 26." in _on("lab-a", "apt-cache", "policy", "docker.io")
    _on("lab-a", "sudo", "apt-get", "update", "-qq")
    _on("lab-a", "sudo", "apt-get", "install", "-qq", "-y", "tree", "2>/dev/null")
    assert _on("lab-a", "tree", "--version").startswith("tree v2")


def test_the_registry_has_the_image_by_tls(second: Second) -> None:
    """With the lab's CA a host gets the manifest of the digest in deployment.yml; without it, nothing."""
    (deployment,) = yaml.safe_load((second.files.inventory / "deployment.yml").read_text())["deployments"]
    name, digest = deployment["image"]["name"], deployment["image"]["digest"]
    registry, _, repository = name.partition("/")
    url = f"https://{registry}/v2/{repository.rpartition(':')[0]}/manifests/{digest}"
    program = (
        "import hashlib, ssl, sys, urllib.request as r\n"
        "c = ssl.create_default_context(cadata=sys.stdin.read() or None)\n"
        f"q = r.Request('{url}', headers={{'Accept': 'application/vnd.oci.image.manifest.v1+json'}})\n"
        "print('sha256:' + hashlib.sha256(r.urlopen(q, context=c, timeout=10).read()).hexdigest())\n"
    )
    argv = lab.ssh_argv("lab-b", ("python3", "-c", f'"{program}"'))
    ask = functools.partial(subprocess.run, argv, capture_output=True, text=True, check=False, timeout=60)
    ca = Path(deployment["image"]["registry_ca"]["file"]).read_text(encoding="ascii")
    assert ask(input=ca).stdout.strip() == digest
    assert "CERTIFICATE_VERIFY_FAILED" in ask(input="").stderr


@pytest.mark.usefixtures("second")
def test_the_runtime_is_there_and_read_only() -> None:
    """Hosts see runtime and model at the fixed path and cannot write there."""
    model = f"{layout.MODEL_PATH}/config.json"
    config = json.loads(_on("lab-a", "cat", model))
    tokenizer = json.loads(_on("lab-a", "cat", f"{layout.MODEL_PATH}/tokenizer.json"))
    words = tokenizer["model"]["vocab"].keys() | {added["content"] for added in tokenizer["added_tokens"]}
    assert config["vocab_size"] == len(words)
    assert config["max_position_embeddings"] == 512
    assert _on("lab-a", "sudo", "touch", model, "2>&1", "||", "echo", "refused").endswith("refused")


@pytest.mark.usefixtures("whole")
def test_a_second_up_is_quick_and_changes_nothing() -> None:
    """When all is up, `up` builds nothing, boots nothing and is done in a moment."""
    lines: list[str] = []
    before, start = lab.status(), time.monotonic()
    after = lab.up(lines.append)
    assert time.monotonic() - start < 10
    assert lines == []
    assert after.hosts == before.hosts
    assert after.up


@pytest.mark.usefixtures("whole")
def test_a_reboot_is_a_new_boot_on_the_same_disk() -> None:
    """After a reboot the boot id is new, /run is empty and the disk is kept."""
    before = {host.name: host.boot_id for host in lab.status().hosts}
    _on("lab-a", "sudo", "touch", "/etc/kept", "/run/lost")
    assert lab.reboot("lab-a") not in {None, before["lab-a"]}
    assert _on("lab-a", "ls", "/etc/kept") == "/etc/kept"
    assert _on("lab-a", "sh", "-c", "'test -e /run/lost || echo gone'") == "gone"
    assert lab.boot_id("lab-b") == before["lab-b"]


@pytest.mark.usefixtures("whole")
def test_a_power_loss_closes_no_connection() -> None:
    """A peer of a host that lost power gets neither data nor an end; the host boots again."""
    before = lab.boot_id("lab-b")
    argv = lab.ssh_argv("lab-b", ("echo ready; exec sleep 600",))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        assert peer.stdout.readline() == "ready\n"
        lab.power_loss("lab-b")
        with pytest.raises(subprocess.TimeoutExpired):
            peer.wait(1)
        peer.kill()
    status = {host.name: host for host in lab.status().hosts}
    assert not status["lab-b"].running
    assert status["lab-a"].boot_id
    assert lab.power_on("lab-b") != before


@pytest.mark.usefixtures("whole")
def test_a_reset_gives_the_host_back_as_delivered() -> None:
    """A reset host has a new boot and nothing of before, but keeps its address and host key."""
    before = {host.name: host for host in lab.status().hosts}
    _on("lab-a", "sudo", "touch", "/etc/lost", "/var/lib/docker/lost")
    start = time.monotonic()
    after = {host.name: host for host in lab.reset(["lab-a"]).hosts}
    assert time.monotonic() - start < 30
    assert after["lab-a"].boot_id not in {None, before["lab-a"].boot_id}
    assert after["lab-a"].address == before["lab-a"].address
    assert after["lab-b"] == before["lab-b"]
    assert (
        _on("lab-a", "sudo", "find", "/etc/lost", "/var/lib/docker/lost", "2>/dev/null", "||", "true") == ""
    )


@pytest.mark.parametrize("record", ["keeper_pid", "nspawn_pid", "init_pid"])
def test_up_repairs_a_host_whose_process_was_killed(whole: Second, record: str) -> None:
    """Whichever process of a host is killed, the next `up` boots the host anew."""
    before = lab.boot_id("lab-a")
    files = whole.files.host("lab-a")
    process, keeper = processes.read(getattr(files, record)), processes.read(files.keeper_pid)
    assert process is not None
    assert keeper is not None
    processes.send(process, signal.SIGKILL)
    assert processes.wait(keeper, seconds=20)
    after = {host.name: host.boot_id for host in lab.up().hosts}
    assert after["lab-a"] not in {None, before}


@pytest.mark.parametrize("disturb", ["registry.pid", "apt.pid"])
def test_up_repairs_a_daemon_that_was_killed(whole: Second, disturb: str) -> None:
    """A killed registry or package cache is started again, and the hosts are left alone."""
    before = lab.status().hosts
    process = processes.read(whole.files.state / disturb)
    assert process is not None
    processes.end(process, seconds=0, gently=signal.SIGKILL)
    assert not lab.status().up
    info = lab.up()
    assert info.up
    assert info.hosts == before


def test_hosts_of_another_version_are_told(whole: Second) -> None:
    """A host that an older version started is left running and named; once off, an old disk starts anew."""
    before, lines = lab.status().hosts, list[str]()
    for name, old in (("lab-a", "old-runtime"), ("lab-b", "old-root")):
        order = whole.files.host(name).order
        order.write_text(
            order.read_text().replace("kimi-lab-" if old == "old-runtime" else "host-", f"{old}-")
        )
    assert lab.up(lines.append).hosts == before
    assert lines == [
        f"{name} was started by another version of the lab and is left as it is: "
        f"`kimi-infra lab reset {name}` renews it"
        for name in lab.host_names
    ]
    for name in lab.host_names:
        _on(name, "sudo", "touch", "/etc/kept")
    lab.down()
    lab.up(lines.append)
    assert lines[-3] == "lab-b was made by another version of the lab: its disks start anew"
    kept = [_on(name, "ls", "/etc/kept", "2>/dev/null", "||", "true") for name in lab.host_names]
    assert kept == ["/etc/kept", ""]


def test_the_command_line_reaches_a_host(second: Second, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lab ssh HOST [--] COMMAND` becomes the ssh call; `lab status` says what runs."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(os, "execvp", lambda _file, argv: calls.append(tuple(argv)))
    runner = testing.CliRunner()
    for words in (["id", "-u"], ["--", "id", "-u"]):
        assert runner.invoke(commands.app, ["ssh", "lab-a", *words]).exit_code == 0
    assert calls == [lab.ssh_argv("lab-a", ["id", "-u"])] * 2
    status = runner.invoke(commands.app, ["status"])
    assert status.exit_code == 0
    assert f"registry:  {second.info.registry}" in status.output
    wrong = runner.invoke(commands.app, ["ssh", "lab-z"])
    assert wrong.exit_code == 1
    assert "lab-z: the lab has no such host" in wrong.output


def test_an_unknown_host_is_refused(second: Second) -> None:
    """Each verb that takes a host names the right ones."""
    verbs: list[Callable[[], object]] = [
        lambda: lab.ssh_argv("lab-z"),
        lambda: lab.power_loss("lab-z"),
        lambda: lab.reset(["lab-z"]),
    ]
    for verb in verbs:
        with pytest.raises(LabError, match="lab-z: the lab has no such host; its hosts are lab-a, lab-b"):
            verb()
    assert second.info.up


def test_down_leaves_nothing(whole: Second) -> None:
    """No process, link, mount, route or firewall rule stays, not even a shared SSH connection's."""
    socket = whole.files.state / "control"
    master = ["ssh", "-o", "ControlMaster=yes", "-o", "ControlPersist=600", "-o", f"ControlPath={socket}"]
    subprocess.run(
        [*master, *lab.ssh_argv("lab-a", ("true",))[1:]],
        check=True,
        timeout=30,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert socket.exists()
    links = {network.link(whole.files, name) for name in lab.host_names}
    assert links <= set(_traces().links)
    # No host tells the connection's end: it would stay for as long as ControlPersist says.
    lab.power_loss("lab-a")
    assert str(socket) in _output("ps", "-eo", "args")
    lab.down()
    assert _traces() == whole.before
    assert processes.marked(whole.files.state) == ()
    assert str(whole.files.state) not in _output("ps", "-eo", "args")
    assert not socket.exists()
    assert whole.files.client_key.exists()
    assert (whole.files.inventory / "hosts.yml").exists()


def test_disks_outlive_a_down(whole: Second) -> None:
    """What was written before an orderly `down` is there after the next `up`, with keys and addresses."""
    _on("lab-a", "sudo", "touch", "/etc/kept")
    hosts_file = (whole.files.inventory / "hosts.yml").read_text()
    lab.down()
    lab.up()
    assert _on("lab-a", "ls", "/etc/kept") == "/etc/kept"
    assert (whole.files.inventory / "hosts.yml").read_text() == hosts_file


def test_a_purge_removes_state_and_inventory(whole: Second) -> None:
    """`down --purge` leaves the cache and nothing else; it may be run again."""
    lab.down(purge=True)
    lab.down(purge=True)
    assert not whole.files.state.exists()
    assert not whole.files.inventory.exists()
    assert any(whole.files.cache.glob("kimi-lab-*"))
    assert _traces() == whole.before
