"""Both sides of the group's connection, one event at a time, on loopback sockets of this process."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kimi_infra.hostside.rank import group, loop
from tests.stubs import group as stubs

pytestmark = pytest.mark.fast

HEAD, WORKER = "127.0.0.2", "127.0.0.3"


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.started = 0
        self.lost: list[str] = []

    def group_changed(self) -> None:
        """See :class:`group.Listener`."""

    def group_started(self) -> None:
        """See :class:`group.Listener`."""
        self.started += 1

    def group_leaving(self, reason: str) -> None:
        """See :class:`group.Listener`."""
        self.lost.append(reason)

    def group_lost(self, reason: str) -> None:
        """See :class:`group.Listener`."""
        self.lost.append(reason)


class Side:
    """One side under test, its loop, and what it told its listener."""

    def __init__(self, make: type[group.Head | group.Worker], ranks: int) -> None:
        rank, own = (0, HEAD) if make is group.Head else (1, WORKER)
        self.settings = stubs.settings(
            rank=rank, ranks=ranks, own_address=own, head_address=HEAD, supervisor_port=stubs.free_port()
        )
        self.events, self.heard = loop.Loop(), Heard()
        self.group = make(self.events, self.settings, self.heard)

    def until(self, happened: Callable[[], bool]) -> None:
        """Dispatch until it happened."""
        seen: list[bool] = []
        overdue: list[bool] = []

        def look() -> bool:
            if happened():
                seen.append(True)
            return not seen

        limit = self.events.after(stubs.WAIT, lambda: overdue.append(True))
        self.events.every(0.01, look)
        self.events.run(lambda: bool(seen or overdue))
        limit.cancel()
        assert seen, f"did not happen within {stubs.WAIT} s"

    def call(self, said: dict[str, Any]) -> socket.socket:
        """Connect to this head and say something."""
        link = socket.create_connection((HEAD, self.settings.supervisor_port))
        link.sendall(json.dumps(said).encode() + b"\n")
        return link

    def answer(self, link: socket.socket) -> dict[str, Any]:
        """Dispatch until a line came, and return it."""
        link.settimeout(0)
        got = bytearray()

        def arrived() -> bool:
            try:
                got.extend(link.recv(4096))
            except BlockingIOError:
                return False
            return got.endswith(b"\n")

        self.until(arrived)
        found: dict[str, Any] = json.loads(got)
        return found

    def hello(self, rank: int) -> dict[str, Any]:
        """Return a worker's greeting."""
        return {"hello": {**group.hello(self.settings), "rank": rank}}


@pytest.fixture
def head() -> Iterator[Side]:
    """A head of three ranks that listens."""
    side = Side(group.Head, 3)
    side.group.open()
    yield side
    side.group.close()


def test_nobody_is_admitted_to_a_group_that_started_or_ends(head: Side) -> None:
    """A rank that comes late would wait beside an engine that cannot take it."""
    with head.call(head.hello(1)) as first, head.call(head.hello(2)) as second:
        assert "start" in head.answer(first)
        assert "start" in head.answer(second)
        second.close()
        head.until(lambda: head.group.joined == [1])
        with head.call(head.hello(2)) as late:
            assert head.answer(late) == {"refused": "the group has started"}
        head.group.leave()
        with head.call(head.hello(2)) as later:
            assert head.answer(later) == {"refused": "the head is ending"}
    assert head.heard.started == 1


def test_a_head_that_ends_before_the_start_admits_nobody(head: Side) -> None:
    """The last rank's hello does not start a group whose head was asked to stop."""
    with head.call(head.hello(1)):
        head.until(lambda: head.group.joined == [1])
        head.group.leave()
        with head.call(head.hello(2)) as late:
            assert head.answer(late) == {"refused": "the head is ending"}
    assert head.heard.started == 0


@pytest.mark.parametrize("word", ["ended", "leaving"])
def test_a_worker_that_ends_before_the_start_leaves_alone(head: Side, word: str) -> None:
    """The head waits on and admits the rank when it comes back."""
    with head.call(head.hello(1)) as first:
        head.until(lambda: head.group.joined == [1])
        first.sendall(json.dumps({word: "stopped by SIGTERM"}).encode() + b"\n")
        head.until(lambda: head.group.joined == [])
    assert head.heard.lost == []
    with head.call(head.hello(2)) as second, head.call(head.hello(1)):
        assert "start" in head.answer(second)
    assert head.heard.started == 1


def test_a_head_that_ends_before_the_start_is_waited_for() -> None:
    """A worker connects again instead of using up one of its unit's starts."""
    side = Side(group.Worker, 2)
    with socket.create_server((HEAD, side.settings.supervisor_port)) as server:
        server.settimeout(0)
        links: list[socket.socket] = []

        def came() -> bool:
            try:
                links.append(server.accept()[0])
            except BlockingIOError:
                return False
            return True

        side.group.open()
        side.until(came)
        links[0].sendall(b'{"ended": "stopped by SIGTERM"}\n')
        side.until(came)
        links[1].sendall(b'{"start": 1, "addresses": ["192.0.2.11"]}\n')
        side.until(lambda: side.heard.started == 1)
        for link in links:
            link.close()
    assert isinstance(side.group, group.Worker)
    assert side.group.head_addresses == {HEAD, "192.0.2.11"}
    side.group.close()
    assert side.heard.lost == []


def test_a_group_that_serves_bears_a_longer_cut(head: Side) -> None:
    """A peer that acknowledges nothing is given up after 25 s while the group forms, 120 s once it serves."""

    def patience() -> int:
        wire = head.group._members[1]  # type: ignore[union-attr]
        return wire._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    with head.call(head.hello(1)):
        head.until(lambda: head.group.joined == [1])
        assert patience() == 25_000
        head.group.serving()
        assert patience() == 120_000
