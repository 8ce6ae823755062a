"""The two hosts: their disks, their boots and their ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from kimi_infra.errors import LabError
from kimi_infra.lab import filesystems, keeper, layout, mirror, network, processes, run

_BOOTS_WITHIN = 60.0
"""Seconds from start to a running system that SSH reaches; 2 are usual."""
_STOPS_WITHIN = 60.0
"""Seconds of an orderly shutdown, in which engines end."""
_EMPTY_WITHIN = 30.0
"""Seconds until the kernel has taken a dead host's processes out of its control group."""
_INTERFACE = "host0"
_OPS_ID = 1000
"""User and group id of the first user that useradd makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """What the hosts share."""

    root: Path
    """Root file system, the lower layer of both."""
    shared: Path
    """Folder bound at /opt/kimi-lab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One host and all that is needed to run it."""

    lab: layout.Layout
    net: network.Network
    name: str

    @property
    def files(self) -> layout.HostLayout:
        """Its paths on the controller."""
        return self.lab.host(self.name)

    @property
    def address(self) -> str:
        """Its address on the bridge."""
        return self.net.address(self.name)

    @property
    def host_key(self) -> str:
        """Public SSH host key, type and key without a comment."""
        text = (self.files.identity / "ssh_host_ed25519_key.pub").read_text(encoding="ascii")
        return " ".join(text.split()[:2])

    def ssh_argv(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The ssh call as ops with the pinned key; an empty command is a login."""
        return (
            "ssh",
            *("-F", "none", "-i", str(self.lab.client_key)),
            *("-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
            *("-o", f"UserKnownHostsFile={self.lab.known_hosts}", "-o", "GlobalKnownHostsFile=none"),
            *("-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR"),
            f"{filesystems.USER}@{self.address}",
            *(("--", *command) if command else ()),
        )

    def ask(self, *command: str, timeout: float = 30) -> str | None:
        """Standard output of a command on the host, None when the host does not give it."""
        done = run.attempt(self.ssh_argv(command), timeout=timeout)
        return done.stdout if done.returncode == 0 else None


def make_keys(machines: tuple[Machine, ...]) -> None:
    """Client key, host keys and machine ids, each made once; pin the host keys."""
    lab = machines[0].lab
    _ssh_key(lab.client_key, "kimi-infra lab")
    for machine in machines:
        identity = machine.files.identity
        identity.mkdir(parents=True, exist_ok=True)
        _ssh_key(identity / "ssh_host_ed25519_key", machine.name)
        if not (identity / "machine-id").exists():
            (identity / "machine-id").write_text(f"{uuid.uuid4().hex}\n", encoding="ascii")
    lines = (f"{machine.address} {machine.host_key}\n" for machine in machines)
    lab.known_hosts.write_text("".join(lines), encoding="ascii")


def prepare(machine: Machine, source: mirror.Mirror) -> None:
    """Write what makes this host itself into its upper layer, unless that was done before."""
    files, net = machine.files, machine.net
    if (files.upper / "etc/hostname").exists():
        return
    shutil.rmtree(files.upper, ignore_errors=True)
    for folder in (files.work, files.mount, files.docker):
        folder.mkdir(parents=True, exist_ok=True)
    settings = "".join(f'{name} "{value}";\n' for name, value in source.options)
    proxy = f'Acquire::http::Proxy "http://{net.gateway}:{net.apt_port}";\n'
    texts = {
        # As Debian's installer writes it; shows programs that look up their own name.
        "etc/hosts": f"127.0.0.1\tlocalhost\n127.0.1.1\t{machine.name}\n",
        "etc/machine-id": (files.identity / "machine-id").read_text(encoding="ascii"),
        # No name server: a look-up fails at once, where a dead one makes each wait.
        "etc/resolv.conf": "",
        "etc/apt/apt.conf.d/01lab": proxy + settings,
        # Sorts before systemd's own 80-container-host0.network, which asks for DHCP.
        f"etc/systemd/network/10-{_INTERFACE}.network": (
            f"[Match]\nName={_INTERFACE}\n\n"
            f"[Network]\nAddress={machine.address}/{net.subnet.prefixlen}\nGateway={net.gateway}\n"
        ),
    }
    for path, text in texts.items():
        _write(files.upper / path, text)
    for key in ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"):
        _write(files.upper / "etc/ssh" / key, (files.identity / key).read_text(encoding="ascii"))
    (files.upper / "etc/ssh/ssh_host_ed25519_key").chmod(0o600)
    _write(files.upper / "usr/local/bin/runc", _runc())
    (files.upper / "usr/local/bin/runc").chmod(0o755)
    _authorize(files.upper, machine.lab)
    # Last: it shows that the rest is there.
    _write(files.upper / "etc/hostname", f"{machine.name}\n")


def start(machine: Machine, disks: Disks) -> None:
    """Start the host's keeper; does not wait for the boot."""
    files = machine.files
    for record in (files.nspawn_pid, files.init_pid):
        record.unlink(missing_ok=True)
    # The kernel may keep the link of a host that lost power while its connections close.
    network.remove(network.link(machine.lab, machine.name))
    files.order.write_text(_order(machine, disks), encoding="utf-8")
    processes.spawn(
        files.keeper_pid,
        [
            *("unshare", "--mount", "--propagation", "private"),
            *(sys.executable, "-I", keeper.__file__, str(files.order)),
        ],
        mark=machine.lab.state,
        log=files.console,
        # cgroup v2 inside whatever the controller has: with v1 docker cannot make its groups.
        env=run.environment({"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}),
    )


def renewed(machine: Machine, disks: Disks) -> bool:
    """Whether the host would be started in another way today: another version of the lab started it."""
    order = machine.files.order
    return order.exists() and order.read_text(encoding="utf-8") != _order(machine, disks)


def outdated(machine: Machine, disks: Disks) -> bool:
    """Whether the host's disk lies on another root file system than today's (an overlay cannot move)."""
    order = machine.files.order
    if not order.exists():
        return False
    mount = json.loads(order.read_text(encoding="utf-8"))["mount"]
    return bool(mount != _mount_argv(machine.files, disks))


def running(machine: Machine) -> bool:
    """Whether the host runs or is between two boots, with the keeper that a reboot needs."""
    files = machine.files
    keeping, nspawn, init = (
        processes.read(record) is not None for record in (files.keeper_pid, files.nspawn_pid, files.init_pid)
    )
    # Without systemd-nspawn a host runs on, but can neither be stopped nor rebooted.
    orphan = init and not nspawn
    return keeping and not orphan


def wait_ready(machine: Machine, *, not_boot: str | None = None, seconds: float = _BOOTS_WITHIN) -> str:
    """Wait until SSH reaches a system that has started everything; gives the boot id.

    Args:
        machine: The host.
        not_boot: A boot id that does not count, because it is the one before a reboot.
        seconds: The limit.
    """
    end = time.monotonic() + seconds
    script = "systemctl is-system-running --wait > /dev/null; cat /proc/sys/kernel/random/boot_id"
    while time.monotonic() < end:
        answer = (machine.ask(script) or "").strip()
        if answer and answer != not_boot:
            return answer
        if processes.read(machine.files.keeper_pid) is None:
            break
        # SSH refuses until the host has started its sshd; nothing on this side tells when.
        time.sleep(0.1)
    console = machine.files.console.read_text(encoding="utf-8", errors="replace")
    raise LabError(
        f"{machine.name}: does not answer by SSH at {machine.address} within {seconds:.0f} s; "
        f"{machine.files.console} ends with: {run.tail(console)}"
    )


def power_loss(machine: Machine) -> None:
    """Take the host away at once: nothing is written, no connection is closed."""
    files = machine.files
    link = network.link(machine.lab, machine.name)
    # First the link, so that the dying processes cannot tell their peers.
    if network.exists(link):
        run.attempt(["ip", "link", "set", link, "down"])
    nspawn, guardian = processes.read(files.nspawn_pid), processes.read(files.keeper_pid)
    # The host's own PID 1: systemd-nspawn alone may end and leave the host running.
    init = processes.read(files.init_pid) or _init_of(nspawn)
    if init is not None:
        processes.send(init, signal.SIGKILL)
        processes.wait(init, seconds=20)
    for process in (nspawn, guardian):
        # They follow their host by themselves.
        if process is not None and not processes.wait(process, seconds=5):
            processes.end(process, seconds=0, gently=signal.SIGKILL)
    network.remove(link)
    _remove_groups(machine)


def power_off(machine: Machine) -> None:
    """Press the power button and wait; a host that does not stop loses power."""
    guardian = processes.read(machine.files.keeper_pid)
    if guardian is not None and running(machine) and processes.send(guardian, signal.SIGTERM):
        processes.wait(guardian, seconds=_STOPS_WITHIN)
    power_loss(machine)


def wipe(machine: Machine) -> None:
    """Throw the host's disks away; its identity stays."""
    files = machine.files
    for folder in (files.upper, files.work, files.docker):
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            raise LabError(f"{folder}: cannot be deleted; see whether a process of the host still uses it")


def _remove_groups(machine: Machine) -> None:
    name = network.machine(machine.lab, machine.name)
    mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    end = time.monotonic() + _EMPTY_WITHIN
    for folder in keeper.groups(name, mountinfo):
        while folder.exists():
            # Its files are the kernel's; only folders are removed, the innermost first.
            for path, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(OSError):
                    Path(path).rmdir()
            if folder.exists():
                if time.monotonic() > end:
                    raise LabError(f"{folder}: processes of {machine.name} are left in this control group")
                # Processes that were killed leave their group a moment later.
                time.sleep(0.02)


def _init_of(nspawn: processes.Process | None) -> processes.Process | None:
    pid = None if nspawn is None else keeper.init_of(nspawn.pid)
    return None if pid is None else processes.identify(pid)


def _order(machine: Machine, disks: Disks) -> str:
    """What the keeper is told."""
    files = machine.files
    return json.dumps(
        {
            "machine": network.machine(machine.lab, machine.name),
            "mount": _mount_argv(files, disks),
            "nspawn": _nspawn_argv(machine, disks),
            "nspawn_pid": str(files.nspawn_pid),
            "init_pid": str(files.init_pid),
        }
    )


def _mount_argv(files: layout.HostLayout, disks: Disks) -> list[str]:
    options = f"lowerdir={disks.root},upperdir={files.upper},workdir={files.work}"
    return ["mount", "-t", "overlay", "overlay", "-o", options, str(files.mount)]


def _nspawn_argv(machine: Machine, disks: Disks) -> list[str]:
    files = machine.files
    return [
        "systemd-nspawn",
        "--quiet",
        "--boot",
        f"--directory={files.mount}",
        f"--machine={network.machine(machine.lab, machine.name)}",
        f"--hostname={machine.name}",
        # The controller may have no systemd to register with or to ask for a unit.
        "--register=no",
        "--keep-unit",
        f"--network-bridge={machine.net.bridge}",
        # Without keyring `docker run` fails with "unable to join session keyring", without bpf with
        # "bpf_prog_query(BPF_CGROUP_DEVICE) failed".
        "--system-call-filter=@keyring bpf",
        # Docker's overlay is refused on the host's own and would fall back to full copies.
        f"--bind={files.docker}:/var/lib/docker",
        f"--bind-ro={disks.shared}:{layout.SHARED_PATH}",
        "--resolv-conf=off",
        "--link-journal=no",
        "--console=pipe",
    ]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _runc() -> str:
    return Path(__file__).with_name("guest").joinpath("runc").read_text(encoding="utf-8")


def _ssh_key(path: Path, comment: str) -> None:
    if not path.exists():
        run.output(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def _authorize(upper: Path, lab: layout.Layout) -> None:
    folder = upper / "home" / filesystems.USER / ".ssh"
    _write(folder / "authorized_keys", Path(f"{lab.client_key}.pub").read_text(encoding="ascii"))
    folder.chmod(0o700)
    for path in (folder.parent, folder, folder / "authorized_keys"):
        os.chown(path, _OPS_ID, _OPS_ID)
    (folder / "authorized_keys").chmod(0o600)
    folder.parent.chmod(0o700)
