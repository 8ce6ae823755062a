"""The lab's verbs: up, down, status, reset, and the ways to disturb a host."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kimi_infra.errors import LabError
from kimi_infra.lab import (
    filesystems,
    hosts,
    image,
    inventory,
    layout,
    mirror,
    network,
    processes,
    requirements,
    run,
    runtime,
    services,
    stack,
)
from kimi_infra.lab.progress import Progress, Report, locked, side_by_side, silent

host_names = layout.HOST_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHost:
    """One host as it runs now."""

    name: str
    address: str
    boot_id: str | None
    """None when the host is down or does not answer."""
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LabInfo:
    """The lab as it is now; what has not been made yet is None."""

    hosts: tuple[LabHost, ...]
    bridge: str | None
    subnet: str | None
    registry: str | None
    """Host and port, None when the registry is down."""
    apt_cache: str | None
    """URL of the package cache, None when it is down."""
    image: str | None
    """Reference by digest, as hosts pull it."""
    image_id: str | None
    inventory: Path
    state: Path
    state_bytes: int
    cache: Path
    cache_bytes: int

    @property
    def up(self) -> bool:
        """Whether everything runs."""
        return all(host.boot_id for host in self.hosts) and None not in (self.registry, self.apt_cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The cached things of this version, built or not."""

    source: mirror.Mirror
    host_root: filesystems.Cached
    image_root: filesystems.Cached
    storage: filesystems.Cached
    shared: filesystems.Cached

    @property
    def disks(self) -> hosts.Disks:
        return hosts.Disks(root=self.host_root.path, shared=self.shared.path)


def up(report: Report = silent) -> LabInfo:
    """Build what is missing, start what does not run, write the inventory; harmless when all is up."""
    lab, progress = layout.current(), Progress(report)
    with _prepared(lab, progress) as (machines, parts):
        _boot(machines, parts, progress)
        return _info(lab, measure=False)


def down(*, purge: bool = False, report: Report = silent) -> None:
    """Stop everything that the lab has started; purge also throws its disks and its inventory away."""
    _check_root()
    lab, progress = layout.current(), Progress(report)
    if not lab.state.exists():
        return
    with _exclusive(lab, progress):
        net = network.chosen(lab)
        if net is not None:
            machines = _machines(lab, net)
            end = hosts.power_loss if purge else hosts.power_off
            with progress.step("stopping the hosts"):
                side_by_side([functools.partial(end, machine) for machine in machines])
            _end_ssh_masters(net)
        for record in (services.registry_record(lab), services.apt_record(lab)):
            processes.end(processes.read(record), seconds=10)
            record.unlink(missing_ok=True)
        # What a session that was killed has left without a record.
        for process in processes.marked(lab.state):
            processes.end(process, seconds=5)
        if net is not None:
            network.remove(net.bridge)
        if purge:
            shutil.rmtree(lab.inventory, ignore_errors=True)
            lab.stack_settings.unlink(missing_ok=True)
            shutil.rmtree(lab.state)


def status() -> LabInfo:
    """Look, and change nothing."""
    return _info(layout.current(), measure=True)


def reset(names: Sequence[str] | None = None, report: Report = silent) -> LabInfo:
    """Give the hosts back as delivered: new disks and a new boot, same keys and addresses."""
    lab, progress = layout.current(), Progress(report)
    wanted = [lab.host(name).name for name in names or layout.HOST_NAMES]
    with _prepared(lab, progress) as (machines, parts):
        chosen = [machine for machine in machines if machine.name in wanted]
        with progress.step(f"resetting {', '.join(machine.name for machine in chosen)}"):
            side_by_side([functools.partial(_reset_one, machine, parts) for machine in chosen])
        return _info(lab, measure=False)


def pulumi_environment() -> Mapping[str, str]:
    """The variables by which ``pulumi`` keeps this lab's stack with the lab."""
    lab = layout.current()
    if network.chosen(lab) is None:
        raise LabError("the lab has never been up; run `kimi-infra lab up`")
    return stack.environment(lab)


def ssh_argv(host: str, command: Sequence[str] = ()) -> tuple[str, ...]:
    """The ssh call for a host, as ops with the pinned key; words of a command are joined by ssh."""
    return _machine(layout.current(), host).ssh_argv(tuple(command))


def power_loss(host: str) -> None:
    """Take a host away at once, without a word to its peers; `power_on` or `up` boots it again."""
    hosts.power_loss(_machine(layout.current(), host))


def power_on(host: str) -> str:
    """Boot a host that is off, on the disk it had; gives the boot id."""
    lab = layout.current()
    machine = _machine(lab, host)
    if not hosts.running(machine):
        _start(machine, _parts(lab))
    return hosts.wait_ready(machine)


