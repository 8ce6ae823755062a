"""Runs: what a run is given, and that a cancel reaches each."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kimi_infra.cloud import context, inputs, runs, stages, wire
from kimi_infra.converge import session
from kimi_infra.converge.events import Event, Status
from kimi_infra.converge.request import Request
from tests.provider import tree

pytestmark = pytest.mark.provider

ADDRESS = "address-of-a-tray"


@pytest.fixture
def surroundings(tmp_path: Path) -> context.Context:
    """A project with an inventory whose secret the operator exports."""
    tree.write_inventory(tmp_path / "inv", tmp_path / "out")
    folder = tree.write_tree(tmp_path / "tree")
    environ = {**os.environ, "KIMI_API_KEY": "s3cr3t-key"}
    return context.Context(tree=folder, project=tmp_path, environ=environ)


async def listen(_: Event) -> None:
    """Take an event."""


def test_a_cancel_while_a_run_starts_ends_it(
    surroundings: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was not known yet when Cancel came is cancelled too, before it has changed a host."""
    made, start = runs.Runs(surroundings), session.Session.start

    async def cancelled_meanwhile(request: Request) -> session.Session:
        running = await start(request)
        made.cancel()
        return running

    monkeypatch.setattr(session.Session, "start", cancelled_meanwhile)
    given = inputs.Inputs(inventory="inv")
    result = asyncio.run(asyncio.wait_for(made.apply(stages.STAGES[0], given, None, listen), 30))
    assert result.status is Status.CANCELED
    assert not list((surroundings.project / "out").glob("host_base-*"))


def test_every_marked_text_is_hidden_from_events(
    surroundings: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run knows the secrets among the values of hosts, as it does those of `secrets`."""
    asked: list[Request] = []

    async def refused(request: Request) -> session.Session:
        asked.append(request)
        raise ConnectionError

    monkeypatch.setattr(session.Session, "start", refused)
    hosts = {"tray-a": {"ansible_host": wire.Secret(ADDRESS)}}
    given = inputs.Inputs.of({"inventory": "inv", "hosts": hosts})
    with pytest.raises(ConnectionError):
        asyncio.run(runs.Runs(surroundings).apply(stages.SERVE, given, None, listen))
    assert ADDRESS in asked[0].secrets
    assert asked[0].hosts == {"tray-a": {"ansible_host": ADDRESS}}
    assert ADDRESS not in repr(given)
