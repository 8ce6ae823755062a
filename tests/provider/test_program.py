"""The program side: what a program registers, in which order, and what of it is secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kimi_infra.cloud import sources, stages, wire
from tests.provider import engine, monitor, tree

pytestmark = pytest.mark.provider

KEY = "s3cr3t-key-of-the-program"
WORDS = [stage.word for stage in stages.STAGES]
ENTRY = sources.root() / "__main__.py"
FOUND: dict[str, dict[str, Any]] = {
    "s-image": {"inSync": False, "drift": [{"host": "tray-a", "task": "t"}]},
    "s-serve": {"endpoints": {"kimi": "http://192.0.2.1:8000"}},
}
PROGRAM = """
import pulumi
from kimi_infra.cloud import Site, SiteArgs

class Machine(pulumi.CustomResource):
    def __init__(self):
        super().__init__("metal:index:Machine", "m", {"address": "127.0.0.9"})

address = pulumi.get(Machine(), "address")
hosts = {"tray-a": {"ansible_host": address}}
site = Site("s", SiteArgs(inventory="inv", hosts=hosts, secrets={"KIMI_API_KEY": "%s"}))
for name, value in site.outputs.items():
    pulumi.export(name, value)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> monitor.Monitor:
    """Somebody else's program, with hosts of another resource."""
    program = tmp_path_factory.mktemp("program") / "other.py"
    program.write_text(PROGRAM % KEY)
    return monitor.run(monitor.Job(program), monitor.Canned(FOUND))


def kimi(ran: monitor.Monitor) -> list[monitor.Registration]:
    """What is ours of it."""
    return [one for one in ran.seen if one.type.startswith("kimi:")]


def test_names_are_what_state_holds_for_ever(ran: monitor.Monitor) -> None:
    """Type tokens and names are those of docs/decisions/0020-pulumi-names.md."""
    assert [(one.type, one.name) for one in kimi(ran)] == [
        ("kimi:index:Site", "s"),
        ("kimi:index:HostBase", "s-hosts"),
        ("kimi:index:ContainerRuntime", "s-runtime"),
        ("kimi:index:ServingImage", "s-image"),
        ("kimi:index:ModelStore", "s-model"),
        ("kimi:index:VllmServe", "s-serve"),
        ("kimi:index:NodeVerify", "s-verify"),
    ]


def test_stages_are_children_in_order(ran: monitor.Monitor) -> None:
    """Each stage hangs under the site, waits for the one before it and for the other resource."""
    for before, one in zip([None, *WORDS], kimi(ran)[1:], strict=False):
        assert one.parent == "urn:pulumi:test::kimi_infra::kimi:index:Site::s"
        needed = {urn.rpartition("::")[2] for urn in one.dependencies}
        assert {"m"} | ({f"s-{before}"} if before else set()) <= needed
        assert one.version


def test_secrets_stay_secret(ran: monitor.Monitor) -> None:
    """Plain text given as a secret is marked, and stands nowhere else."""
    for one in kimi(ran)[1:]:
        assert wire.reveal(one.inputs["secrets"]) == {"KIMI_API_KEY": KEY}
        assert KEY not in repr(one.inputs)
        assert one.inputs["hosts"] == {"tray-a": {"ansible_host": "127.0.0.9"}}


def test_verification_follows_every_apply(ran: monitor.Monitor) -> None:
    """The last stage depends on how often each other one was applied."""
    assert kimi(ran)[-1].inputs["after"] == dict.fromkeys(WORDS[:-1], 1)
    assert not any("after" in one.inputs for one in kimi(ran)[:-1])


def test_outputs_cover_all_stages(ran: monitor.Monitor) -> None:
    """A site is in sync when every stage is, and drift of all is one list; no secret is among them."""
    exported = ran.outputs["pulumi:pulumi:Stack"]
    assert exported["inSync"] is False
    assert exported["drift"] == FOUND["s-image"]["drift"]
    assert exported["endpoints"] == FOUND["s-serve"]["endpoints"]
    assert exported == ran.outputs["kimi:index:Site"]
    assert KEY not in json.dumps(wire.reveal(exported))


def test_the_products_program() -> None:
    """The entry is at most 30 lines and takes inventory, consent and secrets from its stack."""
    assert len(ENTRY.read_text().splitlines()) <= 30
    config = {
        "kimi_infra:inventory": "inventories/lab-2node",
        "kimi_infra:secrets": json.dumps({"KIMI_API_KEY": KEY}),
        "kimi_infra:consent": "restart",
        "kimi_infra:onDelete": "teardown",
    }
    found = monitor.run(monitor.Job(ENTRY, config, ("kimi_infra:secrets",)), monitor.Canned())
    site, first, *_ = kimi(found)
    assert site.name == "site", "whatever its stack is called"
    assert first.inputs == {
        "inventory": "inventories/lab-2node",
        "secrets": wire.Secret({"KIMI_API_KEY": KEY}),
        "consent": "restart",
        "onDelete": "teardown",
    }


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[engine.Provider]:
    """A provider beside an inventory without a secret in the environment."""
    tree.write_inventory(tmp_path / "inv", tmp_path / "out")
    started = engine.Provider(tree.write_tree(tmp_path / "tree"), tmp_path, {})
    yield started
    assert started.close() == 0


def test_program_and_provider_together(provider: engine.Provider, tmp_path: Path) -> None:
    """Hosts of another resource: not asked in a preview, applied by their values, then left alone."""
    program = tmp_path / "other.py"
    program.write_text(PROGRAM % KEY)
    job, answers, state = monitor.Job(program), monitor.Real(provider), dict[str, monitor.State]()
    preview = monitor.run(job, answers, state, preview=True)
    assert [one.verb for one in kimi(preview)[1:]] == ["create"] * 6
    assert provider.statuses == []
    assert [path for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == []

    done = monitor.run(job, answers, state)
    outputs: Any = done.outputs["kimi:index:Site"]
    assert outputs["inSync"] is True
    assert outputs["endpoints"] == {"kimi": "http://127.0.0.9:8000"}
    assert (tmp_path / "out/vllm_serve-tray-b.secret").read_text() == KEY

    again = monitor.run(job, answers, state)
    assert [one.verb for one in kimi(again)[1:]] == ["same"] * 6
    assert KEY not in provider.kept + "\n".join(provider.statuses)
