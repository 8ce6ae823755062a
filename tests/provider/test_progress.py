"""What is shown of an engine's start while a run waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_infra.cloud import progress
from kimi_infra.observe.status import RankReport

pytestmark = pytest.mark.fast

ANSWER: dict[str, object] = {
    "running": True,
    "phase": "loading",
    "since": 100.0,
    "budget": 3600.0,
    "detail": "",
}


def report(trouble: str | None = None, **answer: object) -> RankReport:
    """What a rank's supervisor said."""
    return RankReport(deployment="kimi", host="tray-a", rank=0, answer={**ANSWER, **answer}, trouble=trouble)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "kimi rank 0 on tray-a: loading 35 s of 3600 s"),
        ({"budget": None}, "kimi rank 0 on tray-a: loading 35 s"),
        (
            {"detail": "rank 1 is missing"},
            "kimi rank 0 on tray-a: loading 35 s of 3600 s (rank 1 is missing)",
        ),
        ({"since": 200.0}, "kimi rank 0 on tray-a: loading 0 s of 3600 s"),
        ({"running": False}, None),
        ({"trouble": "cannot be reached"}, None),
    ],
    ids=["plain", "no limit", "detail", "the host's clock is ahead", "not running", "no answer"],
)
def test_a_phase_is_one_line(given: dict[str, Any], line: str | None) -> None:
    """Phase, elapsed time and budget of a rank; silence where there is nothing to say."""
    assert progress.phase(report(**given), now=135.0) == line
