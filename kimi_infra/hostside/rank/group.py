"""The thin group rule: each worker's supervisor holds one TCP connection to the head's.

JSON lines. Worker: ``{"hello": {deployment, rank, plan, version}}``, later ``{"leaving": reason}``.
Head: ``{"refused": reason}`` or ``{"start": 1, "addresses": [its own]}``. Both: ``{"ended": reason}``.
An unknown message or key is left alone and a missing list is an empty one: one version may say more.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import selectors
import socket
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from . import config, host, loop

VERSION = 1
"""Of this protocol; ranks of different versions refuse each other."""
_HELLO_SECONDS = 5.0
_RETRY_SECONDS = 0.25
_LINE_LIMIT = 4096
_MOST_ADDRESSES = 64
"""Of a head in its message; so many fit in a line."""
_SERVING_TIMEOUT_MS = 120_000
"""TCP_USER_TIMEOUT of a group that serves: an idle engine outlives a cut of the network that ends a start."""
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    # Milliseconds; as long as the keepalive, for data that nobody acknowledges.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


class Listener(Protocol):
    """Who is told what happens in the group."""

    def group_changed(self) -> None:
        """Ranks came or went before the start, or an attempt to connect failed."""

    def group_started(self) -> None:
        """All ranks are connected: start the engine."""

    def group_leaving(self, reason: str) -> None:
        """A rank was asked to stop and waits for the others to finish."""

    def group_lost(self, reason: str) -> None:
        """The group is over."""


def clean(text: object) -> str:
    """A peer's text for our own log: one printable line, bounded."""
    return "".join(char if char.isprintable() else "?" for char in str(text))[:500]


