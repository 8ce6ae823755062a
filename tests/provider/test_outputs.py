"""Outputs of a stage: what a failed run leaves, and what of them is secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kimi_infra.cloud import check, outcome, outputs, stages, wire
from kimi_infra.converge.events import Status
from kimi_infra.deploy import plan, site
from kimi_infra.errors import SpecError
from tests.provider import tree

pytestmark = pytest.mark.fast

FACTS: dict[str, object] = {
    "boot_id": "b",
    "architecture": "aarch64",
    "docker": "26",
    "memory_total": 1,
    "errors": [],
    "devices": {},
    "routes": {},
    "paths": {},
    "hashes": {},
    "images": {},
    "os_release": {"id": "debian", "version": "13"},
}
"""A host that has no device with its engine address."""


@pytest.fixture
def found(tmp_path: Path) -> site.Site:
    """An inventory of two hosts."""
    return check.read(tree.write_inventory(tmp_path / "inv", tmp_path / "out"), {})


def failed() -> outcome.RunResult:
    """A run that failed on what its hosts answered."""
    answers = dict.fromkeys(("tray-a", "tray-b"), json.dumps(FACTS))
    return outcome.RunResult(
        status=Status.FAILED, reason="no", changed=(), failed=(), reached=frozenset(), answers=answers
    )


def test_facts_that_contradict_the_inventory_leave_the_failure_to_the_run(found: site.Site) -> None:
    """The outputs of a failed apply are made all the same, so that the run's own message is what is told."""
    result = failed()
    with pytest.raises(SpecError):
        plan.plan(found.inventory, found.catalogue, outputs._facts(result))
    for done in (
        outputs.after(stages.SERVE, {}, result, found, 3),
        outputs.refreshed(stages.SERVE, {}, {"applied": 3}, result, found),
    ):
        assert (done["inSync"], done["applied"], done["planHashes"]) == (False, 3, {})


@pytest.mark.parametrize("secret", [True, False])
def test_endpoints_of_secret_addresses_are_secret(found: site.Site, *, secret: bool) -> None:
    """An address that the program marked is marked where it comes out again, and only then."""
    address = wire.Secret("127.0.0.2") if secret else "127.0.0.2"
    values: dict[str, object] = {"hosts": {"tray-a": {"ansible_host": address}}}
    urls = {"kimi": "http://127.0.0.2:8000"}
    for done in (
        outputs.after(stages.SERVE, values, failed(), found, 1),
        outputs.previewed(stages.SERVE, values, found),
    ):
        assert done["endpoints"] == (wire.Secret(urls) if secret else urls)
