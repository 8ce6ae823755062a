"""Pytest plugin: each test belongs to one group, and each group has a share of CI's time.

The shares are enforced by every run, so that no change eats the time of work that is still to come.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A marker that tests carry, with its share of a whole run on a new machine with two cores."""

    name: str
    seconds: float
    claim: str
    """What the marker says of a test."""


GROUPS = (
    Group(name="fast", seconds=180, claim="no host and no network beyond loopback"),
    Group(name="lab", seconds=540, claim="needs the two lab hosts; their set-up counts"),
    Group(name="provider", seconds=240, claim="the Pulumi provider against a fake engine, on this machine"),
    Group(name="engine", seconds=300, claim="needs Pulumi's own engine; hosts are this machine"),
    Group(name="stack", seconds=420, claim="needs Pulumi's own engine and the two lab hosts"),
    Group(name="compiler", seconds=60, claim="the recipe compiler, without host or network"),
    Group(name="parser", seconds=60, claim="asks vLLM's own parser, in the serving image's Python"),
    Group(name="bulk", seconds=60, claim="many choices at once, on this machine alone"),
)
"""All groups. CI's whole budget is 4500 s; what is not given away here is kept for later groups."""

SETUP = Group(name="set-up", seconds=1500, claim="what ./run does before the tests; measured there")
SETUP_SECONDS = "KIMI_INFRA_SETUP_SECONDS"
"""Environment variable by which ./run hands over the seconds that set-up took."""


@dataclass(slots=True)
class Usage:
    """What one group has used so far in this run."""

    tests: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Ledger:
    """Seconds and tests of each group, by the group's name."""

    used: dict[str, Usage] = field(default_factory=dict)

    def add(self, group: str, *, tests: int, seconds: float) -> None:
        """Count tests and their seconds."""
        usage = self.used.setdefault(group, Usage())
        usage.tests += tests
        usage.seconds += seconds

    def rows(self) -> list[tuple[Group, Usage]]:
        """The groups that were used, in the order of the table."""
        return [(group, self.used[group.name]) for group in (SETUP, *GROUPS) if group.name in self.used]

    def overruns(self) -> list[str]:
        """One line for each group that took more than its share."""
        return [
            f"{group.name} took {usage.seconds:.0f} s of a share of {group.seconds:g} s: "
            "make it faster, or move time between the groups in tests/shares.py"
            for group, usage in self.rows()
            if usage.seconds > group.seconds
        ]


LEDGER = pytest.StashKey[Ledger]()


def ledger_of(environ: Mapping[str, str]) -> Ledger:
    """A new ledger, with set-up already booked where ./run measured it."""
    ledger = Ledger()
    if SETUP_SECONDS in environ:
        ledger.add(SETUP.name, tests=0, seconds=float(environ[SETUP_SECONDS]))
    return ledger


def groups_of(item: pytest.Item) -> list[str]:
    """Names of the groups that a test carries; a marker given twice counts once."""
    carried = {mark.name for mark in item.iter_markers()}
    return [group.name for group in GROUPS if group.name in carried]


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers from the one table."""
    config.stash[LEDGER] = ledger_of(os.environ)
    for group in GROUPS:
        config.addinivalue_line("markers", f"{group.name}: {group.claim} (share: {group.seconds} s)")


@pytest.hookimpl(tryfirst=True)  # before -m deselects: a test without a group would vanish unseen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a run with a test that is in no group or in several."""
    names = ", ".join(group.name for group in GROUPS)
    lost = [
        f"  {item.nodeid}: {' and '.join(groups_of(item)) or 'none'}"
        for item in items
        if len(groups_of(item)) != 1
    ]
    if lost:
        raise pytest.UsageError(
            f"each test carries exactly one of the markers {names}; these do not:\n" + "\n".join(lost)
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Book a test's whole time, the set-up and teardown of its fixtures included."""
    began = time.monotonic()
    try:
        return (yield)
    finally:
        item.config.stash[LEDGER].add(groups_of(item)[0], tests=1, seconds=time.monotonic() - began)


@pytest.hookimpl(tryfirst=True)  # before the terminal reports the exit status
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that was green but too slow."""
    if session.exitstatus == pytest.ExitCode.OK and session.config.stash[LEDGER].overruns():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what each group used, above pytest's closing line."""
    ledger = config.stash[LEDGER]
    terminalreporter.section("time shares")
    terminalreporter.line(f"{'group':<8}{'tests':>6}{'seconds':>9}{'share':>7}{'used':>7}")
    for group, usage in ledger.rows():
        used = f"{usage.seconds / group.seconds:.0%}"
        tests = str(usage.tests) if usage.tests else "-"
        terminalreporter.line(f"{group.name:<8}{tests:>6}{usage.seconds:>9.1f}{group.seconds:>7g}{used:>7}")
    for line in ledger.overruns():
        terminalreporter.line(f"OVER ITS SHARE: {line}", red=True)
