"""What an engine over two hosts does when a rank dies, as measured on vLLM 0.32.0; the stub does it too."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kimi_infra.hostside.rank import host
from tests.contract.test_engine_api import STUB
from tests.stubs import group

pytestmark = pytest.mark.fast


@dataclass(frozen=True)
class Pair:
    """The two ranks of one engine."""

    head: subprocess.Popen[str]
    worker: subprocess.Popen[str]
    port: int
    master: int

    def ask(self, path: str) -> int:
        """Return the status of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=group.WAIT)
        try:
            body = None if path == "/health" else json.dumps({"model": "/models/tiny", "prompt": "x"})
            connection.request("GET" if body is None else "POST", path, body)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A worker that was started first, then its head, both joined."""
    port, master = group.free_port(), group.free_port()
    words = [
        sys.executable,
        str(STUB),
        "serve",
        "/models/tiny",
        "--nnodes",
        "2",
        "--master-addr",
        "127.0.0.2",
    ]
    words += ["--master-port", str(master), "--port", str(port)]
    worker = subprocess.Popen(
        [*words, "--node-rank", "1", "--headless"],
        env={"VLLM_HOST_IP": "127.0.0.3"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with worker, subprocess.Popen(words, env={}, stderr=subprocess.PIPE, text=True) as head:
        assert head.stderr is not None
        assert any("startup complete" in line for line in iter(head.stderr.readline, ""))
        yield Pair(head, worker, port, master)
        head.kill()
        worker.kill()


def test_a_dead_worker_shows_at_the_next_request(pair: Pair) -> None:
    """/health stays 200; the next completion is a 500, and the head exits with code 0."""
    assert pair.ask("/v1/completions") == 200
    pair.worker.kill()
    pair.worker.wait(group.WAIT)
    assert pair.ask("/health") == 200
    assert pair.ask("/v1/completions") == 500
    assert pair.head.wait(group.WAIT) == 0


def test_a_worker_does_not_notice_a_dead_head(pair: Pair) -> None:
    """The head's core dies with exit code 0; the worker goes on without a connection and without a word."""
    os.kill(pair.head.pid, signal.SIGUSR1)
    assert pair.head.wait(group.WAIT) == 0
    group.until(lambda: not host.joined(host.engine_sockets(pair.worker.pid), {"127.0.0.2"}, ()))
    assert pair.worker.poll() is None


def test_a_late_worker_is_connected_and_has_not_joined(pair: Pair) -> None:
    """The head holds a connection to a joined worker; one beside an old head has only its own to the head."""
    assert host.joined(host.engine_sockets(pair.worker.pid), {"127.0.0.2"}, {pair.master})
    words = [sys.executable, str(STUB), "serve", "x", "--headless", "--nnodes", "2", "--node-rank", "1"]
    words += ["--master-addr", "127.0.0.2", "--master-port", str(pair.master)]
    with subprocess.Popen(words, env={"VLLM_HOST_IP": "127.0.0.3"}, stderr=subprocess.DEVNULL) as second:
        group.until(lambda: len({port for port in connected(second.pid) if port != pair.master}) == 1)
        assert pair.master in connected(second.pid)
        assert not host.joined(host.engine_sockets(second.pid), {"127.0.0.2"}, {pair.master})
        second.kill()


def connected(pid: int) -> set[int]:
    """Return the ports of the head to which a rank has connected."""
    return {item.remote[1] for item in host.engine_sockets(pid) if item.remote[0] == "127.0.0.2"}


def test_both_end_with_0_when_asked(pair: Pair) -> None:
    """SIGTERM ends either rank with code 0, and the head's end does not end the worker."""
    pair.head.terminate()
    assert pair.head.wait(group.WAIT) == 0
    assert pair.worker.poll() is None
    pair.worker.terminate()
    assert pair.worker.wait(group.WAIT) == 0
