"""Pytest plugin: a ``fast`` or ``compiler`` test reaches nothing beyond this machine.

Python's audit hook sees each connection of the test's own process, whichever library opens it.
A hook cannot be taken away again, so one is laid for the whole run and armed for a test.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

GUARDED = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"})
"""Audit events of https://docs.python.org/3/library/audit_events.html that lead off this machine."""


_BOUND = ("fast", "compiler")
"""Groups that stay on this machine."""


class OffLimitsError(RuntimeError):
    """A fast test tried to leave this machine."""


class Guard:
    """The hook and whether it is armed."""

    armed = False

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        """Refuse an address that is not loopback."""
        if self.armed and event in GUARDED:
            target = args[0] if event == "socket.getaddrinfo" else args[1]
            if not is_local(target):
                raise OffLimitsError(
                    f"{event} to {target!r}: a fast test stays on this machine; "
                    "fake the peer, or put the test in another group"
                )


def is_local(target: object) -> bool:
    """Say whether a socket address or a host name stays on this machine."""
    if target is None or isinstance(target, (bytes, bytearray)):
        return True  # getaddrinfo of the wildcard; an abstract unix socket
    if isinstance(target, str):
        return target in {"", "localhost"} or target.startswith("/") or is_loopback(target)
    return isinstance(target, tuple) and is_local(target[0])


def is_loopback(text: str) -> bool:
    """Say whether a text is a loopback or wildcard address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


GUARD = Guard()


def pytest_sessionstart() -> None:
    """Lay the hook once."""
    sys.addaudithook(GUARD)


@contextmanager
def blocked() -> Iterator[None]:
    """Refuse connections that leave this machine while the context is open."""
    before, GUARD.armed = GUARD.armed, True
    try:
        yield
    finally:
        GUARD.armed = before


@pytest.fixture(autouse=True)
def sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """Block sockets for each fast test."""
    if not any(request.node.get_closest_marker(group) for group in _BOUND):
        yield
        return
    with blocked():
        yield
