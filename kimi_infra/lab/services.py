"""The two daemons on the bridge: the image registry and the cache of Debian packages."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kimi_infra.errors import LabError
from kimi_infra.lab import layout, mirror, processes, run
from kimi_infra.lab.network import Network

_STARTS_WITHIN = 20.0
"""Seconds in which a daemon must listen."""


def make_certificates(lab: layout.Layout, network: Network) -> None:
    """A certificate authority of this lab and the registry's certificate; kept once made."""
    folder = lab.ca.parent
    if (folder / "registry.pem").exists():
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    curve = (
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-noenc",
        "-sha256",
        "-days",
        "3650",
    )
    run.output(
        [
            *("openssl", "req", "-x509", *curve, "-subj", f"/CN=kimi-infra lab {lab.key}"),
            *("-addext", "keyUsage=critical,keyCertSign"),
            *("-keyout", str(folder / "ca.key"), "-out", str(lab.ca)),
        ]
    )
    run.output(
        [
            *("openssl", "req", "-x509", *curve, "-subj", "/CN=lab registry"),
            *("-CA", str(lab.ca), "-CAkey", str(folder / "ca.key")),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-addext", f"subjectAltName=IP:{network.gateway}"),
            *("-keyout", str(folder / "registry.key"), "-out", str(folder / "registry.pem")),
        ]
    )


def registry_record(lab: layout.Layout) -> Path:
    """Where the registry's process is noted."""
    return lab.state / "registry.pid"


def apt_record(lab: layout.Layout) -> Path:
    """Where the package cache's process is noted."""
    return lab.state / "apt.pid"


def ensure_registry(lab: layout.Layout, network: Network, storage: Path) -> None:
    """Serve the storage read-only by TLS; a registry of another storage is replaced."""
    tls = lab.ca.parent
    config = _registry_config(
        storage,
        {
            "addr": network.registry,
            "tls": {"certificate": str(tls / "registry.pem"), "key": str(tls / "registry.key")},
        },
        read_only=True,
    )
    file = lab.state / "registry.json"
    running = processes.read(registry_record(lab))
    if running is not None and file.exists() and file.read_text(encoding="utf-8") == config:
        return
    processes.end(running, seconds=10)
    file.write_text(config, encoding="utf-8")
    log = lab.logs / "registry.log"
    process = processes.spawn(
        registry_record(lab),
        ["docker-registry", "serve", str(file)],
        mark=lab.state,
        log=log,
        env=run.environment(),
    )
    context = ssl.create_default_context(cafile=str(lab.ca))
    _listens(process, network.gateway, network.registry_port, log, context)


@contextlib.contextmanager
def temporary_registry(storage: Path) -> Iterator[str]:
    """A registry on the loopback that takes an image; gives its host and port."""
    storage.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="kimi-registry-") as folder:
        home = Path(folder)
        file, log = home / "config.json", home / "log"
        file.write_text(_registry_config(storage, {"addr": f"127.0.0.1:{port}"}, read_only=False))
        process = processes.spawn(
            home / "pid",
            ["docker-registry", "serve", str(file)],
            mark=home,
            log=log,
            env=run.environment(),
        )
        try:
            _listens(process, "127.0.0.1", port, log)
            yield f"127.0.0.1:{port}"
        finally:
            processes.end(process, seconds=10)


def _registry_config(storage: Path, http: dict[str, object], *, read_only: bool) -> str:
    # JSON is YAML, which the registry reads.
    return json.dumps(
        {
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(storage)},
                "maintenance": {"readonly": {"enabled": read_only}},
            },
            "http": {**http, "secret": "one process holds all uploads"},
        }
    )


def ensure_apt(lab: layout.Layout, network: Network, source: mirror.Mirror) -> None:
    """Start the package cache on the bridge."""
    if processes.read(apt_record(lab)) is not None:
        return
    folder = lab.state / "apt"
    folder.mkdir(exist_ok=True)
    slot = _apt_slot(lab.cache / "apt")
    # A configuration of our own: the packaged one sends Debian's main archive to a list of
    # mirrors and answers 503 where only the controller's usual source is reachable.
    lines = [
        f"CacheDir: {slot}",
        f"LogDir: {lab.logs}",
        f"BindAddress: {network.gateway}",
        f"Port: {network.apt_port}",
        "ForeGround: 1",
        "ReportPage:",
        # The daemon's default of a 24-hour-old list counts as fresh only within a session.
        "ExThreshold: 30",
        *([f"Proxy: {source.proxy}"] if source.proxy else []),
        *(["Remap-lab: {} ; {}".format(*source.tls)] if source.tls else []),
    ]
    (folder / "acng.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    log = lab.logs / "apt-cacher-ng.out"
    process = processes.spawn(
        apt_record(lab),
        # flock(1) holds the cache folder for as long as the daemon lives.
        ["flock", "--no-fork", "--nonblock", f"{slot}.lock", "apt-cacher-ng", "-c", str(folder)],
        mark=lab.state,
        log=log,
        env=run.environment(),
    )
    _listens(process, network.gateway, network.apt_port, log)


def _apt_slot(root: Path) -> Path:
    """A cache folder that no other lab's daemon uses: two of them do not share one safely."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(100):
        slot = root / f"slot-{number}"
        slot.mkdir(exist_ok=True)
        handle = os.open(f"{slot}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        finally:
            os.close(handle)
        return slot
    raise LabError(f"{root}: all 100 package caches are in use; take down labs of other checkouts")


def _listens(
    process: processes.Process, address: str, port: int, log: Path, tls: ssl.SSLContext | None = None
) -> None:
    end = time.monotonic() + _STARTS_WITHIN
    while not _answers(address, port, tls):
        if not process.alive or time.monotonic() > end:
            processes.end(process, seconds=5)
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            raise LabError(
                f"{address}:{port}: the lab's daemon does not listen; {log} ends with: {run.tail(text)}"
            )
        # Nothing tells from outside when a foreign daemon listens: ask again.
        time.sleep(0.05)


def _answers(address: str, port: int, tls: ssl.SSLContext | None) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2) as plain:
            if tls is not None:
                tls.wrap_socket(plain, server_hostname=address).close()
    except ssl.SSLError as error:
        raise LabError(
            f"{address}:{port}: what answers here does not have our certificate ({error}); "
            "end the program that uses this port"
        ) from error
    except OSError:
        return False
    return True
