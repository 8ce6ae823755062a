"""Supervisors as processes: a head on 127.0.0.2 and workers on 127.0.0.3 and up, real sockets and signals."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stubs import group
from tests.stubs.group import Rank

pytestmark = pytest.mark.fast


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Rank, Rank]]:
    """A head and a worker, laid down and not started."""
    with group.ranks(tmp_path / "group", 2) as (head, worker):
        yield head, worker


@pytest.fixture
def running(pair: tuple[Rank, Rank]) -> tuple[Rank, Rank]:
    """A head and a worker that are ready."""
    for rank in pair:
        rank.start()
    for rank in pair:
        rank.until_ready()
    return pair


def test_head_is_ready_only_after_an_answered_completion(pair: tuple[Rank, Rank]) -> None:
    """While the API listens and has not answered, the head is not ready; afterwards it is."""
    head, worker = pair
    head.environment["STUB_FIRST"] = "1.5"
    worker.start()
    head.start()
    head.until_said("waiting for the first answer")
    assert head.stays_unready(1.0)
    head.until_ready()
    worker.until_ready()
    assert head.state["phase"] == "ready"
    assert head.state["joined"] == [1]
    assert head.state_file.stat().st_mode & 0o777 == 0o600


def test_ranks_that_serve_bear_a_longer_cut(running: tuple[Rank, Rank]) -> None:
    """Both supervisors have set the kernel's patience on their connection by the time they say READY."""
    port = running[0].settings["supervisor_port"]
    for rank in running:
        assert rank.process is not None
        (link,) = connected_sockets(rank.process.pid, port)
        with link:
            assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000


def connected_sockets(pid: int, port: int) -> list[socket.socket]:
    """Return duplicates of another process's connections from or to a port (pidfd_getfd(2))."""
    syscall = ctypes.CDLL(None).syscall
    process, found = os.pidfd_open(pid), []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if not str(entry.readlink()).startswith("socket:"):
            continue
        link = socket.socket(fileno=syscall(438, process, int(entry.name), 0))
        try:
            ports = {link.getsockname()[1], link.getpeername()[1]}
        except (OSError, IndexError):
            ports = set()  # a listener, or not of the internet
        if port in ports:
            found.append(link)
        else:
            link.close()
    os.close(process)
    return found


def test_a_worker_at_the_rendezvous_has_not_joined(pair: tuple[Rank, Rank]) -> None:
    """A worker whose engine waits for the head's is not ready, and the phase that overran is named."""
    head, worker = pair
    # A head engine that serves another engine's rendezvous: the worker's waits at nobody's.
    store = socket.create_server(("127.0.0.2", worker.settings["master_port"]))
    head.write_config(ports=[])
    worker.limit(engine_ready=1.5)
    head.start()
    worker.start()
    with store:
        assert worker.end() == 1
    assert not worker.ready
    assert "starting the engine took longer than 1.5 s" in worker.state["reason"]


def test_no_engine_starts_before_the_group_is_complete(pair: tuple[Rank, Rank]) -> None:
    """A head without its worker starts nothing, names the missing rank, and waits on: its starts are few."""
    head, worker = pair
    head.limit(joined=0.5)
    head.start()
    head.until_said("still waiting for the group (not connected: rank 1); waiting on")
    head.until(lambda rank: any("(not connected: rank 1)" in note for note in rank._notes))
    assert not any(call.startswith("run ") for call in head.docker_calls)
    assert "EXTEND_TIMEOUT_USEC=180000000" in head.notes  # systemd's own limit is for a start under way
    worker.start()
    head.until_ready()
    assert "EXTEND_TIMEOUT_USEC=80000000" in head.notes


def test_a_worker_outlasts_a_head_that_is_away(pair: tuple[Rank, Rank]) -> None:
    """A worker waits on past its time to meet, also through a head that comes and goes before the start."""
    head, worker = pair
    worker.limit(joined=0.5)
    worker.start()
    worker.until_said("still waiting for the group")
    head.start()
    worker.until_ready()


def test_files_that_changed_during_the_wait_start_no_engine(pair: tuple[Rank, Rank]) -> None:
    """An old command never runs with a new environment: the run ends, and the next one reads all anew."""
    head, worker = pair
    head.start()
    head.until_said("not connected: rank 1")
    (head.root / "engine.env").write_text("VLLM_HOST_IP=127.0.0.2\nNEW=1\n", encoding="ascii")
    worker.start()
    assert (head.end(), worker.end()) == (1, 1)
    assert head.state["reason"] == f"changed while this run waited: {head.root / 'engine.env'} changed"
    assert not any(call.startswith("run ") for call in head.docker_calls)


def test_a_host_that_is_not_there_yet_is_waited_for(pair: tuple[Rank, Rank]) -> None:
    """A docker that does not answer, as during a boot, is asked again and named."""
    head, worker = pair
    down = head.root / "containers" / "down"
    down.touch()
    head.start()
    head.until_said("checking: docker does not answer: failed to connect to the docker API")
    worker.start()
    down.unlink()
    head.until_ready()