class Wire:
    """One connection that carries JSON objects, one a line."""

    def __init__(
        self,
        events: loop.Loop,
        link: socket.socket,
        received: Callable[[dict[str, Any]], None],
        closed: Callable[[str], None],
    ) -> None:
        self._loop, self._socket = events, link
        self._received, self._closed = received, closed
        self._buffer = b""
        self.open = True
        for option in _KEEPALIVE:
            link.setsockopt(*option)
        link.settimeout(0)
        events.watch(link, self._read)

    def send(self, message: dict[str, Any]) -> None:
        """Send, or lose the connection: a peer that lets a few hundred bytes wait is gone."""
        if not self.open:
            return
        line = json.dumps(message).encode() + b"\n"
        try:
            complete = self._socket.send(line) == len(line)
        except OSError as error:
            self._lose(os.strerror(error.errno or 0))
            return
        if not complete:
            self._lose("it takes no more data")

    def bear(self, milliseconds: int) -> None:
        """Bear a peer that acknowledges nothing, keepalive probes included, for so long (tcp(7))."""
        if self.open:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def close(self) -> None:
        """Close without telling anybody."""
        if self.open:
            self.open = False
            self._loop.forget(self._socket)
            self._socket.close()

    def _lose(self, reason: str) -> None:
        self.close()
        self._closed(reason)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_LINE_LIMIT)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(os.strerror(error.errno or 0))
            return
        if not data:
            self._lose("closed by the other side")
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if self.open:
                self._parse(line)
        if self.open and len(self._buffer) > _LINE_LIMIT:
            self._lose("it sent a line without an end")

    def _parse(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self._received(message)
        else:
            self._lose("it does not speak this protocol")


def hello(settings: config.Config) -> dict[str, Any]:
    """What a worker says about itself."""
    return {
        "deployment": settings.deployment,
        "rank": settings.rank,
        "plan": settings.plan,
        "version": VERSION,
    }


def refusal(greeting: Any, settings: config.Config, taken: Collection[int]) -> str | None:
    """Why the head does not admit this worker; None when it does."""
    said = greeting if isinstance(greeting, dict) else {}
    for key, wanted in hello(settings).items():
        if key != "rank" and said.get(key) != wanted:
            return f"its {key} is {clean(said.get(key))}, the head's is {wanted}"
    rank = said.get("rank")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 < rank < settings.ranks:
        return f"rank {clean(rank)} is not a worker of {settings.ranks} ranks"
    return f"rank {rank} is already connected" if rank in taken else None


def start_message(settings: config.Config, here: Iterable[host.Interface]) -> dict[str, Any]:
    """What the head says when all are there; its engine may connect from any of these addresses."""
    found = [
        item.address
        for item in here
        if not (parsed := ipaddress.ip_address(item.address)).is_loopback and not parsed.is_link_local
    ]
    return {"start": 1, "addresses": [settings.head_address, *found][:_MOST_ADDRESSES]}


def head_addresses(
    message: dict[str, Any], settings: config.Config, here: Iterable[host.Interface]
) -> frozenset[str]:
    """From where the head's engine may connect, by its word, in normal spelling.

    Without this host's own: two hosts have the same address on docker's bridge, and who connects
    from there is here.
    """
    listed = message.get("addresses")
    found = {host.normal(settings.head_address)}
    for text in listed if isinstance(listed, list) else ():
        with contextlib.suppress(ValueError):
            found.add(host.normal(str(text)))
    own = {host.normal(item.address) for item in here} - {host.normal(settings.head_address)}
    return frozenset(found - own)


class Head:
    """Rank 0's side: admits each worker once and starts when all are there."""

    def __init__(self, events: loop.Loop, settings: config.Config, listener: Listener) -> None:
        self._loop, self._settings, self._listener = events, settings, listener
        self._members: dict[int, Wire] = {}
        self._server: socket.socket | None = None
        self._started = False
        self._over = False

    @property
    def joined(self) -> list[int]:
        """Ranks that are connected."""
        return sorted(self._members)

    @property
    def trouble(self) -> str:
        """What keeps the group from starting."""
        missing = sorted({*range(1, self._settings.ranks)} - {*self._members})
        return f"not connected: rank {', '.join(map(str, missing))}" if missing else ""

    def open(self) -> None:
        """Listen; OSError when the port cannot be had."""
        if self._settings.ranks == 1:
            self._start()
            return
        family = socket.AF_INET6 if ":" in self._settings.own_address else socket.AF_INET
        self._server = socket.create_server(
            (self._settings.own_address, self._settings.supervisor_port), family=family
        )
        self._server.settimeout(0)
        self._loop.watch(self._server, self._accept)

    def tell(self, kind: str, reason: str) -> None:
        """Say something to every worker."""
        for wire in tuple(self._members.values()):
            wire.send({kind: reason})

    def serving(self) -> None:
        """The engine serves: a short cut of the network is to be borne."""
        for wire in self._members.values():
            wire.bear(_SERVING_TIMEOUT_MS)

    def leave(self) -> None:
        """Admit nobody from now on; members stay."""
        self._over = True

    def close(self) -> None:
        """Let all go."""
        self._over = True
        if self._server is not None:
            self._loop.forget(self._server)
            self._server.close()
        for wire in self._members.values():
            wire.close()

    def _accept(self) -> None:
        assert self._server is not None  # noqa: S101 - for the type only; it is the source of this event
        try:
            link, _ = self._server.accept()
        except OSError:
            return  # gone again before it was taken
        _Candidate(self._loop, link, self._judge)

    def _judge(self, candidate: _Candidate, greeting: Any) -> None:
        # A member of an engine that is under way, or of none, would start or wait for nothing.
        over = "the head is ending" if self._over else "the group has started" if self._started else None
        reason = refusal(greeting, self._settings, self._members) or over
        if reason is not None:
            candidate.wire.send({"refused": reason})
            candidate.wire.close()
            return
        rank = int(greeting["rank"])
        self._members[rank] = candidate.wire
        candidate.admit(lambda message: self._said(rank, message), lambda why: self._gone(rank, why))
        self._listener.group_changed()
        if len(self._members) == self._settings.ranks - 1:
            self._start()

    def _start(self) -> None:
        self._started = True
        message = start_message(self._settings, host.interfaces())
        for wire in tuple(self._members.values()):
            wire.send(message)
        if not self._over:
            self._listener.group_started()

    def _said(self, rank: int, message: dict[str, Any]) -> None:
        if not self._started:
            if "leaving" in message or "ended" in message:
                # It may come again; the others wait on.
                self._members.pop(rank).close()
                self._listener.group_changed()
        elif "leaving" in message:
            self._listener.group_leaving(f"rank {rank} is leaving: {clean(message['leaving'])}")
        elif "ended" in message:
            self._listener.group_lost(f"rank {rank} ended: {clean(message['ended'])}")

    def _gone(self, rank: int, why: str) -> None:
        del self._members[rank]
        if self._started:
            self._listener.group_lost(f"connection to rank {rank} lost: {why}")
        else:
            self._listener.group_changed()


class _Candidate:
    """A connection that has not been admitted; it has a few seconds to say hello."""

    def __init__(
        self, events: loop.Loop, link: socket.socket, judge: Callable[[_Candidate, Any], None]
    ) -> None:
        self._judge = judge
        self._patience = events.after(_HELLO_SECONDS, self._impatient)
        self._receive: Callable[[dict[str, Any]], None] = self._greeted
        self._close: Callable[[str], None] = lambda _why: self._patience.cancel()
        self.wire = Wire(events, link, self._received, self._closed)

    def admit(self, received: Callable[[dict[str, Any]], None], closed: Callable[[str], None]) -> None:
        """From now on the connection is a member's."""
        self._receive, self._close = received, closed

    def _impatient(self) -> None:
        self.wire.close()

    def _received(self, message: dict[str, Any]) -> None:
        self._receive(message)

    def _closed(self, why: str) -> None:
        self._close(why)

    def _greeted(self, message: dict[str, Any]) -> None:
        self._patience.cancel()
        self._judge(self, message.get("hello"))


class Worker:
    """Any other rank's side: connects until it is admitted, then waits for the start."""

    def __init__(self, events: loop.Loop, settings: config.Config, listener: Listener) -> None:
        self._loop, self._settings, self._listener = events, settings, listener
        self._wire: Wire | None = None
        self._started = False
        self._over = False
        self.trouble = ""
        """Why the last attempt to connect failed."""
        self.head_addresses: frozenset[str] = frozenset()
        """From where the head's engine may connect; empty before the start."""

    @property
    def joined(self) -> list[int]:
        """The head, while connected to it."""
        return [0] if self._wire is not None and self._wire.open else []

    def open(self) -> None:
        """Begin to connect."""
        if self._over:
            return
        settings = self._settings
        link = socket.socket(socket.AF_INET6 if ":" in settings.head_address else socket.AF_INET)
        link.settimeout(0)
        try:
            # From the engine's own address, which is also the one that a firewall knows.
            link.bind((settings.own_address, 0))
            code = link.connect_ex((settings.head_address, settings.supervisor_port))
        except OSError as error:
            code = error.errno or errno.EIO
        if code not in (0, errno.EINPROGRESS):
            self._retry(link, os.strerror(code))
            return
        patience = self._loop.after(_HELLO_SECONDS, lambda: self._retry(link, "no answer to the connection"))

        def connected() -> None:
            patience.cancel()
            self._loop.forget(link)
            failure = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failure:
                self._retry(link, os.strerror(failure))
            else:
                self._greet(link)

        self._loop.watch(link, connected, selectors.EVENT_WRITE)

    def tell(self, kind: str, reason: str) -> None:
        """Say something to the head."""
        if self._wire is not None:
            self._wire.send({kind: reason})

    def serving(self) -> None:
        """The engine serves: a short cut of the network is to be borne."""
        if self._wire is not None:
            self._wire.bear(_SERVING_TIMEOUT_MS)

    def leave(self) -> None:
        """See :meth:`Head.leave`; nobody comes to a worker."""

    def close(self) -> None:
        """Let go."""
        self._over = True
        if self._wire is not None:
            self._wire.close()

    def _greet(self, link: socket.socket) -> None:
        if self._over:
            link.close()
            return
        self._wire = Wire(self._loop, link, self._said, self._gone)
        self._wire.send({"hello": hello(self._settings)})
        self._listener.group_changed()

    def _retry(self, link: socket.socket | None, why: str) -> None:
        if link is not None:
            self._loop.forget(link)
            link.close()
        self.trouble = why
        self._listener.group_changed()
        self._loop.after(_RETRY_SECONDS, self.open)

    def _said(self, message: dict[str, Any]) -> None:
        if "refused" in message and not self._started:
            self._again(f"refused by the head: {clean(message['refused'])}")
        elif "ended" in message and not self._started:
            self._again(f"rank 0 ended: {clean(message['ended'])}")
        elif "start" in message and not self._started:
            self._started = True
            self.head_addresses = head_addresses(message, self._settings, host.interfaces())
            self._listener.group_started()
        elif "ended" in message:
            self._listener.group_lost(f"rank 0 ended: {clean(message['ended'])}")

    def _again(self, why: str) -> None:
        assert self._wire is not None  # noqa: S101 - for the type only; it is the source of this event
        self._wire.close()
        self._retry(None, why)

    def _gone(self, why: str) -> None:
        if self._started:
            self._listener.group_lost(f"connection to rank 0 lost: {why}")
        else:
            self._retry(None, f"connection to rank 0 lost: {why}")
