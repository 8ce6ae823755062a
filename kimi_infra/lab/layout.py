"""Where the lab keeps its things: the cache shared by all labs, and the state of one."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from kimi_infra.errors import LabError

HOST_NAMES = ("lab-a", "lab-b")
"""In the order of their ranks."""
SHARED_PATH = "/opt/kimi-lab"
"""Where hosts and containers see the runtime and the model."""
MODEL_PATH = f"{SHARED_PATH}/models/lab-tiny"
INVENTORY = "lab-2node"

# Overlay mounts and docker's own overlay need a plain file system below them.
_PLAIN = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLayout:
    """The files of one host."""

    name: str
    root: Path

    @property
    def upper(self) -> Path:
        """The host's own files over the shared root file system."""
        return self.root / "upper"

    @property
    def work(self) -> Path:
        """Overlay's scratch folder."""
        return self.root / "work"

    @property
    def mount(self) -> Path:
        """Mount point of the overlay, in the keeper's mount namespace only."""
        return self.root / "root"

    @property
    def docker(self) -> Path:
        """The host's /var/lib/docker: docker's overlay cannot lie on an overlay."""
        return self.root / "docker"

    @property
    def identity(self) -> Path:
        """Host key and machine id; they outlive a reset."""
        return self.root / "identity"

    @property
    def order(self) -> Path:
        """What the host's keeper was told at the last start."""
        return self.root / "keeper.json"

    @property
    def keeper_pid(self) -> Path:
        """Record of the process that keeps the host running."""
        return self.root / "keeper.pid"

    @property
    def nspawn_pid(self) -> Path:
        """Record of systemd-nspawn."""
        return self.root / "nspawn.pid"

    @property
    def init_pid(self) -> Path:
        """Record of the host's own PID 1."""
        return self.root / "init.pid"

    @property
    def console(self) -> Path:
        """What the host and its keeper print."""
        return self.root / "console.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All paths of one lab."""

    checkout: Path
    """The tree whose lab this is."""
    cache: Path
    """Built once by content, shared by all labs of this user."""
    state: Path
    """This lab's own files."""

    @property
    def key(self) -> str:
        """Six hex digits that tell this lab from those of other checkouts."""
        return self.state.name

    @property
    def inventory(self) -> Path:
        """The inventory directory that `up` writes."""
        return self.checkout / "inventories" / INVENTORY

    @property
    def stack_settings(self) -> Path:
        """The settings of the lab's Pulumi stack; pulumi itself adds the salt of the passphrase."""
        return self.checkout / f"Pulumi.{INVENTORY}.yaml"

    @property
    def client_key(self) -> Path:
        """Private SSH key of the user ops."""
        return self.state / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """Pinned host keys for our own ssh calls."""
        return self.state / "known_hosts"

    @property
    def ca(self) -> Path:
        """The registry's certificate authority, PEM."""
        return self.state / "tls" / "ca.pem"

    @property
    def logs(self) -> Path:
        """Logs of the daemons."""
        return self.state / "logs"

    def host(self, name: str) -> HostLayout:
        """The files of one host; LabError for a name that is none of ours."""
        if name not in HOST_NAMES:
            raise LabError(f"{name}: the lab has no such host; its hosts are {', '.join(HOST_NAMES)}")
        return HostLayout(name=name, root=self.state / "hosts" / name)

    @property
    def hosts(self) -> tuple[HostLayout, ...]:
        """All hosts in the order of their ranks."""
        return tuple(self.host(name) for name in HOST_NAMES)


def current() -> Layout:
    """The lab of this checkout.

    KIMI_INFRA_CACHE and KIMI_INFRA_STATE move the two folders.
    """
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "pyproject.toml").is_file():
        raise LabError(
            f"{checkout}: not a checkout of kimi_infra; run the lab from a clone, not from a wheel"
        )
    cache = Path(os.environ.get("KIMI_INFRA_CACHE") or Path.home() / ".cache" / "kimi-infra")
    state = Path(os.environ.get("KIMI_INFRA_STATE") or Path.home() / ".local" / "state" / "kimi-infra")
    key = hashlib.sha256(os.fsencode(checkout)).hexdigest()[:6]
    return Layout(checkout=checkout, cache=cache.resolve(), state=state.resolve() / "lab" / key)


def ensure_plain(path: Path, variable: str) -> None:
    """Make the folder; LabError when it lies on a file system that cannot carry the hosts."""
    path.mkdir(parents=True, exist_ok=True)
    kind = file_system(path, Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    if kind not in _PLAIN:
        raise LabError(
            f"{path}: the hosts' disks cannot lie on this file system (got {kind}); "
            f"set {variable} to a folder on ext4, xfs or btrfs"
        )


def file_system(path: Path, mountinfo: str) -> str:
    """Type of the file system that holds the path, from the text of /proc/self/mountinfo."""
    best, kind = Path("/"), "unknown"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4].replace("\\040", " "))
        # A later mount hides an earlier one at the same point.
        if path.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, after.split()[0]
    return kind
