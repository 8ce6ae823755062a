"""Whom the head admits to its group."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_infra.hostside.rank import group
from tests.stubs import group as stubs

pytestmark = pytest.mark.fast

SETTINGS = stubs.settings(rank=0, role="head", ranks=3, plan="a" * 64)
HELLO = {**group.hello(SETTINGS), "rank": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"rank": 2}, None),
        ({"extra": "from a later version"}, None),
        ({"deployment": "other"}, "its deployment is other, the head's is kimi"),
        ({"plan": "b"}, f"its plan is b, the head's is {'a' * 64}"),
        ({"version": 2}, "its version is 2, the head's is 1"),
        ({"rank": 0}, "rank 0 is not a worker of 3 ranks"),
        ({"rank": 3}, "rank 3 is not a worker of 3 ranks"),
        ({"rank": True}, "rank True is not a worker of 3 ranks"),
        ({"rank": "1\nfake line"}, "rank 1?fake line is not a worker of 3 ranks"),
    ],
)
def test_admission(change: dict[str, Any], reason: str | None) -> None:
    """Only a rank of the same deployment, plan and protocol gets in, and a refusal is one line."""
    assert group.refusal({**HELLO, **change}, SETTINGS, ()) == reason


def test_a_rank_is_admitted_once() -> None:
    """While a rank's connection lives, a second one of that rank is refused."""
    assert group.refusal(HELLO, SETTINGS, {1}) == "rank 1 is already connected"
    assert group.refusal(HELLO, SETTINGS, {2}) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values)
def test_no_greeting_breaks_the_head(greeting: Any) -> None:
    """Whatever JSON a stranger sends, the answer is a bounded printable refusal."""
    reason = group.refusal(greeting, SETTINGS, ())
    assert reason is not None
    assert reason.isprintable()
    assert len(reason) < 700
