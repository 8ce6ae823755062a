"""Runs rank supervisors as systemd would, on loopback addresses, with the stub docker under them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kimi_infra import hostside
from kimi_infra.hostside.rank import config

SECRET = "sk-canary-7d1f0c"
PLAN = "p" * 64
CLIENT = Path(__file__).with_name("docker_client.py")
WAIT = 15.0
"""Seconds after which something that should have happened counts as missing."""


def free_port() -> int:
    """Return a port that nobody listens on, below those that the kernel gives to outgoing connections."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


@dataclass(frozen=True)
class Ports:
    """The ports of one group."""

    api: int = field(default_factory=free_port)
    master: int = field(default_factory=free_port)
    supervisor: int = field(default_factory=free_port)


@dataclass
class Rank:
    """One rank's files, and its supervisor while it runs."""

    root: Path
    program: Path
    docker: Path
    settings: dict[str, Any]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    _news: threading.Condition = field(default_factory=threading.Condition)
    _log: list[str] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    @property
    def config_file(self) -> Path:
        """rank.json."""
        return self.root / "rank.json"

    @property
    def container(self) -> str:
        """The container's name."""
        return str(self.settings["container"])

    @property
    def state_file(self) -> Path:
        """The supervisor's state."""
        return self.root / "run" / str(self.settings["deployment"]) / "state.json"

    @property
    def state(self) -> dict[str, Any]:
        """The supervisor's state as last written."""
        found: dict[str, Any] = json.loads(self.state_file.read_text(encoding="utf-8"))
        return found

    @property
    def log(self) -> str:
        """Everything that the journal would hold."""
        with self._news:
            return "".join(self._log)

    @property
    def notes(self) -> list[str]:
        """Everything that systemd was told."""
        with self._news:
            return list(self._notes)

    @property
    def ready(self) -> bool:
        """Whether systemd was told READY."""
        return "READY=1" in self.notes

    @property
    def engine_pid(self) -> int | None:
        """Pid of the container's process; None while there is no container."""
        file = Path(self.environment["STUB_DOCKER_DIR"]) / f"{self.container}.pid"
        return int(file.read_text(encoding="ascii")) if file.exists() and file.stat().st_size else None

    @property
    def docker_calls(self) -> list[str]:
        """Commands that docker got, in order."""
        file = Path(self.environment["STUB_DOCKER_DIR"]) / "calls"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def write_config(self, **changes: Any) -> None:
        """Lay rank.json down again."""
        self.settings.update(changes)
        self.config_file.write_text(json.dumps(self.settings), encoding="utf-8")

    def limit(self, **seconds: float) -> None:
        """Change deadlines."""
        self.write_config(seconds={**self.settings["seconds"], **seconds})

    def engine_argv(self) -> list[str]:
        """Return the docker command of this rank."""
        own = self.settings
        argv = [str(self.docker), "run", "--rm", "--init", "--pull", "never", "--log-driver", "none"]
        argv += ["--name", self.container]
        argv += ["--network", "host", "--env-file", str(self.root / "engine.env")]
        argv += ["--env-file", str(self.root / "secret.env"), "sha256:" + "1" * 64, "serve", "/models/tiny"]
        argv += ["--served-model-name", str(own["model"]), "--nnodes", str(own["ranks"])]
        argv += ["--node-rank", str(own["rank"]), "--master-addr", str(own["head_address"])]
        argv += ["--master-port", str(own["master_port"])]
        return argv + (["--headless"] if own["rank"] else ["--port", str(own["api_port"])])

    def words(self, verb: str, *more: str) -> list[str]:
        """Return a command of the installed program."""
        own = ["--config", str(self.config_file), "--run-dir", str(self.root / "run")]
        return [sys.executable, "-BEs", str(self.program), verb, *own, *more]

    def start(self, *more: str) -> None:
        """Start the supervisor as systemd would."""
        self._log.clear()
        self._notes.clear()
        address = self.root / "notify"
        address.unlink(missing_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(address))
        self.process = subprocess.Popen(
            self.words("run", *more, "--", *self.engine_argv()),
            env={**self.environment, "NOTIFY_SOCKET": str(address)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        threading.Thread(target=self._read_log, args=(self.process,), daemon=True).start()
        threading.Thread(target=self._read_notes, args=(notify,), daemon=True).start()

    def _read_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                self._tell(self._log, line.decode())

    def _read_notes(self, notify: socket.socket) -> None:
        with notify:
            while note := notify.recv(4096):
                for line in note.decode().split("\n"):
                    self._tell(self._notes, line)
                if b"STATUS=ended" in note:
                    return

    def _tell(self, where: list[str], line: str) -> None:
        with self._news:
            where.append(line)
            self._news.notify_all()

    def until(self, what: Callable[[Rank], bool]) -> None:
        """Wait for something that shows in the log or in what systemd was told."""
        with self._news:
            happened = self._news.wait_for(lambda: what(self), timeout=WAIT)
        assert happened, f"did not happen within {WAIT} s:\n{self.log}\n{self.notes}"

    def until_said(self, text: str) -> None:
        """Wait for a text in the journal."""
        self.until(lambda rank: text in "".join(rank._log))

    def until_ready(self) -> None:
        """Wait for READY."""
        self.until(lambda rank: "READY=1" in rank._notes)

    def stays_unready(self, seconds: float) -> bool:
        """Say whether READY does not come within a time."""
        with self._news:
            return not self._news.wait_for(lambda: "READY=1" in self._notes, timeout=seconds)

    def terminate(self) -> None:
        """Send SIGTERM to the supervisor alone, as KillMode=mixed does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """Wait for the supervisor's end and return its exit code."""
        assert self.process is not None
        try:
            code = self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {WAIT} s:\n{self.log}") from None
        with self._news:
            self._news.wait_for(lambda: "ends with exit code" in "".join(self._log), timeout=1)
        return code

    def ask(self, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run another verb of the program and return its result."""
        return subprocess.run(
            self.words(verb, *more),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )

    def clear_away(self) -> None:
        """Kill what a failed test left."""
        for pid in (self.process.pid if self.process else None, self.engine_pid):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(WAIT)


def settings(**changes: Any) -> config.Config:
    """Return a configuration as the supervisor reads it, for tests of single functions."""
    example = config.Config(
        deployment="kimi",
        rank=1,
        role="worker",
        ranks=2,
        plan=PLAN,
        container="vllm-kimi-worker",
        head_address="198.51.100.11",
        own_address="198.51.100.12",
        interface="eth0",
        supervisor_port=29560,
        master_port=29501,
        api_port=8000,
        model="tiny",
        inputs=(),
        secret_env=None,
        ports=(),
        limits=config.Limits(joined=1, engine_ready=1, first_answer=1, container_stop=1),
    )
    return dataclasses.replace(example, **changes)


def install(target: Path) -> Path:
    """Lay the supervisor down as a host gets it, under another root; return the program."""
    for name, (content, mode) in hostside.rank_files().items():
        file = target / Path(name).relative_to(hostside.INSTALL_DIR)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        file.chmod(int(mode, 8))
    return target / "kimi-rank"


def make_docker(target: Path) -> Path:
    """Make an executable ``docker`` out of the stub client."""
    docker = target / "docker"
    docker.write_text(f'#!/bin/sh\nexec {sys.executable} -BEs {CLIENT} "$@"\n', encoding="ascii")
    docker.chmod(0o755)
    return docker


def make_rank(root: Path, rank: int, ranks: int, ports: Ports, program: Path) -> Rank:
    """Lay down one rank's files; nothing runs yet."""
    root.mkdir()
    role = "worker" if rank else "head"
    own = f"127.0.0.{2 + rank}"
    listening = {} if rank else {"api": ports.api, "master": ports.master, "supervisor": ports.supervisor}
    (root / "engine.env").write_text(f"VLLM_HOST_IP={own}\n", encoding="ascii")
    (root / "secret.env").write_text(f"VLLM_API_KEY={SECRET}\n", encoding="ascii")
    (root / "containers").mkdir()
    content: dict[str, Any] = {
        "deployment": "kimi", "rank": rank, "role": role, "ranks": ranks, "plan": PLAN,
        "container": f"vllm-kimi-{role}", "head_address": "127.0.0.2", "own_address": own, "interface": "lo",
        "supervisor_port": ports.supervisor, "master_port": ports.master, "api_port": ports.api,
        "model": "tiny",
        "inputs": [str(root / name) for name in ("rank.json", "engine.env", "secret.env")],
        "secret_env": str(root / "secret.env"),
        "ports": [{"number": number, "purpose": purpose} for purpose, number in listening.items()],
        "seconds": {"joined": 10, "engine_ready": 10, "first_answer": 10, "shutdown": 2, "container_stop": 5},
    }  # fmt: skip
    environment = {"PATH": os.environ["PATH"], "STUB_DOCKER_DIR": str(root / "containers")}
    found = Rank(root, program, make_docker(root), content, environment)
    found.write_config()
    return found


@contextlib.contextmanager
def ranks(root: Path, count: int, **environment: str) -> Iterator[list[Rank]]:
    """Lay down a group; whatever still runs at the end is killed."""
    program, ports = install(root / "program"), Ports()
    group = [make_rank(root / f"rank{rank}", rank, count, ports, program) for rank in range(count)]
    for rank in group:
        rank.environment.update(environment)
    try:
        yield group
    finally:
        for rank in group:
            rank.clear_away()
        shutil.rmtree(root, ignore_errors=True)


def until(happened: Callable[[], bool]) -> None:
    """Wait for a condition of the kernel's or the file system's that nobody announces."""
    deadline = time.monotonic() + WAIT
    while not happened():
        assert time.monotonic() < deadline, f"did not happen within {WAIT} s"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Say whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def environment_of(pid: int) -> Mapping[str, str]:
    """Return the environment that a process was started with."""
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(item.split("=", 1) for item in raw.rstrip("\0").split("\0"))
