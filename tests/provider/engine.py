"""A stand-in for Pulumi's engine: starts the provider as the engine does, keeps its log, calls it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2

from kimi_infra.cloud import wire

PROGRAM = Path(__file__).parents[2] / "kimi_infra/cloud/bin/pulumi-resource-kimi"
SITE = "urn:pulumi:test::kimi_infra::kimi:index:Site"


def urn(kind: str, name: str) -> str:
    """Return the URN of a stage in a site."""
    return f"{SITE}$kimi:index:{kind}::{name}"


class InitFailed(Exception):  # noqa: N818 - it is the engine's word
    """The provider kept a half-done resource in state."""

    def __init__(self, detail: Any) -> None:
        self.id: str = detail.id
        self.reasons = list(detail.reasons)
        self.properties = wire.load(detail.properties)
        self.inputs = wire.load(detail.inputs)
        super().__init__("; ".join(self.reasons))


class Engine(engine_pb2_grpc.EngineServicer):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.logged: list[Any] = []
        self.root = ""

    def Log(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Keep a message."""
        self.logged.append(request)
        return empty_pb2.Empty()

    def GetRootResource(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Return the stack."""
        return engine_pb2.GetRootResourceResponse(urn=self.root)

    def SetRootResource(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Remember the stack."""
        self.root = request.urn
        return engine_pb2.SetRootResourceResponse()


class Provider:
    """A provider process and its log."""

    def __init__(self, tree: Path, project: Path, environ: Mapping[str, str]) -> None:
        self.engine = Engine()
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        engine_pb2_grpc.add_EngineServicer_to_server(self.engine, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.process = subprocess.Popen(
            [PROGRAM, "-v=9", "--tree", tree, f"127.0.0.1:{self.port}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=project,
            env={**os.environ, **environ},
            start_new_session=True,
        )
        if self.process.stdout is None:
            raise AssertionError("started with a pipe")
        self._channel = grpc.insecure_channel(f"127.0.0.1:{int(self.process.stdout.readline())}")
        self.stub: Any = provider_pb2_grpc.ResourceProviderStub(self._channel)

    def close(self) -> int:
        """End the provider as the engine does; returns its exit code."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 2)
        code = self.process.wait(15)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._channel.close()
        self._server.stop(None).wait()
        return code

    def check(self, urn_: str, news: Mapping[str, object]) -> tuple[wire.Values, list[tuple[str, str]]]:
        """Return the checked inputs and each failure: property and reason."""
        done = self.stub.Check(provider_pb2.CheckRequest(urn=urn_, news=wire.dump(news)))
        return wire.load(done.inputs), [(one.property, one.reason) for one in done.failures]

    def create(self, urn_: str, inputs: Mapping[str, object], *, preview: bool = False) -> wire.Values:
        """Create a resource and return its outputs."""
        request = provider_pb2.CreateRequest(urn=urn_, properties=wire.dump(inputs), preview=preview)
        return self._outputs(lambda: self.stub.Create(request))

    def update(
        self, urn_: str, old: tuple[wire.Values, wire.Values], news: wire.Values, *, preview: bool = False
    ) -> wire.Values:
        """Update a resource from its old inputs and outputs; returns its outputs."""
        request = provider_pb2.UpdateRequest(
            id="x",
            urn=urn_,
            old_inputs=wire.dump(old[0]),
            olds=wire.dump(old[1]),
            news=wire.dump(news),
            preview=preview,
        )
        return self._outputs(lambda: self.stub.Update(request))

    def diff(self, urn_: str, old: tuple[wire.Values, wire.Values], news: wire.Values) -> list[str]:
        """Return the paths that differ."""
        done = self.stub.Diff(
            provider_pb2.DiffRequest(
                id="x",
                urn=urn_,
                old_inputs=wire.dump(old[0]),
                olds=wire.dump(old[1]),
                news=wire.dump(news),
            )
        )
        assert (done.changes == provider_pb2.DiffResponse.DIFF_SOME) == bool(done.detailedDiff)
        return sorted(done.detailedDiff)

    def read(self, urn_: str, inputs: wire.Values, outputs: wire.Values) -> wire.Values:
        """Refresh a resource and return its outputs."""
        request = provider_pb2.ReadRequest(
            id="x", urn=urn_, inputs=wire.dump(inputs), properties=wire.dump(outputs)
        )
        return self._outputs(lambda: self.stub.Read(request))

    def delete(self, urn_: str, inputs: wire.Values, outputs: wire.Values) -> None:
        """Delete a resource."""
        self.stub.Delete(
            provider_pb2.DeleteRequest(
                id="x", urn=urn_, old_inputs=wire.dump(inputs), properties=wire.dump(outputs)
            )
        )

    @property
    def kept(self) -> str:
        """Every message that stays on the screen."""
        return "\n".join(one.message for one in self.engine.logged if not one.ephemeral)

    @property
    def statuses(self) -> list[str]:
        """Every line that was shown in passing."""
        return [one.message for one in self.engine.logged if one.ephemeral]

    def await_status(self, text: str) -> None:
        """Wait until a passing line holds a text."""
        wait_until(lambda: any(text in line for line in self.statuses), f"status {text!r}")

    @staticmethod
    def _outputs(call: Callable[[], Any]) -> wire.Values:
        try:
            return wire.load(call().properties)
        except grpc.RpcError as error:
            detail = provider_pb2.ErrorResourceInitFailed()
            entries = error.trailing_metadata() or ()
            trailer = {one.key: one.value for one in entries if isinstance(one.value, bytes)}
            packed = status_pb2.Status.FromString(trailer.get("grpc-status-details-bin", b""))
            if packed.details and packed.details[0].Unpack(detail):
                raise InitFailed(detail) from error
            raise


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come about within {seconds} s"
        time.sleep(0.05)