def reboot(host: str) -> str:
    """Reboot a host from inside and wait for the new boot; gives its id."""
    machine = _machine(layout.current(), host)
    before = boot_id(host)
    if before is None:
        raise LabError(f"{host}: does not answer, so it cannot be rebooted; run `kimi-infra lab up`")
    run.attempt(machine.ssh_argv(("sudo", "systemctl", "reboot")), timeout=30)
    return hosts.wait_ready(machine, not_boot=before, seconds=180)


def boot_id(host: str) -> str | None:
    """The host's own boot id, None when it does not answer."""
    answer = _machine(layout.current(), host).ask("cat", "/proc/sys/kernel/random/boot_id")
    return answer.strip() if answer else None


def build(report: Report = silent) -> None:
    """Build what the cache lacks and start nothing; each cached thing has a lock of its own."""
    _check_controller()
    lab = layout.current()
    layout.ensure_plain(lab.cache, "KIMI_INFRA_CACHE")
    _build(_parts(lab), Progress(report))


def _build(parts: _Parts, progress: Progress) -> None:
    """Build what the cache lacks, independent things side by side."""

    def host_side() -> None:
        parts.host_root.ensure(progress, lambda part: filesystems.build_host_root(part, parts.source))

    def image_side() -> None:
        if parts.storage.ready and parts.shared.ready:
            return
        root = parts.image_root.ensure(
            progress, lambda part: filesystems.build_image_root(part, parts.source)
        )
        side_by_side(
            [
                lambda: parts.shared.ensure(progress, lambda part: runtime.build(part, root)),
                lambda: parts.storage.ensure(progress, lambda part: image.build(part, root)),
            ]
        )

    side_by_side([host_side, image_side])


@contextlib.contextmanager
def _prepared(lab: layout.Layout, progress: Progress) -> Iterator[tuple[tuple[hosts.Machine, ...], _Parts]]:
    """Everything that the hosts need, built and running, held for this process alone."""
    _check_controller()
    layout.ensure_plain(lab.cache, "KIMI_INFRA_CACHE")
    layout.ensure_plain(lab.state, "KIMI_INFRA_STATE")
    lab.state.chmod(0o700)
    with _exclusive(lab, progress):
        parts = _parts(lab)
        _build(parts, progress)
        with locked(lab.state.parent / "choice.lock", progress, "the choice of a subnet"):
            net = network.choose(lab)
        machines = _machines(lab, net)
        _serve(machines, parts, progress)
        inventory.make_secrets(lab)
        stack.write_settings(lab)
        inventory.write(lab, machines, image.identity(parts.storage.path))
        yield machines, parts


def _serve(machines: tuple[hosts.Machine, ...], parts: _Parts, progress: Progress) -> None:
    lab, net = machines[0].lab, machines[0].net
    network.ensure_bridge(net)
    hosts.make_keys(machines)
    services.make_certificates(lab, net)
    records = (services.registry_record(lab), services.apt_record(lab))
    if not all(processes.read(record) for record in records):
        progress.say(f"starting the registry on {net.registry} and the package cache beside it")
    services.ensure_registry(lab, net, parts.storage.path / "storage")
    services.ensure_apt(lab, net, parts.source)


def _boot(machines: tuple[hosts.Machine, ...], parts: _Parts, progress: Progress) -> None:
    off = [machine for machine in machines if not hosts.running(machine)]
    for machine in machines:
        if machine in off and hosts.outdated(machine, parts.disks):
            progress.say(f"{machine.name} was made by another version of the lab: its disks start anew")
        elif machine not in off and hosts.renewed(machine, parts.disks):
            progress.say(
                f"{machine.name} was started by another version of the lab and is left as it is: "
                f"`kimi-infra lab reset {machine.name}` renews it"
            )
    if not off:
        side_by_side([functools.partial(hosts.wait_ready, machine) for machine in machines])
        return
    with progress.step(f"booting {', '.join(machine.name for machine in off)}"):
        for machine in off:
            _start(machine, parts)
        side_by_side([functools.partial(hosts.wait_ready, machine) for machine in machines])
        side_by_side([functools.partial(_check_paths, machine) for machine in machines])


def _start(machine: hosts.Machine, parts: _Parts) -> None:
    # Ends what is left of a host whose keeper or nspawn was killed.
    hosts.power_loss(machine)
    if hosts.outdated(machine, parts.disks):
        hosts.wipe(machine)
    hosts.prepare(machine, parts.source)
    hosts.start(machine, parts.disks)


def _reset_one(machine: hosts.Machine, parts: _Parts) -> None:
    hosts.power_loss(machine)
    hosts.wipe(machine)
    _start(machine, parts)
    hosts.wait_ready(machine)


