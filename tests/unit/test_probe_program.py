"""The probe as a process: one line of JSON whatever the host lacks."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kimi_infra import hostside
from kimi_infra.observe import probe

pytestmark = pytest.mark.fast


def run(request: str, path: str | None = None) -> dict[str, Any]:
    """Run the probe as a host does and return what it printed."""
    environment = None if path is None else {"PATH": path}
    done = subprocess.run(
        (sys.executable, "-", request),
        input=hostside.probe_source(),
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    answer: dict[str, Any] = json.loads(line)
    return answer


def tool(folder: Path, name: str, script: str) -> None:
    """Lay an executable down."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    (folder / name).chmod(0o755)


def test_a_host_without_tools_tells_what_it_can(tmp_path: Path) -> None:
    """Without ip and docker the kernel's own facts are told, and the missing tool is named."""
    answer = run(
        json.dumps({"addresses": ["192.0.2.1"], "images": ["x"], "paths": ["/etc", "/nope"]}), str(tmp_path)
    )
    assert answer["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    assert answer["paths"] == {"/etc": "directory", "/nope": "missing"}
    assert (answer["docker"], answer["images"], answer["devices"], answer["routes"]) == (None, {}, {}, {})
    assert [error.split(":")[0] for error in answer["errors"]] == ["devices", "route 192.0.2.1"]
    assert answer["memory_total"] > 0
    assert set(answer["os_release"]) == {"id", "version"}


def test_tools_are_asked_and_understood(tmp_path: Path) -> None:
    """Links that are down, addresses without a route and images that are not here are left out."""
    links = [
        {"ifname": "eth0", "flags": ["UP"], "addr_info": [{"local": "198.51.100.11"}, {"local": "fd00::1"}]},
        {"ifname": "eth1", "flags": [], "addr_info": [{"local": "198.51.100.99"}]},
    ]
    (tmp_path / "links").write_text(json.dumps(links), encoding="utf-8")
    tool(
        tmp_path,
        "ip",
        f"""case "$*" in
  "-j addr") /bin/cat {tmp_path}/links;;
  "-j route get 198.51.100.12") echo '[{{"dst":"198.51.100.12","dev":"eth0"}}]';;
  *) echo "RTNETLINK answers: Network is unreachable" >&2; exit 2;;
esac""",
    )
    tool(
        tmp_path,
        "docker",
        """case "$*" in
  version*) echo 26.1.5;;
  *here*) echo sha256:1;;
  *) echo "Error response from daemon: No such image: x" >&2; exit 1;;
esac""",
    )
    request = {"addresses": ["198.51.100.12", "203.0.113.1"], "images": ["here", "gone"]}
    answer = run(json.dumps(request), str(tmp_path))
    assert answer["devices"] == {"198.51.100.11": "eth0", "fd00::1": "eth0"}
    assert answer["routes"] == {"198.51.100.12": "eth0"}
    assert answer["images"] == {"here": "sha256:1"}
    assert answer["docker"] == "26.1.5"
    assert answer["errors"] == []
    facts = probe.parse("tray-a", json.dumps(answer))
    assert facts.docker == "26.1.5"


def test_a_dead_docker_daemon_is_told(tmp_path: Path) -> None:
    """A client without its daemon is no docker, with the client's own words as reason."""
    tool(tmp_path, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    answer = run(json.dumps({"images": ["x"]}), str(tmp_path))
    assert answer["docker"] is None
    assert "Cannot connect to the Docker daemon" in answer["errors"][0]


def test_the_limit_is_hard(tmp_path: Path) -> None:
    """A tool that hangs ends the probe at its own limit, as an answer."""
    tool(tmp_path, "ip", "exec /bin/sleep 60")
    assert run(json.dumps({"seconds": 1}), str(tmp_path)) == {"error": "the probe took longer than 1 s"}


@pytest.mark.parametrize("request_text", ["", "{", "[]", "7", '{"seconds": "x"}'])
def test_a_garbled_request_is_answered(request_text: str) -> None:
    """The complaint is JSON, too."""
    assert run(request_text)["error"].startswith("the request cannot be understood: ")


def test_a_directory_has_the_hash_of_its_checksum_list(tmp_path: Path) -> None:
    """The content hash is SHA-256 of what sha256sum prints for the sorted files, links followed."""
    model = tmp_path / "model"
    (model / "b").mkdir(parents=True)
    (model / "b" / "two").write_bytes(b"2")
    (model / "a b").write_bytes(b"1")
    (model / "b.link").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_bytes(b"3")
    (model / "dangling").symlink_to(tmp_path / "nowhere")
    files = {"a b": b"1", "b.link": b"3", "b/two": b"2"}
    lines = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    single = hashlib.sha256(b"1").hexdigest()
    paths = [str(model), str(model / "a b"), str(tmp_path / "nowhere")]
    answer = run(json.dumps({"hash_paths": paths}))
    assert answer["hashes"] == {paths[0]: hashlib.sha256(lines.encode()).hexdigest(), paths[1]: single}
    assert any(paths[2] in error for error in answer["errors"])


def test_a_directory_that_cannot_be_hashed_is_an_error_not_a_hash(tmp_path: Path) -> None:
    """A path that is missing has no hash, and the reason is told."""
    gone = str(tmp_path / "gone")
    answer = run(json.dumps({"hash_paths": [gone]}))
    assert answer["hashes"] == {}
    assert answer["errors"][-1].startswith(f"hash {gone}: ")