def test_a_command_that_systemd_kept_from_an_older_unit_is_refused(pair: tuple[Rank, Rank]) -> None:
    """After a lost daemon-reload the rank would run old arguments under the new plan's name."""
    head, _ = pair
    unit = head.root / "head.service"
    unit.write_text("[Service]\nExecStart=/kimi-rank run -- docker run --name vllm-kimi-head new\n")
    head.start("--unit-file", str(unit))
    assert head.end() == 1
    assert f"is not the one in {unit}: systemd has not read the unit since" in head.state["reason"]
    assert "systemctl daemon-reload" in head.state["reason"]
    assert head.docker_calls == []
    unit.write_text(f"[Service]\nExecStart=/kimi-rank run -- {' '.join(head.engine_argv())}\n")
    head.start("--unit-file", str(unit))
    head.until_said("waiting for the group")


def test_death_of_the_worker_engine_ends_the_head(running: tuple[Rank, Rank]) -> None:
    """A killed worker engine ends both ranks, which each say whose fault it was."""
    head, worker = running
    assert worker.engine_pid is not None
    os.kill(worker.engine_pid, signal.SIGKILL)
    assert (worker.end(), head.end()) == (1, 1)
    assert worker.state["reason"] == "the engine ended by itself with exit code 137 while ready"
    assert head.state["reason"] == f"rank 1 ended: {worker.state['reason']}"
    assert head.engine_pid is None


def test_death_of_the_head_engine_with_code_0_ends_the_worker(running: tuple[Rank, Rank]) -> None:
    """Exit code 0 of vLLM is a failure on both sides, and the silent worker engine is stopped."""
    head, worker = running
    assert head.engine_pid is not None
    engine = worker.engine_pid
    assert engine is not None
    os.kill(head.engine_pid, signal.SIGUSR1)
    assert (head.end(), worker.end()) == (1, 1)
    assert head.state["reason"] == "the engine ended by itself with exit code 0 while ready"
    assert worker.state["reason"] == f"rank 0 ended: {head.state['reason']}"
    assert not group.alive(engine)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_supervisor_ends_the_other_rank(running: tuple[Rank, Rank], victim: int) -> None:
    """A supervisor that dies without a word is a lost connection; its next run removes its container."""
    dead, left = running[victim], running[1 - victim]
    engine = dead.engine_pid
    assert dead.process is not None
    assert engine is not None
    dead.process.kill()
    dead.process.wait(group.WAIT)
    assert left.end() == 1
    assert left.state["reason"] == f"connection to rank {victim} lost: closed by the other side"
    assert group.alive(engine)
    dead.start()
    dead.until_said(f"removed the leftover container {dead.container}")
    group.until(lambda: not group.alive(engine))
    dead.terminate()
    assert dead.end() == 0


def test_sigterm_on_the_worker_stops_the_head_engine_first(running: tuple[Rank, Rank]) -> None:
    """A worker that is stopped lets the head finish; it ends with 0, the head as a failure."""
    head, worker = running
    head.environment["STUB_STOP"] = "0.5"
    engine = worker.engine_pid
    assert engine is not None
    worker.terminate()
    head.until_said("stopping")
    assert group.alive(engine)
    assert head.end() == 1
    assert worker.end() == 0
    assert head.state["reason"] == "rank 1 is leaving: stopped by SIGTERM"
    assert worker.state["reason"] == "stopped by SIGTERM"
    assert worker.log.index("draining") < worker.log.index("stopping")


def test_sigterm_on_the_head_stops_its_engine_then_the_worker(running: tuple[Rank, Rank]) -> None:
    """A head that is stopped ends with 0, and with ``docker stop`` within its limit; the worker follows."""
    head, worker = running
    head.terminate()
    assert (head.end(), worker.end()) == (0, 1)
    assert "stop --time 5 vllm-kimi-head" in head.docker_calls
    assert worker.state["reason"] == "rank 0 ended: stopped by SIGTERM"
    assert "STOPPING=1" in head.notes


def test_sigterm_on_both_ends_both_without_a_failure(running: tuple[Rank, Rank]) -> None:
    """Stopping the target of both hosts at once leaves no failed unit."""
    for rank in running:
        rank.terminate()
    assert [rank.end() for rank in running] == [0, 0]


def test_a_worker_of_another_plan_is_refused(pair: tuple[Rank, Rank]) -> None:
    """Another plan is not admitted, both sides say why, and a worker that was corrected is."""
    head, worker = pair
    worker.write_config(plan="q" * 64)
    head.start()
    worker.start()
    wanted = f"refused by the head: its plan is {'q' * 64}, the head's is {group.PLAN}"
    worker.until_said(wanted)
    worker.terminate()
    assert worker.end() == 0
    assert worker.log.count(wanted) == 1  # when it happened, not at every attempt
    worker.write_config(plan=group.PLAN)
    worker.start()
    worker.until_ready()
    head.until_ready()


def turned_away(stranger: socket.socket) -> bool:
    """Say whether the other side refuses or closes; a reset is a close with data unread."""
    try:
        answer = stranger.recv(4096)
    except ConnectionResetError:
        return True
    return not answer or "refused" in json.loads(answer)


