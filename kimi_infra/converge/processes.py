"""Which processes a run has started, and their end (proc(5), prctl(2))."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h."""


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own below this process.

    Ansible's forks and ssh's shared connections leave their parent's session and would outlive a run.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Return the direct children of a process."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:  # ended meanwhile
        return found
    return found


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    found: list[int] = []
    ahead = children(pid)
    while ahead:
        found.append(ahead.pop())
        ahead += children(found[-1])
    return found


def stop(pid: int) -> None:
    """Ask a process to end; one that has ended is fine."""
    _signal(pid, signal.SIGTERM)


def kill_descendants() -> None:
    """End everything below this process, also what comes up meanwhile."""
    while left := [pid for pid in descendants(os.getpid()) if not _reaped(pid)]:
        for pid in left:
            _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _reaped(pid: int) -> bool:
    """Take the exit status of an ended child; whether that was one."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
