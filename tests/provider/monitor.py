"""A stand-in for the engine's resource monitor: runs a program and takes its resources through a provider.

Knows create, update and same; no delete, no parallelism across stacks. The real engine is in test_engine.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2_grpc, resource_pb2, resource_pb2_grpc

from kimi_infra.cloud import wire
from tests.provider import engine

RUNNER = Path(__file__).with_name("run_program.py")
FEATURES = frozenset({"secrets", "resourceReferences"})


class Answers(Protocol):
    """Whoever takes the part of the provider."""

    def apply(self, urn: str, inputs: wire.Values, old: State | None, *, preview: bool) -> Step:
        """Create or update a resource."""


@dataclass(frozen=True)
class State:
    """A resource in state."""

    inputs: wire.Values
    outputs: wire.Values


@dataclass(frozen=True)
class Step:
    """What became of one registration."""

    verb: str
    state: State


@dataclass
class Registration:
    """One resource as the program asked for it."""

    type: str
    name: str
    parent: str
    dependencies: list[str]
    inputs: wire.Values
    version: str
    verb: str = ""


@dataclass
class Canned:
    """Answers at once, as if everything had been applied."""

    found: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def apply(self, urn: str, inputs: wire.Values, old: State | None, *, preview: bool) -> Step:
        """Return the inputs and what the test says was found."""
        del old, preview
        base = {"inSync": True, "drift": [], "applied": 1, "restartRequired": {}}
        own = self.found.get(urn.rpartition("::")[2], {})
        return Step("create", State(inputs, {**inputs, **base, **own}))


@dataclass
class Real:
    """Answers through the provider's own process."""

    provider: engine.Provider

    def apply(self, urn: str, inputs: wire.Values, old: State | None, *, preview: bool) -> Step:
        """Check, then create, update or leave alone."""
        news, failures = self.provider.check(urn, inputs)
        assert failures == []
        if old is None:
            return Step("create", State(news, self.provider.create(urn, news, preview=preview)))
        if not self.provider.diff(urn, (old.inputs, old.outputs), news):
            return Step("same", State(news, old.outputs))
        done = self.provider.update(urn, (old.inputs, old.outputs), news, preview=preview)
        return Step("update", State(news, done))


class Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """Serves one run of a program."""

    def __init__(self, answers: Answers, state: dict[str, State], *, preview: bool) -> None:
        self._answers, self._state, self._preview = answers, state, preview
        self.seen: list[Registration] = []
        self.outputs: dict[str, wire.Values] = {}

    def SupportsFeature(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Support what the product needs."""
        return resource_pb2.SupportsFeatureResponse(hasSupport=request.id in FEATURES)

    def RegisterResourceOutputs(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Keep a component's outputs, the stack's among them."""
        self.outputs[request.urn.split("::")[2].rpartition("$")[2]] = wire.load(request.outputs)
        return empty_pb2.Empty()

    def RegisterResource(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Take a resource through check, diff, and create or update."""
        above = request.parent.split("::")[2] if request.parent else ""
        nested = f"{above}$" if above and above != "pulumi:pulumi:Stack" else ""
        urn = f"urn:pulumi:test::kimi_infra::{nested}{request.type}::{request.name}"
        inputs = wire.load(request.object)
        seen = Registration(
            request.type, request.name, request.parent, list(request.dependencies), inputs, request.version
        )
        self.seen.append(seen)
        if not request.custom:
            return resource_pb2.RegisterResourceResponse(urn=urn, object=request.object)
        if not request.type.startswith("kimi:"):
            outputs = {name: wire.UNKNOWN if self._preview else value for name, value in inputs.items()}
            return resource_pb2.RegisterResourceResponse(urn=urn, id="x", object=wire.dump(outputs))
        step = self._answers.apply(urn, inputs, self._state.get(urn), preview=self._preview)
        seen.verb = step.verb
        if not self._preview:
            self._state[urn] = step.state
        id_ = "" if self._preview and step.verb == "create" else request.name
        return resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=wire.dump(step.state.outputs))


@dataclass(frozen=True)
class Job:
    """A program and its stack."""

    program: Path
    config: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()


def run(
    job: Job, answers: Answers, state: dict[str, State] | None = None, *, preview: bool = False
) -> Monitor:
    """Run a program to its end."""
    monitor = Monitor(answers, {} if state is None else state, preview=preview)
    server = grpc.server(futures.ThreadPoolExecutor(16))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
    engine_pb2_grpc.add_EngineServicer_to_server(engine.Engine(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    settings = {
        "project": "kimi_infra",
        "stack": "test",
        "monitor": address,
        "engine": address,
        "dry_run": preview,
        "parallel": 4,
    }
    text = json.dumps(
        {
            "program": str(job.program),
            "settings": settings,
            "config": dict(job.config),
            "secret_keys": list(job.secrets),
        }
    )
    line = [sys.executable, str(RUNNER)]
    done = subprocess.run(line, input=text, capture_output=True, text=True, check=False, timeout=120)
    server.stop(None).wait()
    assert done.returncode == 0, done.stderr
    return monitor
