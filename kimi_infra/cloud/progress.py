"""What the operator sees while a run goes on, and what is kept in the engine's log."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from pulumi.runtime.proto import engine_pb2

from kimi_infra.converge.events import Event, Outcome, TaskEnded, TaskStarted
from kimi_infra.converge.redaction import Redactor
from kimi_infra.observe.status import RankReport

_LOG_SECONDS = 5
_PHASE_FIRST = 15.0
"""Seconds of one task after which the engines' own phases are asked for."""
_PHASE_EVERY = 10.0
_streams = itertools.count(1000)
"""The engine merges the messages of one stream, and the first decides whether they are kept."""


class Log:
    """The engine's log for one resource; no message holds a known secret."""

    def __init__(self, engine: Any, urn: str, redactor: Redactor) -> None:
        self._engine, self._urn, self._redactor = engine, urn, redactor
        self._stream = next(_streams)

    async def info(self, text: str) -> None:
        """Keep a message."""
        await self._send(engine_pb2.INFO, text)

    async def warning(self, text: str) -> None:
        """Keep a warning."""
        await self._send(engine_pb2.WARNING, text)

    async def status(self, text: str) -> None:
        """Show a line in the resource's row; the next one takes its place."""
        await self._send(engine_pb2.INFO, text, ephemeral=True)

    async def _send(self, severity: Any, text: str, *, ephemeral: bool = False) -> None:
        stream = self._stream if ephemeral else 0
        message = engine_pb2.LogRequest(
            severity=severity,
            message=self._redactor.text(text),
            urn=self._urn,
            streamId=stream,
            ephemeral=ephemeral,
        )
        # An engine that has gone away is noticed by the server; a lost line must not end a run.
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._engine.Log(message, timeout=_LOG_SECONDS)


class Progress:
    """Follows one run."""

    def __init__(self, log: Log, prefix: str = "") -> None:
        self._log, self._prefix = log, prefix
        self.task_began = 0.0
        self._task = ""

    async def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, TaskStarted):
            self.task_began = asyncio.get_running_loop().time()
            self._task = f"{event.role} : {event.task}" if event.role else event.task
            await self._log.status(f"{self._prefix}{self._task}")
        elif isinstance(event, TaskEnded) and event.outcome is not Outcome.OK:
            await self._log.status(f"{self._prefix}{event.title} [{event.host}: {event.outcome}]")

    @asynccontextmanager
    async def phases(self, ask: Callable[[], Sequence[RankReport]]) -> AsyncIterator[None]:
        """Show the phases of the engines' start while one task takes long."""
        following = asyncio.create_task(self._follow(ask))
        try:
            yield
        finally:
            following.cancel()

    async def _follow(self, ask: Callable[[], Sequence[RankReport]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_PHASE_EVERY)
            if self._task and loop.time() - self.task_began > _PHASE_FIRST:
                for report in await asyncio.to_thread(ask):
                    if line := phase(report, now=time.time()):
                        await self._log.status(line)


def phase(report: RankReport, now: float) -> str | None:
    """Return a rank's phase with elapsed time and budget; None where its supervisor says nothing."""
    answer = report.answer
    if report.trouble or not answer.get("running"):
        return None
    since, budget = answer.get("since"), answer.get("budget")
    limit = f" of {budget:g} s" if isinstance(budget, (int, float)) else ""
    elapsed = f" {max(0.0, now - since):.0f} s{limit}" if isinstance(since, (int, float)) else ""
    detail = f" ({answer['detail']})" if answer.get("detail") else ""
    return f"{report.deployment} rank {report.rank} on {report.host}: {answer.get('phase')}{elapsed}{detail}"
