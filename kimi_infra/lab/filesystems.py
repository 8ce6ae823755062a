"""The root file systems of hosts and image, built once by content and kept in the cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kimi_infra.lab import mirror, run
from kimi_infra.lab.progress import Progress, locked

HOST_SUITE = "trixie"
"""Debian 13: its Docker 26 has CDI."""
HOST_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "sudo",
    "python3",
    "python3-apt",
    "iproute2",
    "kmod",
    "procps",
    "ca-certificates",
)
IMAGE_SUITE = "bookworm"
"""Debian 12: its Python 3.11 is the runtime's."""
IMAGE_PACKAGES = ("python3", "libnuma1", "libgomp1", "libglib2.0-0", "ca-certificates")
"""The interpreter and the system libraries that vLLM's CPU build loads."""

USER = "ops"
_FORMAT = "1"
"""Raise to rebuild what the inputs below do not show."""

_KEPT = 30 * 86400
"""Seconds without an `up` after which an older version is deleted."""

_HOST_SET_UP = f"""set -eu
chroot "$1" useradd --create-home --shell /bin/bash {USER}
echo '{USER} ALL=(ALL:ALL) NOPASSWD: ALL' > "$1/etc/sudoers.d/{USER}"
chmod 0440 "$1/etc/sudoers.d/{USER}"
# Debian leaves networkd off; without it the host has no address.
mkdir -p "$1/etc/systemd/system/multi-user.target.wants"
ln -s /usr/lib/systemd/system/systemd-networkd.service \
  "$1/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
# Two hosts with one key or one machine id are one machine to many programs: each gets its own.
rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/machine-id" "$1/etc/hostname" "$1/etc/resolv.conf"
"""
_IMAGE_EXCLUDES = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """A thing that is built once into the cache, its content's key in its name."""

    path: Path
    title: str

    @property
    def ready(self) -> bool:
        """Whether it is there, whole."""
        return self.path.is_dir()

    def ensure(self, progress: Progress, build: Callable[[Path], None]) -> Path:
        """Build it if it is not there; a build that broke off leaves nothing that counts."""
        if self.ready:
            os.utime(self.path)
            return self.path
        with locked(self.path.with_name(f"{self.path.name}.lock"), progress, self.title):
            if not self.ready:
                part = self.path.with_name(f"{self.path.name}.part")
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(parents=True)
                with progress.step(f"building {self.title}"):
                    build(part)
                part.rename(self.path)
        self._forget_older(progress)
        return self.path

    def _forget_older(self, progress: Progress) -> None:
        # Each version of the runtime takes 5 GB; its date is that of its last use.
        kind = self.path.name.rpartition("-")[0]
        for other in self.path.parent.glob(f"{kind}-*/"):
            if other != self.path and time.time() - other.stat().st_mtime > _KEPT:
                progress.say(f"deleting {other}: not used for {_KEPT // 86400} days")
                shutil.rmtree(other)


def key(*parts: str) -> str:
    """Twelve hex digits of everything that decides a thing's content."""
    return hashlib.sha256("\0".join((_FORMAT, *parts)).encode()).hexdigest()[:12]


def host_root(cache: Path, source: mirror.Mirror) -> Cached:
    """The hosts' shared root file system."""
    name = key(HOST_SUITE, *HOST_PACKAGES, _HOST_SET_UP, source.url or "")
    return Cached(path=cache / f"host-{name}", title=f"the hosts' root file system (Debian {HOST_SUITE})")


def build_host_root(part: Path, source: mirror.Mirror) -> None:
    """A minimal server as delivered, its package lists included."""
    _mmdebstrap(
        HOST_SUITE,
        part,
        source,
        packages=HOST_PACKAGES,
        # A delivered server has package lists; without them a check run finds no package.
        options=("--skip=cleanup/apt/lists", f"--customize-hook={_HOST_SET_UP}"),
    )
    sources = part / "etc/apt/sources.list"
    sources.write_text(source.hosts_url(sources.read_text(encoding="utf-8")), encoding="utf-8")


def image_root(cache: Path, source: mirror.Mirror) -> Cached:
    """The serving image's content: ``root`` unpacked and ``layer.tar``."""
    name = key(IMAGE_SUITE, *IMAGE_PACKAGES, *_IMAGE_EXCLUDES, source.url or "")
    return Cached(path=cache / f"image-{name}", title=f"the image's root file system (Debian {IMAGE_SUITE})")


def build_image_root(part: Path, source: mirror.Mirror) -> None:
    """Make the layer, then unpack it: the runtime is built inside."""
    layer = part / "layer.tar"
    _mmdebstrap(
        IMAGE_SUITE,
        layer,
        source,
        packages=IMAGE_PACKAGES,
        options=tuple(f"--dpkgopt=path-exclude={pattern}" for pattern in _IMAGE_EXCLUDES),
    )
    (part / "root").mkdir()
    run.output(["tar", "-x", "-f", str(layer), "-C", str(part / "root"), "--numeric-owner"])


def _mmdebstrap(
    suite: str, target: Path, source: mirror.Mirror, *, packages: Sequence[str], options: Sequence[str]
) -> None:
    keep = re.compile(r"^(https?|no|all)_proxy$|^SSL_CERT_|^CURL_CA_BUNDLE$", re.IGNORECASE)
    env = {name: value for name, value in run.environment().items() if keep.match(name)}
    run.output(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--format={'tar' if target.suffix == '.tar' else 'directory'}",
            f"--keyring={mirror.KEYRING}",
            f"--include={','.join(packages)}",
            *(f'--aptopt={name} "{value}"' for name, value in source.options),
            *([f'--aptopt=Acquire::http::Proxy "{source.proxy}"'] if source.proxy else []),
            *options,
            suite,
            str(target),
            *([source.url] if source.url else []),
        ],
        # SOURCE_DATE_EPOCH makes the same packages the same bytes.
        env={
            **env,
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "SOURCE_DATE_EPOCH": "1735689600",
            "HOME": os.environ.get("HOME", "/root"),
        },
    )
