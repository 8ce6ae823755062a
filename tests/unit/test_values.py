"""Values that nobody has published: asked for where they are missing, filled in where they are given."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_infra.domain.launch import EnvEntry, Flag
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Value, ValueKind, Word
from kimi_infra.planning.values import Filling

pytestmark = pytest.mark.fast

HERE = Provenance(origin=Origin.SIBLING, source="test")
KNOWN = {
    value.name: value
    for value in (
        Value(name="draft", what="the draft", find="model card"),
        Value(name="tokens", what="tokens", find="model card", kind=ValueKind.INTEGER),
        Value(name="extra", what="flags", find="the page", kind=ValueKind.ARGS),
        Value(name="bytes", what="memory", find="hosts", kind=ValueKind.INTEGER, origin=Origin.MEASURED),
    )
}
CONFIG = '{"model":"<value:draft>","num":"<value:tokens>","size":"<value:bytes>"}'


def flag(text: str) -> Flag:
    """Return a flag with one value."""
    return Flag(tokens=("--config", text), provenance=HERE)


def test_what_is_missing_says_what_and_where() -> None:
    """A placeholder stands in the text, still JSON, and the value is a need."""
    filling = Filling(known=KNOWN, given={"tokens": "7"})
    found = filling.flag(flag(CONFIG))
    expected = {"model": "<operator: the draft; model card>", "num": 7, "size": "<measured: memory; hosts>"}
    assert json.loads(found.tokens[1]) == expected
    assert found.provenance == HERE
    assert found.token_provenances[1].origin is Origin.UNKNOWN
    assert [(need.where, need.what) for need in filling.needs()] == [
        ("values.draft", "the draft; model card"),
        ("values.bytes", "memory; hosts"),
    ]


def test_what_is_given_is_the_operators() -> None:
    """Numbers lose the quotes that the recipe needs around a reference; text keeps them."""
    filling = Filling(known=KNOWN, given={"draft": 'org/"x"', "tokens": "7", "bytes": "1024"})
    found = filling.flag(flag(CONFIG))
    assert json.loads(found.tokens[1]) == {"model": 'org/"x"', "num": 7, "size": 1024}
    assert found.token_provenances[1].origin is Origin.OPERATOR
    assert filling.needs() == ()


def test_whole_flags() -> None:
    """A value may stand for any number of words; nothing else changes."""
    words = [Word(text=text, provenance=HERE) for text in ("--a", "<value:extra>", "--b")]
    filling = Filling(known=KNOWN, given={"extra": ("--x", "1")})
    assert [word.text for word in filling.words(words)] == ["--a", "--x", "1", "--b"]
    filling = Filling(known=KNOWN, given={"extra": ()})
    assert [word.text for word in filling.words(words)] == ["--a", "--b"]
    filling = Filling(known=KNOWN, given={})
    assert [word.text for word in filling.words(words)] == ["--a", "<operator: flags; the page>", "--b"]
    assert [need.where for need in filling.needs()] == ["values.extra"]


def test_variables_and_images() -> None:
    """Text outside JSON is filled in as it stands; what nobody declared stays."""
    filling = Filling(known=KNOWN, given={"draft": "org/x"})
    entry = filling.entry(EnvEntry(name="A", value="<value:draft>:1", provenance=HERE))
    assert (entry.value, entry.provenance.origin) == ("org/x:1", Origin.OPERATOR)
    assert filling.image("<value:draft>") == "org/x"
    assert filling.image(None) is None
    assert filling.flag(flag("<value:other>")) == flag("<value:other>")


@given(st.text(max_size=30))
def test_hostile_text_stays_one_json_string(text: str) -> None:
    """Whatever is given, the word reads back as JSON with exactly that text."""
    found = Filling(known=KNOWN, given={"draft": text}).flag(flag('{"model":"<value:draft>"}'))
    assert json.loads(found.tokens[1]) == {"model": text}
