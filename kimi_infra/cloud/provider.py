"""The provider ``kimi``: the engine's gRPC contract, one method a call.

Source of the contract: pulumi, proto/pulumi/provider.proto and pkg/resource/plugin/provider_plugin.go.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

import kimi_infra
from kimi_infra.cloud import check, desired, difference, outputs, propertypath, runs, stages, wire
from kimi_infra.cloud.claims import Claims
from kimi_infra.cloud.context import Context
from kimi_infra.cloud.inputs import Inputs, secret_texts
from kimi_infra.cloud.outcome import RunResult
from kimi_infra.cloud.progress import Log, Progress
from kimi_infra.cloud.stages import SERVE, VERIFY, Stage
from kimi_infra.converge.redaction import Redactor
from kimi_infra.deploy import site
from kimi_infra.errors import KimiInfraError
from kimi_infra.observe import status

_DETAILS = "grpc-status-details-bin"
"""Trailer by which gRPC carries structured errors."""
_UNKNOWN_CODE = 2


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One process per engine operation."""

    def __init__(self, engine: Any, context: Context) -> None:
        self._engine, self._context = engine, context
        self._runs, self._claims = runs.Runs(context), Claims()

    def stop(self) -> None:
        """End all work."""
        self._runs.cancel()

    async def Handshake(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Agree on the protocol: secrets stay marked."""
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=True, accept_resources=False, accept_outputs=False
        )

    async def GetPluginInfo(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Say which version this is."""
        return plugin_pb2.PluginInfo(version=kimi_infra.__version__)

    async def GetSchema(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Name the types; the program-side classes are written by hand."""
        resources = {stage.type: {"description": f"Role {stage.role}."} for stage in stages.STAGES}
        schema = {"name": stages.PACKAGE, "version": kimi_infra.__version__, "resources": resources}
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

    async def CheckConfig(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Take no configuration of the provider's own."""
        return provider_pb2.CheckResponse(inputs=request.news)

    async def DiffConfig(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """See no difference: there is nothing to configure."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    async def Configure(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Say that previews go through to the hosts."""
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=False, acceptOutputs=False
        )

    async def Cancel(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """End all work: each call under way answers that it was cancelled."""
        self.stop()
        return empty_pb2.Empty()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse what cannot be applied; compute what the stage depends on."""
        stage = await self._stage(request.urn, context)
        checked = await asyncio.to_thread(check.check, stage, wire.load(request.news), self._context)
        targets: Any = wire.reveal(checked.inputs.get("targets"))
        if isinstance(targets, dict):
            self._claims.asked(request.urn, targets.values())
        failures = [
            provider_pb2.CheckFailure(property=one.property, reason=one.reason) for one in checked.failures
        ]
        return provider_pb2.CheckResponse(inputs=wire.dump(checked.inputs), failures=failures)

    async def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Compare property by property."""
        stage = await self._stage(request.urn, context)
        found = difference.decide(
            stage, wire.load(request.old_inputs), wire.load(request.olds), wire.load(request.news)
        )
        detailed = {
            path: provider_pb2.PropertyDiff(kind=_kind(kind), inputDiff=side is found.inputs)
            for side in (found.inputs, found.outputs)
            for path, kind in side.items()
        }
        some, none = provider_pb2.DiffResponse.DIFF_SOME, provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(
            changes=none if found.empty else some,
            diffs=sorted({propertypath.root(path) for path in detailed}),
            detailedDiff=detailed,
            hasDetailedDiff=True,
        )

    async def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Bring a stage about for the first time."""
        values = wire.load(request.properties)
        call = await self._call(request.urn, context, values)
        if request.preview:
            async with call:
                done = await call.preview(None, values)
            return provider_pb2.CreateResponse(id="", properties=wire.dump(done))
        call.id = stages.name_of_urn(request.urn)
        self._claims.created(request.urn)
        async with call:
            done = await call.apply(values, applied=1, seconds=request.timeout or None)
        return provider_pb2.CreateResponse(id=call.id, properties=wire.dump(done))

    async def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Bring a stage about again."""
        old, news = wire.load(request.olds), wire.load(request.news)
        old_inputs = wire.load(request.old_inputs)
        call = await self._call(request.urn, context, old_inputs, news)
        call.id = request.id
        found = difference.decide(call.stage, old_inputs, old, news)
        if found.state_only and not found.empty:
            kept = {name: old[name] for name in outputs.FOUND if name in old}
            return provider_pb2.UpdateResponse(properties=wire.dump({**news, **kept}))
        applied = old.get("applied")
        count = applied + 1 if isinstance(applied, int) else 1
        async with call:
            if request.preview:
                done = await call.preview(old_inputs, news)
            else:
                done = await call.apply(news, applied=count, seconds=request.timeout or None)
        return provider_pb2.UpdateResponse(properties=wire.dump(done))

    async def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Look at the hosts: what an apply would change is drift."""
        values = wire.load(request.inputs)
        call = await self._call(request.urn, context, values)
        if not values:
            await call.refuse("cannot be imported; pulumi up takes over hosts as they are")
        async with call:
            done = await call.refresh(values, wire.load(request.properties))
        return provider_pb2.ReadResponse(id=request.id, properties=wire.dump(done), inputs=request.inputs)

    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Leave the hosts as they are, or take off what was asked to be taken off."""
        values = wire.load(request.old_inputs) or wire.load(request.properties)
        call = await self._call(request.urn, context, values)
        async with call:
            await call.delete(values, seconds=request.timeout or None)
        self._claims.deleted(request.urn)
        return empty_pb2.Empty()

    async def _call(self, urn: str, context: Any, *values: wire.Values) -> Call:
        return Call(self, urn, await self._stage(urn, context), context, values)

    async def _stage(self, urn: str, context: Any) -> Stage:
        try:
            return stages.of_urn(urn)
        except KeyError as error:
            types = ", ".join(stages.BY_TYPE)
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"the provider has no type {error}; it has {types}"
            )
            raise


class Call:
    """One call that concerns hosts; as a context, it refuses for what kimi_infra raises on purpose.

    Nothing that it says holds a secret of ``values``, the properties that the engine sent.
    """

    def __init__(
        self, provider: Provider, urn: str, stage: Stage, context: Any, values: Sequence[wire.Values]
    ) -> None:
        self.stage = stage
        self.id = ""
        self._urn, self._claims = urn, provider._claims  # noqa: SLF001 - one unit
        self._runs, self._surroundings = provider._runs, provider._context  # noqa: SLF001 - one unit
        self._redactor = Redactor(text for each in values for text in secret_texts(each))
        self._log = Log(provider._engine, urn, self._redactor)  # noqa: SLF001
        self._context = context

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, KimiInfraError):
            await self.refuse(str(error))

    async def refuse(self, reason: str) -> None:
        """End the call; nothing has changed, neither on hosts nor in state."""
        await self._context.abort(grpc.StatusCode.UNKNOWN, self._redactor.text(reason))

    async def preview(
        self, old_inputs: Mapping[str, object] | None, values: Mapping[str, object]
    ) -> dict[str, object]:
        """Show what an apply would change."""
        if self.stage is SERVE:
            for line in difference.consequences(old_inputs, values):
                await self._log.info(line)
        if wire.has_unknown({name: values[name] for name in values if name != "after"}):
            await self._log.info("hosts are not asked: some inputs are not known before other resources are")
            return outputs.previewed(self.stage, values, None)
        inputs = Inputs.of({name: values[name] for name in values if name != "after"})
        found = await self._site(inputs)
        if self.stage is VERIFY:
            return outputs.previewed(self.stage, values, found)
        result = await self._look(inputs, runs.Purpose.PREVIEW)
        if result.unreachable:
            await self.refuse("\n".join(result.reasons()))
        if result.changed:
            await self._log.info(f"would change:\n{result.described()}")
        if not result.successful:
            # On hosts that lack everything, a task may need what an earlier one would have brought.
            await self._log.warning("the check run ended early: " + "\n".join(result.reasons()))
        return outputs.previewed(self.stage, values, found)

    async def apply(
        self, values: Mapping[str, object], *, applied: int, seconds: float | None
    ) -> dict[str, object]:
        """Bring the stage about."""
        inputs = Inputs.of(values)
        found = await self._site(inputs)
        progress = Progress(self._log)
        async with progress.phases(lambda: status.read(found) if self.stage is SERVE else ()):
            result = await self._runs.apply(self.stage, inputs, seconds, progress)
        if result.changed:
            await self._log.info(f"changed:\n{result.described()}")
        done = outputs.after(self.stage, values, result, found, applied)
        for deployment, reason in result.restarts.items():
            await self._log.warning(f"{deployment}: restart required: {reason}")
        if not result.successful:
            await self._fail(values, done, result)
        return done

    async def refresh(self, values: Mapping[str, object], old: Mapping[str, object]) -> dict[str, object]:
        """Look at the hosts and tell what differs."""
        inputs = Inputs.of(values)
        found = await self._site(inputs)
        planned = wire.reveal(values.get("plan"))
        if desired.targets(found) != inputs.targets or desired.plan(self.stage, found) != planned:
            await self._log.info(
                "the inventory has changed since the last pulumi up; hosts are compared with it"
            )
        result = await self._look(inputs, runs.Purpose.REFRESH)
        if result.unreachable or result.status not in {"successful", "failed"}:
            # Never "gone", never "drifted": nothing is known.
            await self.refuse("\n".join(result.reasons()))
        done = outputs.refreshed(self.stage, values, old, result, found)
        if result.changed:
            await self._log.warning(f"hosts differ from the plan:\n{result.described()}")
        if not result.successful:
            await self._log.warning("\n".join(result.reasons()))
        return done

    async def delete(self, values: Mapping[str, object], *, seconds: float | None) -> None:
        """Retain, or tear down."""
        inputs = Inputs.of({name: values[name] for name in values if name != "after"})
        if inputs.on_delete != "teardown":
            if self.stage is SERVE:
                hosts = ", ".join(sorted(inputs.targets))
                await self._log.warning(
                    f"{hosts}: kept as they are, engines go on serving (onDelete: retain); to take them off, "
                    f"run ansible-playbook -i {inputs.inventory} playbooks/teardown.yml"
                )
            return
        if not self.stage.teardown:
            return
        if holders := self._claims.holders(self._urn, inputs.targets.values()):
            # Renamed, moved or replaced: who serves these hosts now would lose its engines.
            hosts = ", ".join(sorted(inputs.targets))
            await self._log.warning(
                f"{hosts}: kept as they are, for {', '.join(holders)} in this stack; to take off a host that "
                f"is no longer served, run ansible-playbook -i {inputs.inventory} playbooks/teardown.yml "
                "--limit HOST"
            )
            return
        found = await self._site(inputs)
        now = desired.targets(found)
        gone = [
            f"{name} ({where})" for name, where in sorted(inputs.targets.items()) if now.get(name) != where
        ]
        if gone:
            await self.refuse(
                f"{', '.join(gone)}: applied, but no longer so in hosts.yml; put it back for the teardown, "
                "or set onDelete: retain and run pulumi up before"
            )
        result = await self._runs.teardown(self.stage, inputs, seconds, Progress(self._log))
        if not result.successful:
            await self.refuse("\n".join(result.reasons()))
        if result.changed:
            await self._log.info(f"taken off:\n{result.described()}")

    async def _site(self, inputs: Inputs) -> site.Site:
        return await asyncio.to_thread(runs.read, self._surroundings, inputs)

    async def _look(self, inputs: Inputs, purpose: runs.Purpose) -> RunResult:
        return await self._runs.look(self.stage, inputs, purpose, Progress(self._log, "check: "))

    async def _fail(
        self, values: Mapping[str, object], done: Mapping[str, object], result: RunResult
    ) -> None:
        """End a failed apply: what was done stays in state, and the next ``pulumi up`` goes on from there."""
        if result.unreachable and not result.changed:
            # Nothing was done anywhere, so there is nothing to remember.
            await self.refuse("\n".join(result.reasons()))
        reasons = [self._redactor.text(reason) for reason in result.reasons()]
        detail = provider_pb2.ErrorResourceInitFailed(
            id=self.id, properties=wire.dump(done), inputs=wire.dump(values), reasons=reasons
        )
        failure = status_pb2.Status(code=_UNKNOWN_CODE, message="; ".join(reasons))
        failure.details.add().Pack(detail)
        trailer = ((_DETAILS, failure.SerializeToString()),)
        await self._context.abort(grpc.StatusCode.UNKNOWN, failure.message, trailer)


def _kind(kind: difference.Kind) -> Any:
    return kind.value
