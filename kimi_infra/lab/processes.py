"""Daemons of the lab: started once, found again by a record, never mistaken for another process."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kimi_infra.errors import LabError

MARK = "KIMI_INFRA_LAB"
"""Environment variable of every daemon of ours; holds the state folder of its lab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of this boot; a recycled pid has another start."""

    pid: int
    start: int
    """Clock ticks from boot to the start of the process (proc(5), field 22)."""
    boot: str
    """The controller's boot id: pid and start may repeat after a reboot."""

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs; one that waits to be reaped does not."""
        return self.boot == boot_id() and start_ticks(self.pid) == self.start


def boot_id() -> str:
    """The controller's own."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_ticks(pid: int) -> int | None:
    """When the process started; None when there is none or it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in parentheses and may hold anything, even a parenthesis.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def identify(pid: int) -> Process | None:
    """The process that has this pid now."""
    start = start_ticks(pid)
    return None if start is None else Process(pid=pid, start=start, boot=boot_id())


def read(record: Path) -> Process | None:
    """The recorded process if it still runs; a stale or torn record is nobody."""
    try:
        data = json.loads(record.read_text(encoding="ascii"))
        process = Process(pid=int(data["pid"]), start=int(data["start"]), boot=str(data["boot"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return process if process.alive else None


def spawn(record: Path, argv: Sequence[str], *, mark: Path, log: Path, env: Mapping[str, str]) -> Process:
    """Start a daemon in a session of its own, its output going to the log, and record it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawnp(
            argv[0],
            list(argv),
            {**env, MARK: str(mark)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    except OSError as error:
        raise LabError(f"{argv[0]}: cannot be started: {error.strerror}") from error
    process = identify(pid)
    if process is None:
        _reap(pid)
        raise LabError(f"{argv[0]}: ended at once; its last words are in {log}")
    record.write_text(
        json.dumps({"pid": process.pid, "start": process.start, "boot": process.boot}), encoding="ascii"
    )
    return process


def end(process: Process | None, *, seconds: float, gently: signal.Signals = signal.SIGTERM) -> bool:
    """Ask the process to end, kill it after the given time; True when it ended by itself."""
    if process is None or not process.alive:
        return True
    if send(process, gently) and wait(process, seconds=seconds):
        return True
    send(process, signal.SIGKILL)
    wait(process, seconds=10)
    return False


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process; False when it has ended."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # Looked at with the handle open: from here on the pid cannot become another process.
        if not process.alive:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def wait(process: Process, *, seconds: float) -> bool:
    """Wait until the process has ended; False when the time is up first."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if process.alive:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(seconds * 1000)
        if process.alive:
            return False
    finally:
        os.close(handle)
    _reap(process.pid)
    return True


def marked(mark: Path) -> tuple[Process, ...]:
    """Every running process that carries this lab's mark, recorded or not."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environ.split(b"\0"):
            process = identify(int(entry.name))
            found += [process] if process else []
    return tuple(found)


def _reap(pid: int) -> None:
    # Only a child of this very program can be reaped here; init reaps the others.
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
