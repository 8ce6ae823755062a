"""The lab of this checkout, taken through its life in one order.

Fixtures are the stages of a host's life; each test asks for the stage that it is about.
The lab is taken down at the end, its disks too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kimi_infra import lab
from tests.lab import operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Untouched:
    """Hosts as delivered, and what a check run did to them."""

    before: dict[str, dict[str, str]]
    """Host -> file systems before the check run."""
    check: operator.Run
    after: dict[str, dict[str, str]]
    docker: dict[str, str]
    """Host -> what looking for docker printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converged:
    """Hosts after site.yml."""

    untouched: Untouched
    first: operator.Run
    laid_down: dict[str, str]
    """Host -> what the run laid down, as :func:`tests.lab.operator.laid_down` gives it."""


@pytest.fixture(scope="session")
def lab_up() -> Iterator[lab.LabInfo]:
    """Bring this checkout's lab up with hosts as delivered."""
    lab.up(print)
    yield lab.reset()
    lab.down(purge=True)


@pytest.fixture(scope="session")
def untouched(lab_up: lab.LabInfo) -> Untouched:
    """Look at the hosts before and after `ansible-playbook --check --diff`."""
    names = [host.name for host in lab_up.hosts]
    docker = {name: operator.on_host(name, "sh", "-c", "'command -v docker || echo none'") for name in names}
    before = {name: operator.snapshot(name) for name in names}
    check = operator.playbook("site", "--check", "--diff")
    after = {name: operator.snapshot(name) for name in names}
    return Untouched(before=before, check=check, after=after, docker=docker)


@pytest.fixture(scope="session")
def converged(untouched: Untouched) -> Converged:
    """Run site.yml from hosts as delivered."""
    first = operator.playbook("site")
    assert first.code == 0, first.output[-5000:]
    laid_down = {name: operator.laid_down(name) for name in operator.UNITS}
    return Converged(untouched=untouched, first=first, laid_down=laid_down)
