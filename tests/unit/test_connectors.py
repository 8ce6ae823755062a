"""KV connectors are values: several become one flag, and none is ever lost."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Word
from kimi_infra.planning import connectors
from kimi_infra.planning.connectors import Connector

pytestmark = pytest.mark.fast

HERE = Provenance(origin=Origin.OURS, source="test")
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_load_failure_policy":"fail"}'
EXTRA = '"kv_connector_extra_config":{"cpu_bytes_to_use_per_rank":137438953472,"lazy_offload":false}'
SIMPLE = f'{{"kv_connector":"SimpleCPUOffloadConnector","kv_role":"kv_both",{EXTRA}}}'
BOTH = (
    '{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":'
    f'{{"connectors":[{NIXL},{SIMPLE}]}}}}'
)


def words(*texts: str) -> tuple[Word, ...]:
    """Give words an origin."""
    return tuple(Word(text=text, provenance=HERE) for text in texts)


def texts(found: tuple[Word, ...]) -> list[str]:
    """Return the words alone."""
    return [word.text for word in found]


def test_two_connectors_become_one_flag_at_the_last_place() -> None:
    """The form is the MultiConnector that vLLM reads, the prefill/decode connector first."""
    given_ = words("--a", connectors.FLAG, NIXL, "--b", connectors.FLAG, SIMPLE, "--c")
    found = connectors.composed(given_)
    assert texts(found) == ["--a", "--b", connectors.FLAG, BOTH, "--c"]
    origin = found[2].provenance
    assert origin.origin is Origin.DERIVED
    assert origin.source.startswith("NixlConnector and SimpleCPUOffloadConnector composed")


def test_a_multi_connector_takes_another_child() -> None:
    """Children are never nested, and what is there already is not added again."""
    given_ = words(connectors.FLAG, BOTH, connectors.FLAG, SIMPLE, connectors.FLAG, NIXL)
    assert texts(connectors.composed(given_)) == [connectors.FLAG, BOTH]


def test_one_connector_stays_as_it_was_written() -> None:
    """A single flag is not read at all, and equal ones leave the connector itself."""
    spaced = '{"kv_connector": "X",  "kv_role": "kv_both"}'
    assert texts(connectors.composed(words(connectors.FLAG, spaced))) == [connectors.FLAG, spaced]
    twice = connectors.composed(words(connectors.FLAG, NIXL, connectors.FLAG, NIXL))
    assert texts(twice) == [connectors.FLAG, NIXL]


@pytest.mark.parametrize("other", ["$CONFIG", "[1]", "{", '"text"', "[" * 60_000])
def test_what_is_no_object_is_left_to_vllm(other: str) -> None:
    """We cannot compose what we cannot read."""
    given_ = words(connectors.FLAG, NIXL, connectors.FLAG, other)
    assert connectors.composed(given_) == given_


NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name != "MultiConnector")
SINGLE = st.builds(
    lambda name, extra: Connector(fields={"kv_connector": name, "kv_role": "kv_both", **extra}),
    NAMES,
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans(), max_size=3),
)


@given(st.lists(SINGLE, min_size=1, max_size=5))
def test_none_is_lost(found: list[Connector]) -> None:
    """Every connector is a child of the result, in the order given, and the text reads back as the value."""
    whole = connectors.compose(found)
    expected = [connector for index, connector in enumerate(found) if connector not in found[:index]]
    assert list(whole.children) == expected
    assert connectors.parse(whole.text) == whole
    assert json.loads(whole.text) == dict(whole.fields)