def _check_paths(machine: hosts.Machine) -> None:
    """A firewall of the controller may stand between the hosts, or between them and us."""
    net = machine.net
    wanted = [(net.gateway, net.registry_port), (net.gateway, net.apt_port)]
    wanted += [(net.address(name), 22) for name in layout.HOST_NAMES if name != machine.name]
    for address, port in wanted:
        if machine.ask("timeout", "5", "bash", "-c", f"'exec 3<>/dev/tcp/{address}/{port}'") is None:
            raise LabError(
                f"{machine.name}: cannot reach {address}:{port}; a firewall on this machine holds up "
                f"traffic of the bridge {net.bridge}: let it pass, for example "
                f"`iptables -I FORWARD -i {net.bridge} -o {net.bridge} -j ACCEPT` and "
                f"`iptables -I INPUT -i {net.bridge} -j ACCEPT`"
            )


def _end_ssh_masters(net: network.Network) -> None:
    """End ssh processes that keep a shared connection to a host open (Ansible's ControlPersist)."""
    listing = run.attempt(["ss", "-Hntp", "state", "established", "dst", str(net.subnet)]).stdout
    for pid in masters(listing):
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"[mux]" in title:
            processes.end(processes.identify(pid), seconds=5)


def masters(listing: str) -> tuple[int, ...]:
    """Pids of ssh clients in the output of `ss -p`."""
    found = []
    for line in listing.splitlines():
        for part in line.partition("users:(")[2].split("),("):
            name, _, rest = part.strip("()").partition(",")
            if name == '"ssh"' and rest.startswith("pid="):
                found.append(int(rest.removeprefix("pid=").partition(",")[0]))
    return tuple(dict.fromkeys(found))


def _parts(lab: layout.Layout) -> _Parts:
    source = mirror.find()
    image_root = filesystems.image_root(lab.cache, source)
    return _Parts(
        source=source,
        host_root=filesystems.host_root(lab.cache, source),
        image_root=image_root,
        storage=image.cached(lab.cache, image_root),
        shared=runtime.cached(lab.cache, image_root),
    )


def _machines(lab: layout.Layout, net: network.Network) -> tuple[hosts.Machine, ...]:
    return tuple(hosts.Machine(lab=lab, net=net, name=name) for name in layout.HOST_NAMES)


def _machine(lab: layout.Layout, name: str) -> hosts.Machine:
    net = network.chosen(lab)
    lab.host(name)
    if net is None:
        raise LabError("the lab has never been up; run `kimi-infra lab up`")
    return hosts.Machine(lab=lab, net=net, name=name)


def _exclusive(lab: layout.Layout, progress: Progress) -> contextlib.AbstractContextManager[None]:
    return locked(lab.state.parent / f"{lab.key}.lock", progress, "this lab")


def _info(lab: layout.Layout, *, measure: bool) -> LabInfo:
    net = network.chosen(lab)
    if net is None:
        none = tuple(LabHost(name=n, address="", boot_id=None, running=False) for n in layout.HOST_NAMES)
        return _lab_info(lab, None, none, measure=measure)
    found: dict[str, LabHost] = {}

    def look(machine: hosts.Machine) -> None:
        running = hosts.running(machine)
        answer = machine.ask("cat", "/proc/sys/kernel/random/boot_id") if running else None
        found[machine.name] = LabHost(
            name=machine.name,
            address=machine.address,
            boot_id=answer.strip() if answer else None,
            running=running,
        )

    side_by_side([functools.partial(look, machine) for machine in _machines(lab, net)])
    return _lab_info(lab, net, tuple(found[name] for name in layout.HOST_NAMES), measure=measure)


def _lab_info(
    lab: layout.Layout, net: network.Network | None, found: tuple[LabHost, ...], *, measure: bool
) -> LabInfo:
    registry = net and processes.read(services.registry_record(lab)) and net.registry
    apt = net and processes.read(services.apt_record(lab)) and f"http://{net.gateway}:{net.apt_port}"
    storage = _parts(lab).storage
    identity = image.identity(storage.path) if storage.ready else None
    return LabInfo(
        hosts=found,
        bridge=net.bridge if net and network.exists(net.bridge) else None,
        subnet=str(net.subnet) if net else None,
        registry=registry or None,
        apt_cache=apt or None,
        image=f"{net.registry}/{image.REPOSITORY}@{identity.digest}" if net and identity else None,
        image_id=identity.image_id if identity else None,
        inventory=lab.inventory,
        state=lab.state,
        state_bytes=_disk_use(lab.state) if measure else 0,
        cache=lab.cache,
        cache_bytes=_disk_use(lab.cache) if measure else 0,
    )


def _disk_use(folder: Path) -> int:
    if not folder.exists():
        return 0
    return int(run.attempt(["du", "-s", "-B1", str(folder)]).stdout.split()[0])


def _check_controller() -> None:
    _check_root()
    missing = requirements.missing()
    if missing:
        raise LabError(f"this machine lacks packages of the lab; run `apt-get install {' '.join(missing)}`")


def _check_root() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab runs systemd in namespaces and makes a bridge; run it as root")
