"""What the supervisor reads out of /proc and netlink, and the rule of having joined."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from kimi_infra.hostside.rank import host

pytestmark = pytest.mark.fast

HEAD, WORKER = "198.51.100.11", "198.51.100.12"
MASTER, SUPERVISOR = 29501, 29560
ANY = "0.0.0.0"  # noqa: S104 - as the kernel shows the other end of a listener
ESTABLISHED, LISTEN, TIME_WAIT = 1, 10, 6


def connection(local: int, remote: tuple[str, int], state: int = ESTABLISHED) -> host.Connection:
    """Return a socket of the worker's engine."""
    return host.Connection((WORKER, local), remote, state, 7)


LISTENER = connection(41000, (ANY, 0), LISTEN)


@pytest.mark.parametrize(
    ("sockets", "expected"),
    [
        pytest.param([], False, id="nothing yet"),
        pytest.param([connection(40000, (HEAD, MASTER))], False, id="waits at the rendezvous"),
        pytest.param(
            [LISTENER, connection(40000, (HEAD, MASTER)), connection(40001, (HEAD, 45000))],
            False,
            id="waits beside the head of an older engine",
        ),
        pytest.param([LISTENER, connection(41000, (WORKER, 45000))], False, id="accepted from itself"),
        pytest.param([LISTENER, connection(41000, ("198.51.100.13", 1))], False, id="from another worker"),
        pytest.param([LISTENER], False, id="listens only"),
        pytest.param([connection(41000, (HEAD, 45000))], False, id="no longer listens there"),
        pytest.param([LISTENER, connection(41000, (HEAD, 45000), TIME_WAIT)], False, id="was connected once"),
        pytest.param([LISTENER, connection(41000, (HEAD, 45000))], True, id="accepted from the head"),
    ],
)
def test_joined_is_a_connection_that_the_head_opened(sockets: list[host.Connection], expected: bool) -> None:
    """Only an established connection from the head to a port of the rank's own is proof."""
    assert host.joined(sockets, {HEAD}, {MASTER, SUPERVISOR}) is expected


def test_joined_leaves_planned_ports_aside() -> None:
    """A listener on a planned port is not the engine's queue."""
    sockets = [connection(MASTER, (ANY, 0), LISTEN), connection(MASTER, (HEAD, 45000))]
    assert not host.joined(sockets, {HEAD}, {MASTER, SUPERVISOR})


def test_joined_knows_an_address_in_both_spellings() -> None:
    """A head address in IPv6's long form is the address that the kernel shows."""
    sockets = [
        host.Connection(("fd00::2", 41000), ("::", 0), LISTEN, 7),
        host.Connection(("fd00::2", 41000), ("fd00::1", 45000), ESTABLISHED, 8),
    ]
    assert host.joined(sockets, {HEAD, "FD00:0:0::1"}, {MASTER})


def test_the_kernel_table_is_understood() -> None:
    """Addresses are words in the host's byte order, IPv4 in IPv6 is IPv4, short lines are left alone."""
    little = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 0200007F:7338 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1060 1 00
   1: 0000000000000000FFFF00000C6433C6:9C40 0000000000000000FFFF00000B6433C6:AFC8 01 0:0 0:0 0 0 0 42 1
   2: garbage
"""
    text = little if sys.byteorder == "little" else ""
    assert host.parse_connections(text) == [
        host.Connection(("127.0.0.2", 29496), (ANY, 0), LISTEN, 1060),
        host.Connection((WORKER, 40000), (HEAD, 45000), ESTABLISHED, 42),
    ]


def test_a_listener_is_found_with_its_process() -> None:
    """The holder of a port is named by pid and command; a port that was let go has none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (holder,) = host.holders(port)
        assert holder.startswith(f"pid {os.getpid()} (")
    assert host.holders(port) == []


def test_sockets_of_a_process_tree_are_its_own() -> None:
    """A grandchild's connection counts for the container, another process's does not."""
    grandchild = (
        "import socket,sys; s=socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
        "print(flush=True); sys.stdin.read()"
    )
    child = "import subprocess,sys; subprocess.run((sys.executable, '-c', *sys.argv[1:]))"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = (sys.executable, "-c", child, grandchild, str(port))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            found = host.engine_sockets(process.pid)
            assert [item.remote for item in found] == [("127.0.0.1", port)]
            process.communicate()


def test_own_addresses_are_told_by_the_kernel() -> None:
    """Loopback is there with its network, for which the device answers as a whole."""
    loopback = [item for item in host.interfaces() if item.address == "127.0.0.1"]
    assert loopback == [host.Interface("lo", "127.0.0.1", 8)]
    assert host.carries(loopback[0], "127.0.0.3")
    assert not host.carries(loopback[0], "128.0.0.1")
    assert not host.carries(host.Interface("eth0", HEAD, 24), WORKER)
    assert host.carries(host.Interface("eth0", "fd00::1", 64), "FD00::0:1")


def test_a_process_is_known_by_its_start() -> None:
    """A pid alone is not enough: the start time of a process that is gone is None."""
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        assert host.start_ticks(process.pid) is not None
        process.communicate(b"\n")
    assert host.start_ticks(process.pid) is None
