r"""One look at a host: ``python3 - 'JSON request' < probe.py`` prints one line of JSON.

Standard library only, Python 3.9 or newer. Each fact is found on its own: what fails is named in
``errors`` and left out or null, and the others are still told.

Request: ``{"addresses": [...], "images": [...], "paths": [...], "hash_paths": [...], "seconds": 60}``,
every key optional. Answer: the fields of kimi_infra.domain.facts.HostFacts, and ``hashes``,
``os_release`` and ``errors``.

The content hash of a directory is SHA-256 over one line a regular file, ``SHA-256 of the content``,
two blanks, path relative to the directory, newline, sorted by the bytes of that path. For ordinary names:
``find -L . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum``.
Links are followed (a hub cache consists of them); a path that is a file is hashed by its content alone.
"""

from __future__ import annotations  # Python 3.9 does not evaluate them then

import functools
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NODES = Path("/sys/devices/system/node")
_COMMAND_SECONDS = 20
_CHUNK = 1 << 22


class ProbeError(Exception):
    """One fact could not be found."""


class OutOfTimeError(BaseException):
    """The whole probe took too long; not an Exception, so that no fact's own handling swallows it."""


def run(*words: str) -> str:
    """Standard output of a command; ProbeError with the first line of what it complained about."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProbeError(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        complaint = done.stderr.decode(errors="replace").strip().split("\n")[0]
        raise ProbeError(f"{' '.join(words)}: exit code {done.returncode}: {complaint[:200]}")
    return done.stdout.decode(errors="replace")


def run_json(*words: str) -> Any:
    """JSON that a command prints."""
    try:
        return json.loads(run(*words) or "[]")
    except ValueError as error:
        raise ProbeError(f"{' '.join(words)}: no JSON") from error


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def devices() -> dict[str, str]:
    """Address -> device, links that are down left out."""
    found = {}
    for link in run_json("ip", "-j", "addr"):
        if "UP" in link.get("flags", ()):
            for address in link.get("addr_info", ()):
                found[address["local"]] = link["ifname"]
    return found


def route(address: str) -> str | None:
    """Device of the route to an address; None when there is no route."""
    try:
        answer = run_json("ip", "-j", "route", "get", address)
    except ProbeError as error:
        if "unreachable" in str(error):
            return None
        raise
    return answer[0].get("dev") if answer else None


def docker_version() -> str:
    """Version of the daemon; ProbeError when none answers."""
    return run("docker", "version", "--format", "{{.Server.Version}}").strip()


def image_id(reference: str) -> str | None:
    """Image ID of a reference; None when the image is not here."""
    try:
        return run("docker", "image", "inspect", "--format", "{{.Id}}", reference).strip()
    except ProbeError as error:
        if "no such image" in str(error).lower():
            return None
        raise


def path_kind(path: str) -> str:
    """``file``, ``directory`` or ``missing``; anything else that is there counts as a file."""
    if os.path.isdir(path):  # noqa: PTH112 - Path(path) would refuse a name with a NUL byte in 3.9
        return "directory"
    return "file" if os.path.exists(path) else "missing"  # noqa: PTH110


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while True:
            chunk = stream.read(_CHUNK)
            if not chunk:
                return digest.hexdigest()
            digest.update(chunk)


def content_hash(path: str) -> str:
    """The content hash of the module's docstring; OSError when the path is missing or unreadable."""
    root = Path(path)
    if not root.is_dir():
        return file_hash(root)

    def refuse(error: OSError) -> None:
        raise error

    names = []
    for folder, _folders, files in os.walk(path, followlinks=True, onerror=refuse):
        names += [os.fsencode(os.path.relpath(os.path.join(folder, name), path)) for name in files]  # noqa: PTH118
    digest = hashlib.sha256()
    for name in sorted(names):
        entry = root / os.fsdecode(name)
        if entry.is_file():
            digest.update(file_hash(entry).encode() + b"  " + name + b"\n")
    return digest.hexdigest()


def _node_memory(node: Path) -> int:
    if not (node / "cpulist").read_text(encoding="ascii").strip():
        return 0  # memory without CPUs: a GPU's own
    for line in (node / "meminfo").read_text(encoding="ascii").splitlines():
        words = line.split()  # Node 0 MemTotal: 24689304 kB
        if len(words) > 3 and words[2] == "MemTotal:":
            return int(words[3]) * 1024
    return 0


def memory_total() -> int:
    """Bytes of all NUMA nodes that have CPUs; of the whole host where the kernel shows no nodes."""
    nodes = sorted(_NODES.glob("node[0-9]*"))
    total = sum(_node_memory(node) for node in nodes)
    if total:
        return total
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise ProbeError("/proc/meminfo has no MemTotal")


def os_release() -> dict[str, str]:
    """``id`` and ``version`` of the distribution."""
    entries = {}
    for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        entries[name] = value.strip("\"'")
    return {"id": entries.get("ID", ""), "version": entries.get("VERSION_ID", "")}


class Answer:
    """The facts found so far and the faults met."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def fact(self, name: str, find: Callable[[], Any], otherwise: Any) -> Any:
        """One fact, or the given value and a line in ``errors``."""
        try:
            return find()
        except (ProbeError, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            self.errors.append(f"{name}: {error}")
            return otherwise

    def facts(self, name: str, asked: list[str], find: Callable[[str], str | None]) -> dict[str, str]:
        """Asked key -> fact; keys without one are left out."""
        found = {key: self.fact(f"{name} {key}", functools.partial(find, key), None) for key in asked}
        return {key: value for key, value in found.items() if value is not None}


def probe(request: dict[str, Any]) -> dict[str, Any]:
    """Everything that was asked for."""
    answer = Answer()
    docker = None
    if shutil.which("docker"):  # a bare host has none, which is no fault
        docker = answer.fact("docker", docker_version, None)
    images = request.get("images", []) if docker is not None else []
    return {
        "boot_id": answer.fact("boot_id", boot_id, ""),
        "architecture": platform.machine(),
        "devices": answer.fact("devices", devices, {}),
        "routes": answer.facts("route", request.get("addresses", []), route),
        "images": answer.facts("image", images, image_id),
        "paths": answer.facts("path", request.get("paths", []), path_kind),
        "hashes": answer.facts("hash", request.get("hash_paths", []), content_hash),
        "docker": docker,
        "memory_total": answer.fact("memory_total", memory_total, 0),
        "os_release": answer.fact("os_release", os_release, {"id": "", "version": ""}),
        "errors": answer.errors,
    }


def out_of_time(_number: int, _frame: Any) -> None:
    """Handle SIGALRM."""
    raise OutOfTimeError


def main() -> int:
    """Print the answer or ``{"error": ...}``; exit code 0, for either is an answer."""
    seconds = 60
    try:
        request = json.loads(sys.argv[1])
        seconds = int(request.get("seconds", seconds))
        signal.signal(signal.SIGALRM, out_of_time)
        signal.alarm(seconds)
        answer = probe(request)
        signal.alarm(0)
    except OutOfTimeError:
        answer = {"error": f"the probe took longer than {seconds} s"}
    except (IndexError, ValueError, TypeError, AttributeError) as error:
        answer = {"error": f"the request cannot be understood: {error}"}
    print(json.dumps(answer, sort_keys=True))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
