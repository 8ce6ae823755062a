"""The rules of the test run itself: groups, time shares, and no network for fast tests."""

from __future__ import annotations

import dataclasses
import socket

import pytest

from tests import shares, sockets

pytestmark = pytest.mark.fast

TEST_NET = "192.0.2.1"
"""Reserved for documentation (RFC 5737): nobody answers there."""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pytest run of its own, under the plugin."""
    monkeypatch.delenv(shares.SETUP_SECONDS, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p tests.shares")
    return pytester


def squeeze(monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> None:
    """Give a group another share."""
    changed = [
        dataclasses.replace(group, seconds=seconds) if group.name == name else group
        for group in shares.GROUPS
    ]
    monkeypatch.setattr(shares, "GROUPS", tuple(changed))


def test_a_test_without_a_group_stops_the_run(inner: pytest.Pytester) -> None:
    """A test in no group is named and nothing runs, even when -m would have deselected it."""
    inner.makepyfile("def test_lost() -> None: ...")
    result = inner.runpytest_inprocess("-m", "fast")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*exactly one of the markers fast, lab*", "*::test_lost: none"])


def test_a_test_in_two_groups_stops_the_run(inner: pytest.Pytester) -> None:
    """A module's marker and another one on the test are two groups."""
    inner.makepyfile(
        "import pytest\npytestmark = pytest.mark.fast\n@pytest.mark.lab\ndef test_torn() -> None: ..."
    )
    result = inner.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*::test_torn: fast and lab"])


def test_a_slow_group_fails_a_green_run_and_pytest_has_the_last_word(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overrun is named with seconds and share, the run fails, and the closing line comes last."""
    squeeze(monkeypatch, "fast", 1e-9)
    inner.makepyfile("import pytest\n@pytest.mark.fast\ndef test_green() -> None: ...")
    result = inner.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["fast *1 *", "OVER ITS SHARE: fast took 0 s of a share of 1e-09 s*", "*1 passed in*"]
    )
    assert "1 passed in" in result.outlines[-1]


def test_the_time_of_fixtures_counts(inner: pytest.Pytester) -> None:
    """A group is charged for what its fixtures take to set up and to tear down."""
    inner.makepyfile(
        """
        import threading, pytest
        @pytest.fixture(scope="session")
        def hosts():
            threading.Event().wait(0.3)
            yield
            threading.Event().wait(0.3)
        @pytest.mark.lab
        def test_on_hosts(hosts): ...
        """
    )
    result = inner.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    row = next(line.split() for line in result.outlines if line.startswith("lab "))
    assert float(row[2]) >= 0.6


def test_set_up_is_booked_from_the_environment() -> None:
    """Seconds that ./run measured appear in the report and are held to their share."""
    late = shares.ledger_of({shares.SETUP_SECONDS: str(shares.SETUP.seconds + 1)})
    assert [group.name for group, _ in late.rows()] == ["set-up"]
    assert late.overruns()[0].startswith("set-up took 1501 s of a share of 1500 s")
    assert shares.ledger_of({}).rows() == []


def test_all_shares_fit_in_the_budget_of_ci() -> None:
    """Set-up and all groups together stay below 75 minutes."""
    assert shares.SETUP.seconds + sum(group.seconds for group in shares.GROUPS) <= 75 * 60


def test_fast_tests_cannot_leave_this_machine() -> None:
    """A connection, a datagram and a name look-up to elsewhere are refused before a packet is sent."""
    with socket.socket() as stream, pytest.raises(sockets.OffLimitsError, match=r"socket\.connect"):
        stream.connect((TEST_NET, 9))
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams, pytest.raises(sockets.OffLimitsError):
        datagrams.sendto(b"", (TEST_NET, 9))
    with pytest.raises(sockets.OffLimitsError, match="getaddrinfo"):
        socket.getaddrinfo("host.invalid", 9)


def test_fast_tests_may_use_loopback() -> None:
    """A server of the test's own on loopback is reached by address and by name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            with socket.create_connection((host, port), timeout=5):
                pass
