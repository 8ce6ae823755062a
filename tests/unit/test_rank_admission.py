"""Whom the head admits to its group."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_infra.hostside.rank import group, host
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


def test_a_head_tells_every_address_that_its_engine_may_connect_from() -> None:
    """Its engine address first, then what the kernel lists, without loopback and link-local."""
    here = [
        host.Interface("lo", "127.0.0.1", 8),
        host.Interface("eth0", "192.0.2.11", 24),
        host.Interface("eth0", "fe80::1", 64),
        host.Interface("docker0", "172.17.0.1", 16),
    ]
    assert group.start_message(SETTINGS, here) == {
        "start": 1,
        "addresses": [SETTINGS.head_address, "192.0.2.11", "172.17.0.1"],
    }
    many = [
        host.Interface("eth0", f"2001:db8:{number:x}:1111:2222:3333:4444:5555", 64) for number in range(999)
    ]
    assert len(json.dumps(group.start_message(SETTINGS, many))) < 4096


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"start": 1}, {"198.51.100.11"}),  # a head that says no more
        ({"start": 1, "addresses": ["192.0.2.11", "FD00::0:1"]}, {"198.51.100.11", "192.0.2.11", "fd00::1"}),
        ({"start": 1, "addresses": ["172.17.0.1"]}, {"198.51.100.11"}),  # this host's own bridge
        ({"start": 1, "addresses": ["7", "x", None]}, {"198.51.100.11"}),
        ({"start": 1, "addresses": "192.0.2.11"}, {"198.51.100.11"}),
    ],
)
def test_a_worker_knows_its_head_by_all_addresses_but_its_own(
    message: dict[str, Any], expected: set[str]
) -> None:
    """The engine may leave by another address than the planned one; garbage in the list is left alone."""
    here = [host.Interface("docker0", "172.17.0.1", 16), host.Interface("eth0", "198.51.100.12", 24)]
    assert group.head_addresses(message, stubs.settings(), here) == expected


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
