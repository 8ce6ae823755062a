"""``kimi-rank wait`` and ``status`` beside a unit that starts, fails and starts again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimi_infra.hostside.rank import state, story
from tests.stubs import group
from tests.stubs.group import Rank

pytestmark = pytest.mark.fast


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Rank]:
    """A group of one rank, and a ``systemctl`` that says what the test wrote."""
    with group.ranks(tmp_path / "group", 1) as (rank,):
        systemctl = rank.root / "systemctl"
        systemctl.write_text(f"#!/bin/sh\ncat {rank.root}/active\n", encoding="ascii")
        systemctl.chmod(0o755)
        rank.environment["PATH"] = f"{rank.root}:{rank.environment['PATH']}"
        set_unit(rank, "inactive")
        yield rank


def set_unit(rank: Rank, active: str) -> None:
    """Let ``systemctl show`` say this is the unit's ActiveState."""
    (rank.root / "active").write_text(f"{active}\n", encoding="ascii")


def test_a_restart_in_between_is_not_the_end(head: Rank) -> None:
    """A first run that fails and a second one that serves are waited for as one."""
    set_unit(head, "activating")
    waiting = subprocess.Popen(
        head.words("wait", "--timeout", "60"), env=head.environment, stdout=subprocess.PIPE, text=True
    )
    with waiting:
        head.environment["STUB_LOAD"] = "60"
        head.start()
        head.until_said("starting the engine")
        group.until(lambda: head.engine_pid is not None)
        assert head.engine_pid is not None
        group.until(lambda: signal_is_handled(head.engine_pid or 0))
        os.kill(head.engine_pid, signal.SIGUSR1)
        assert head.end() == 1
        assert waiting.poll() is None
        head.environment["STUB_LOAD"] = "0"
        head.start()
        head.until_ready()
        out, _ = waiting.communicate(timeout=group.WAIT)
    assert waiting.returncode == 0
    assert out == "vllm-kimi-head.service is ready\n"
    status = json.loads(head.ask("status").stdout)
    assert status["reason"] == "the engine ended by itself with exit code 0 while starting the engine"


def signal_is_handled(pid: int) -> bool:
    """Say whether the engine has got as far as installing its handler of SIGUSR1."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    return False


def test_a_unit_that_failed_for_good_is_reported_with_its_reason(head: Rank) -> None:
    """When systemd has given up, wait ends with 1 and the supervisor's own reason."""
    head.write_config(own_address="198.51.100.77")
    head.limit(joined=0.5)
    head.start()
    head.end()
    set_unit(head, "failed")
    done = head.ask("wait", "--timeout", "30")
    assert done.returncode == 1
    assert done.stdout == (
        "vllm-kimi-head.service is down: checking took longer than 0.5 s "
        "(198.51.100.77 is not an address of lo: no device of this host has it)\n"
    )


def test_a_timeout_names_the_phase(head: Rank) -> None:
    """Wait ends with 3 and says in which phase the rank is, since when and with which limit."""
    head.environment["STUB_LOAD"] = "60"
    head.start()
    head.until_said("starting the engine")
    done = head.ask("wait", "--timeout", "0.2")
    assert done.returncode == 3
    assert done.stdout.startswith(
        "vllm-kimi-head.service is not ready after 0.2 s: starting the engine since "
    )
    assert " s of 10 s" in done.stdout


def test_an_active_unit_serves_whatever_its_state_file_says(head: Rank) -> None:
    """A state that was lost leaves a rank that runs, is ready, and is stale: only consent restarts it."""
    set_unit(head, "active")
    lost = json.loads(head.ask("status").stdout)
    assert (lost["running"], lost["ready"], lost["stale"]) == (True, True, True)
    assert lost["changes"] == ["what vllm-kimi-head.service was started from is unknown: it left no state"]
    head.environment["STUB_LOAD"] = "60"
    head.start()
    head.until_said("starting the engine")
    behind = json.loads(head.ask("status").stdout)
    assert (behind["running"], behind["ready"], behind["stale"]) == (True, True, False)


def test_a_state_that_could_not_be_saved_is_saved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full /run at READY leaves a state that says not ready only until the next tick."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    record = story.Story(group.settings(), tmp_path)
    file = state.path(tmp_path, group.settings().deployment)
    record.enter("starting the engine", 1)
    file.parent.rename(tmp_path / "aside")
    file.parent.touch()
    record.enter("ready", None, ready=True)
    record.tick()
    assert not state.load(file)
    file.parent.unlink()
    record.tick()
    assert state.load(file)["ready"]


def test_a_host_without_anything_has_a_status(head: Rank) -> None:
    """Nothing running, and not even a configuration, are states like others."""
    never = json.loads(head.ask("status").stdout)
    assert (never["running"], never["ready"], never["stale"], never["pid"]) == (False, False, False, None)
    head.config_file.unlink()
    done = head.ask("status")
    assert done.returncode == 0
    assert "rank.json" in json.loads(done.stdout)["reason"]
    assert head.ask("wait", "--timeout", "1").returncode == 2
