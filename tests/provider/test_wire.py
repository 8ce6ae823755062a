"""Property values on the wire: nothing is lost, nothing secret is shown."""

from __future__ import annotations

import hypothesis
import pytest
from google.protobuf import struct_pb2
from hypothesis import strategies as st

from kimi_infra.cloud import propertypath, wire

pytestmark = pytest.mark.fast

SIGNATURE = "4dabf18193072939515e22adb298388d"
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name != SIGNATURE)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.text(max_size=20),
    st.just(wire.UNKNOWN),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4), st.builds(wire.Secret, inner)
    ),
    max_leaves=20,
)


@hypothesis.given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_values_survive_both_ways(values: dict[str, object]) -> None:
    """Whatever a resource holds comes back the same, secrets and unknowns included."""
    message = struct_pb2.Struct.FromString(wire.dump(values).SerializeToString())
    assert wire.load(message) == values


@hypothesis.given(st.text("abcdef0123456789-", min_size=12), VALUES)
def test_a_secret_is_never_shown(text: str, beside: object) -> None:
    """The text of a secret is in no representation of the values that hold it, and all of it is found."""
    values = {"a": [wire.Secret({"k": [text]}), beside]}
    assert text not in repr({"a": [values["a"][0]]})
    assert text in set(wire.secret_texts(values))


@pytest.mark.parametrize(
    "sentinel",
    ["04da6b54-80e4-46f7-96ec-b56ff0331ba9", "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2"],
    ids=["text", "array"],
)
def test_the_engines_unknowns_are_no_texts(sentinel: str) -> None:
    """A placeholder of the engine is never taken for a value that could reach a host."""
    struct = struct_pb2.Struct(fields={"a": struct_pb2.Value(string_value=sentinel)})
    assert wire.load(struct) == {"a": wire.UNKNOWN}
    assert wire.has_unknown(wire.load(struct))


def test_a_secret_unknown_is_unknown() -> None:
    """What is secret and not known yet is not known yet."""
    assert wire.has_unknown({"a": [{"b": wire.Secret(wire.UNKNOWN)}]})


def test_a_value_without_a_form_is_refused() -> None:
    """A value that the engine could not read is not sent."""
    with pytest.raises(TypeError, match="bytes has no form"):
        wire.dump({"a": b"x"})


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        (("plan", "kimi", "command", 3), "plan.kimi.command[3]"),
        (("hosts", "tray-a", "ansible_host"), 'hosts["tray-a"].ansible_host'),
        (("sources", "roles/host_base"), 'sources["roles/host_base"]'),
        (("a", 'say "x"'), 'a["say \\"x\\""]'),
    ],
)
def test_property_paths_are_the_engines(steps: tuple[str | int, ...], path: str) -> None:
    """A name that is no plain word is quoted."""
    built = ""
    for step in steps:
        built = propertypath.joined(built, step)
    assert built == path
    assert propertypath.root(built) == steps[0]
