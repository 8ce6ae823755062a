"""Starting a run in its own process and listening to it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator

from kimi_infra.converge import events
from kimi_infra.converge.request import Request

_LINE_MAX = 64 << 20
"""Bytes of one event; a task over many items carries all their diffs."""


class Session:
    """One run under way."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, request: Request) -> Session:
        """Start a run; it ends with :meth:`cancel`, or when this process does."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "kimi_infra.converge.worker"),
            stdin=PIPE,
            stdout=PIPE,
            # Never shown unredacted; the worker reports its own failures as events.
            stderr=DEVNULL,
            env=dict(request.environ),
            limit=_LINE_MAX,
            # A ^C in the terminal is the caller's to handle.
            start_new_session=True,
        )
        session = cls(process)
        session._stdin.write((request.dump() + "\n").encode())
        await session._stdin.drain()
        return session

    @property
    def _stdin(self) -> asyncio.StreamWriter:
        if self._process.stdin is None:
            raise AssertionError("the process was started with a pipe")
        return self._process.stdin

    def cancel(self) -> None:
        """Ask the run to end: :meth:`events` then ends too, within seconds."""
        self._stdin.close()

    async def events(self) -> AsyncIterator[events.Event]:
        """Yield what happens; :class:`~kimi_infra.converge.events.Ended` comes last, always."""
        if self._process.stdout is None:
            raise AssertionError("the process was started with a pipe")
        last: events.Event | None = None
        async for line in self._process.stdout:
            last = events.load(line)
            yield last
        code = await self._process.wait()
        if not isinstance(last, events.Ended):
            yield events.Ended(status=events.Status.CRASHED, reason=f"the run's process ended with {code}")
