"""Runs of the site's playbooks for the provider: one at a time on a site, check runs shared by stages."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from kimi_infra.cloud import check, desired, outcome
from kimi_infra.cloud.context import Context
from kimi_infra.cloud.inputs import Inputs
from kimi_infra.cloud.outcome import RunResult
from kimi_infra.cloud.stages import VERIFY, Stage
from kimi_infra.converge import session
from kimi_infra.converge.events import Ended, Event, Status
from kimi_infra.converge.request import Request
from kimi_infra.deploy import site
from kimi_infra.domain.inventory import SecretSource

Listener = Callable[[Event], Awaitable[None]]
"""Is told each event as it happens."""


class Purpose(StrEnum):
    """Why hosts are looked at; each stage looks once for each."""

    REFRESH = "refresh"
    PREVIEW = "preview"


@dataclass(slots=True)
class _Sweep:
    """A finished check run over all stages of a playbook."""

    result: RunResult
    used: set[tuple[str, Purpose]] = field(default_factory=set)


class Runs:
    """All runs of this process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sweeps: dict[str, _Sweep] = {}
        self._sessions: set[session.Session] = set()
        self._cancelled = False

    def cancel(self) -> None:
        """End every run and begin no other."""
        self._cancelled = True
        for each in self._sessions:
            each.cancel()

    async def look(self, stage: Stage, inputs: Inputs, purpose: Purpose, listener: Listener) -> RunResult:
        """Say what an apply would change.

        The stages of one playbook share one check run: a stage of its own would probe every host again.
        """
        if stage is VERIFY:
            # It changes nothing, and in check mode it would look at nothing.
            async with self._locks[inputs.inventory]:
                request = await self._request(inputs, f"playbooks/{stage.playbook}", check=False)
                return await self._run(request, listener)
        key = json.dumps([stage.playbook, inputs.inventory, inputs.hosts, inputs.secrets, inputs.consent])
        use = (stage.role, purpose)
        async with self._locks[inputs.inventory]:
            sweep = self._sweeps.get(key)
            # Looked at twice for one purpose: a new operation of the engine, hosts may have changed.
            if sweep is None or use in sweep.used:
                request = await self._request(inputs, f"playbooks/{stage.playbook}", check=True)
                sweep = self._sweeps[key] = _Sweep(result=await self._run(request, listener))
            sweep.used.add(use)
        return sweep.result.of_role(stage.role)

    async def apply(
        self, stage: Stage, inputs: Inputs, seconds: float | None, listener: Listener
    ) -> RunResult:
        """Bring a stage about.

        Args:
            stage: The stage.
            inputs: Its inputs.
            seconds: Limit, None for none but the playbook's own.
            listener: Told each event.
        """
        return await self._change(stage, inputs, f"playbooks/{stage.playbook}", seconds, listener)

    async def teardown(
        self, stage: Stage, inputs: Inputs, seconds: float | None, listener: Listener
    ) -> RunResult:
        """Take a stage off the hosts; arguments as in :meth:`apply`."""
        return await self._change(stage, inputs, "playbooks/teardown.yml", seconds, listener)

    async def _change(
        self, stage: Stage, inputs: Inputs, playbook: str, seconds: float | None, listener: Listener
    ) -> RunResult:
        async with self._locks[inputs.inventory]:
            self._sweeps.clear()
            request = await self._request(inputs, playbook, check=False, tags=(stage.role,), seconds=seconds)
            return await self._run(request, listener)

    async def _request(
        self,
        inputs: Inputs,
        playbook: str,
        *,
        check: bool,
        tags: tuple[str, ...] = (),
        seconds: float | None = None,
    ) -> Request:
        inventory = self._context.resolve(inputs.inventory)
        found = await asyncio.to_thread(read, self._context, inputs)
        references = desired.references(found.inventory)
        named = [ref.key for ref in references if ref.source is SecretSource.ENV]
        resolve = site.resolver(found.inventory, self._context.store(inputs.secrets, named))
        secrets = [await asyncio.to_thread(resolve, ref) for ref in references]
        return Request(
            root=str(self._context.tree),
            playbook=playbook,
            inventory=str(inventory),
            check=check,
            tags=tags,
            variables={"kimi_consent": inputs.consent},
            hosts=inputs.hosts,
            environ=self._context.environment(inputs.secrets, named),
            secrets=(*secrets, *inputs.secrets.values(), *inputs.hidden),
            wanted=outcome.WANTED,
            seconds=seconds,
        )

    async def _run(self, request: Request, listener: Listener) -> RunResult:
        collector = outcome.Collector()
        if self._cancelled:
            collector.add(Ended(status=Status.CANCELED))
            return collector.result()
        running = await session.Session.start(request)
        self._sessions.add(running)
        if self._cancelled:
            # Cancelled while it was starting, when cancel() did not know it.
            running.cancel()
        try:
            async for event in running.events():
                collector.add(event)
                await listener(event)
        finally:
            # Also when the engine has given up the call: nothing goes on that nobody waits for.
            running.cancel()
            self._sessions.discard(running)
        return collector.result()


def read(context: Context, inputs: Inputs) -> site.Site:
    """Read the inventory that a resource names; raises what :func:`kimi_infra.cloud.check.read` does."""
    return check.read(context.resolve(inputs.inventory), dict(inputs.hosts))