def test_a_peer_that_talks_garbage_disturbs_nothing(running: tuple[Rank, Rank]) -> None:
    """Strangers on the supervisor port, a second rank 1 among them, are turned away."""
    head, worker = running
    address = ("127.0.0.2", head.settings["supervisor_port"])
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 9000, b"[]\n", b'{"hello": 7}\n'):
        with socket.create_connection(address) as stranger:
            stranger.sendall(garbage)
            stranger.settimeout(group.WAIT)
            assert turned_away(stranger)
    second = {"deployment": "kimi", "rank": 1, "plan": group.PLAN, "version": 1}
    with socket.create_connection(address) as stranger:
        stranger.sendall(json.dumps({"hello": second}).encode() + b"\n")
        assert json.loads(stranger.recv(4096)) == {"refused": "rank 1 is already connected"}
    assert [rank.process.poll() for rank in (head, worker) if rank.process] == [None, None]


def test_a_taken_port_names_its_holder(pair: tuple[Rank, Rank]) -> None:
    """A port that another process holds is refused with number, purpose, pid and command."""
    head, _ = pair
    code = "import socket, sys\n"
    code += "with socket.create_server(('127.0.0.1', int(sys.argv[1]))): print(flush=True), sys.stdin.read()"
    port = str(head.settings["api_port"])
    with subprocess.Popen(
        (sys.executable, "-c", code, port), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        head.start()
        assert head.end() == 1
        assert f"port {port} (api) is held by pid {holder.pid} ({sys.executable} -c" in head.state["reason"]
        holder.communicate()
    assert not any(call.startswith("run ") for call in head.docker_calls)


def test_a_foreign_address_is_refused(pair: tuple[Rank, Rank]) -> None:
    """An engine address that the interface does not get ends the rank before docker is asked for anything."""
    head, _ = pair
    head.write_config(own_address="198.51.100.77")
    head.limit(joined=0.5)
    head.start()
    assert head.end() == 1
    absent = "198.51.100.77 is not an address of lo: no device of this host has it"
    assert head.state["reason"] == f"checking took longer than 0.5 s ({absent})"
    assert head.docker_calls == []


@pytest.mark.parametrize(
    ("environment", "limit", "reason"),
    [
        ({"STUB_LOAD": "60"}, {"engine_ready": 1}, "starting the engine took longer than 1 s"),
        ({"STUB_FIRST": "60"}, {"first_answer": 1}, "waiting for the first answer took longer than 1 s"),
    ],
)
def test_an_overrun_names_its_phase(
    tmp_path: Path, environment: dict[str, str], limit: dict[str, float], reason: str
) -> None:
    """A group of one rank needs no other; the phase that took too long is the reason of its end."""
    with group.ranks(tmp_path / "group", 1, **environment) as (head,):
        head.limit(**limit)
        head.start()
        assert head.end() == 1
        assert head.state["reason"] == reason
        assert not head.ready
        assert head.engine_pid is None


def test_a_wrong_key_is_the_named_cause(tmp_path: Path) -> None:
    """An API that answers with an error does not count as ready, and its status is in the reason."""
    with group.ranks(tmp_path / "group", 1) as (head,):
        head.write_config(secret_env=None)
        head.limit(first_answer=1.5)
        head.start()
        assert head.end() == 1
        assert "(HTTP status 401)" in head.state["reason"]


def test_no_secret_is_told(running: tuple[Rank, Rank]) -> None:
    """The API key is in no line of the journal, no argv, no state and nothing that systemd is told."""
    head = running[0]
    assert head.engine_pid is not None
    assert group.environment_of(head.engine_pid)["VLLM_API_KEY"] == group.SECRET
    status = head.ask("status").stdout
    for rank in running:
        rank.terminate()
    for rank in running:
        rank.end()
        told = rank.log + rank.state_file.read_text() + "".join(rank.notes) + "".join(rank.docker_calls)
        assert group.SECRET not in told + status


def test_status_and_wait_of_a_running_pair(running: tuple[Rank, Rank]) -> None:
    """Status says ready and not stale until an input changes on disk; wait returns at once."""
    head, worker = running
    status = json.loads(head.ask("status").stdout)
    assert (status["running"], status["ready"], status["stale"], status["phase"]) == (
        True,
        True,
        False,
        "ready",
    )
    assert status["plan"] == group.PLAN
    assert worker.ask("wait", "--timeout", "5").returncode == 0
    (head.root / "engine.env").write_text("VLLM_HOST_IP=127.0.0.2\nNEW=1\n")
    changed = json.loads(head.ask("status").stdout)
    assert changed["stale"]
    assert changed["changes"] == [f"{head.root / 'engine.env'} changed"]
    late = head.ask("wait", "--timeout", "0.1", "--current")
    assert late.returncode == 3
    assert "was started from other files" in late.stdout
    head.terminate()
    head.end()
    ended = json.loads(head.ask("status").stdout)
    assert (ended["running"], ended["ready"], ended["stale"]) == (False, False, False)
    assert ended["reason"] == "stopped by SIGTERM"
