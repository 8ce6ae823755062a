"""Daemons of the lab are found again by their record, and nobody else is ever taken for one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimi_infra.errors import LabError
from kimi_infra.lab import processes

pytestmark = pytest.mark.fast


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[processes.Process]:
    """A daemon with the mark of the test's folder, gone afterwards."""
    process = processes.spawn(
        tmp_path / "pid", ["sleep", "600"], mark=tmp_path, log=tmp_path / "log", env=os.environ
    )
    yield process
    processes.end(process, seconds=0, gently=signal.SIGKILL)


def test_a_daemon_is_found_by_its_record(sleeper: processes.Process, tmp_path: Path) -> None:
    """The record gives the very process that was started."""
    assert processes.read(tmp_path / "pid") == sleeper
    assert sleeper.alive


def test_an_ended_daemon_is_nobody(sleeper: processes.Process, tmp_path: Path) -> None:
    """A record whose process has ended reads as nobody, also before the process is reaped."""
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{sleeper.pid}").exists()
    assert processes.read(tmp_path / "pid") is None


@pytest.mark.parametrize(
    "field",
    [
        "start",  # the pid was given to a later process
        "boot",  # the record is of an earlier boot of the machine
    ],
)
def test_a_recycled_pid_is_not_killed(sleeper: processes.Process, tmp_path: Path, field: str) -> None:
    """A record whose pid now belongs to another process kills nobody."""
    record = tmp_path / "pid"
    data = json.loads(record.read_text())
    data[field] = data[field] + 1 if field == "start" else "another"
    record.write_text(json.dumps(data))
    assert processes.read(record) is None
    stale = processes.Process(pid=data["pid"], start=data["start"], boot=data["boot"])
    assert processes.end(stale, seconds=0)
    assert not processes.send(stale, signal.SIGKILL)
    assert sleeper.alive


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "start": 1, "boot": "b"}'])
def test_a_torn_record_is_nobody(tmp_path: Path, text: str) -> None:
    """A record that was cut off by a crash reads as nobody."""
    (tmp_path / "pid").write_text(text)
    assert processes.read(tmp_path / "pid") is None


def test_an_obstinate_daemon_is_killed(tmp_path: Path) -> None:
    """One that ignores SIGTERM is killed when its time is up, and the caller is told."""
    argv = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]
    log = tmp_path / "log"
    process = processes.spawn(tmp_path / "pid", argv, mark=tmp_path, log=log, env=os.environ)
    while log.read_text() != "ready\n":
        assert process.alive
    assert not processes.end(process, seconds=0.2)
    assert not process.alive


def test_a_gentle_end_is_told_from_a_kill(sleeper: processes.Process) -> None:
    """A daemon that ends at SIGTERM counts as ended by itself."""
    assert processes.end(sleeper, seconds=10)
    assert not sleeper.alive


def test_the_mark_finds_daemons_without_a_record(sleeper: processes.Process, tmp_path: Path) -> None:
    """A daemon whose record was lost is found by its environment, one of another lab is not."""
    (tmp_path / "pid").unlink()
    assert processes.marked(tmp_path) == (sleeper,)
    assert processes.marked(tmp_path / "other") == ()


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Starting a missing program says which one."""
    with pytest.raises(LabError, match="no-such-program: cannot be started: No such file"):
        processes.spawn(
            tmp_path / "pid", ["no-such-program"], mark=tmp_path, log=tmp_path / "log", env=os.environ
        )


def test_a_name_with_parentheses_does_not_confuse_the_start(tmp_path: Path) -> None:
    """The start is read behind the last parenthesis, whatever the program is called."""
    program = tmp_path / "a) 1 2 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "600"]) as child:
        start = processes.start_ticks(child.pid)
        child.kill()
    own = processes.start_ticks(os.getpid())
    assert start is not None
    assert own is not None
    assert start >= own
