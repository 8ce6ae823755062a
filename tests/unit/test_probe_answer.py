"""The probe's answer on the controller: facts, or a HostError that says what came instead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_infra.domain.facts import HostFacts
from kimi_infra.domain.inventory import Inventory, Mount
from kimi_infra.errors import HostError
from kimi_infra.observe import probe
from tests import examples

pytestmark = pytest.mark.fast

GARBAGE = Path(__file__).parents[1] / "stubs" / "garbage"
ANSWER: dict[str, Any] = {
    "boot_id": "b",
    "architecture": "aarch64",
    "devices": {"198.51.100.11": "eth0"},
    "routes": {},
    "images": {},
    "paths": {"/srv": "directory"},
    "hashes": {},
    "docker": None,
    "memory_total": 1024,
    "os_release": {"id": "debian", "version": "13"},
    "errors": ["devices: x"],
}


def test_an_answer_becomes_facts() -> None:
    """Every field arrives; a greeting of the login before it does not matter."""
    assert probe.parse("tray-a", f"Welcome!\r\n{json.dumps(ANSWER)}\n") == HostFacts(
        boot_id="b",
        architecture="aarch64",
        devices={"198.51.100.11": "eth0"},
        routes={},
        images={},
        paths={"/srv": "directory"},
        docker=None,
        memory_total=1024,
        os_release="debian 13",
        errors=("devices: x",),
    )


@pytest.mark.parametrize("file", sorted(GARBAGE.iterdir()), ids=lambda file: file.stem)
def test_garbage_is_named(file: Path) -> None:
    """What a host may print instead is refused with the host's name and a part of it."""
    with pytest.raises(HostError) as caught:
        probe.parse("tray-a", file.read_text(encoding="utf-8"))
    assert str(caught.value).startswith("tray-a: the probe")
    assert caught.value.host == "tray-a"
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("key", ANSWER)
def test_every_field_is_required_and_typed(key: str) -> None:
    """A field that is missing or of another type is an incomplete answer."""
    for answer in ({**ANSWER, key: 1.5}, {name: value for name, value in ANSWER.items() if name != key}):
        with pytest.raises(HostError, match="the probe's answer is incomplete"):
            probe.parse("tray-a", json.dumps(answer))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ANSWER, "x"]), inner),
    max_leaves=10,
)


@given(
    st.text()
    | json_values.map(json.dumps)
    | json_values.map(lambda value: json.dumps({**ANSWER, "paths": value}))
)
def test_nothing_else_is_raised(text: str) -> None:
    """Whatever a host prints ends in facts or in a HostError."""
    try:
        facts = probe.parse("tray-a", text)
    except HostError:
        return
    assert isinstance(facts, HostFacts)


def test_the_request_asks_for_what_matters_on_the_host() -> None:
    """Addresses of all ranks, image by digest, weights and mounts; not of deployments on other hosts."""
    ours = examples.deployment(mounts=(Mount(path="/opt/lab"),))
    other = replace(ours, name="other", hosts=(examples.host(4),), model_path="/srv/other")
    inventory = Inventory(name="i", path="/i", deployments=(ours, other))
    assert json.loads(probe.request(inventory, "tray-b")) == {
        "addresses": ["198.51.100.11", "198.51.100.12"],
        "images": [f"vllm/vllm-openai@{examples.DIGEST}"],
        "paths": ["/srv/models/Kimi-K3.1-Pro", "/opt/lab"],
        "hash_paths": [],
        "seconds": 45,
    }
    asked = json.loads(probe.request(inventory, "tray-b", hash_models=True, seconds=3600))
    assert (asked["hash_paths"], asked["seconds"]) == (["/srv/models/Kimi-K3.1-Pro"], 3600)
