"""What another process can tell about a rank: its status, and waiting for it to be ready."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import config, state, unitfile

READY, FAILED, TIMEOUT = 0, 1, 3
"""Exit codes of ``wait``."""
_POLL_SECONDS = 0.5
_SURE = 4
"""So many looks in a row must find the unit down: a start that was only queued is not seen at once."""


@dataclass(frozen=True)
class Place:
    """Where a rank's files are."""

    config_file: Path
    run_dir: Path
    unit_file: Path | None
    """None looks for the unit's own file where units are installed."""

    def unit(self, settings: config.Config) -> Path | None:
        """The unit file to compare with, where there is one."""
        return unitfile.of(settings.unit, self.unit_file)


def status(place: Place) -> dict[str, Any]:
    """The rank as it is now; works on a host without configuration and with nothing running."""
    try:
        settings = config.read(place.config_file)
    except config.ConfigError as error:
        return _describe({}, str(error), [])
    found = state.load(state.path(place.run_dir, settings.deployment))
    changes = state.changes(found, settings, place.unit(settings))
    # Type=notify: systemd calls active what said READY, whatever became of the state file.
    active = _unit_state(settings.unit) == "active"
    if active and not state.running(found):
        changes = [f"what {settings.unit} was started from is unknown: it left no state"]
    reason = found.get("reason") or found.get("previous_reason")
    return _describe(found, reason, changes, active=active)


def _describe(
    found: Mapping[str, Any], reason: str | None, changes: list[str], *, active: bool = False
) -> dict[str, Any]:
    running = active or state.running(found)
    return {
        "running": running,
        "ready": active or (running and bool(found.get("ready"))),
        "phase": found.get("phase"),
        "since": found.get("since"),
        "budget": found.get("budget"),
        "detail": found.get("detail"),
        "joined": found.get("joined", []),
        "plan": found.get("plan"),
        "stale": bool(changes),
        "changes": changes,
        "reason": reason,
        "pid": found.get("pid") if state.running(found) else None,
    }


def _unit_state(unit: str) -> str:
    try:
        answer = subprocess.run(
            ("systemctl", "show", "--property=ActiveState", "--value", unit),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return answer.stdout.strip()


def wait(place: Place, seconds: float, *, current: bool) -> tuple[int, str]:
    """Exit code and text: ready, failed for good, or not ready within the time.

    A run that ended is not the end while systemd starts another one.

    Args:
        place: the rank.
        seconds: how long to wait.
        current: whether only a run that was started from the files now on disk counts.
    """
    unit = config.read(place.config_file).unit
    deadline = time.monotonic() + seconds
    down = 0
    while True:
        found = status(place)
        if found["ready"] and not (current and found["stale"]):
            return READY, f"{unit} is ready"
        down = down + 1 if not found["running"] and _unit_state(unit) in ("failed", "inactive") else 0
        if down >= _SURE:
            return FAILED, f"{unit} is down: {found['reason'] or 'it never ran'}"
        if time.monotonic() >= deadline:
            return TIMEOUT, f"{unit} is not ready after {seconds:g} s: {_where(found)}"
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def _where(found: Mapping[str, Any]) -> str:
    if not found["running"]:
        return f"it does not run; last end: {found['reason'] or 'none'}"
    if found["ready"]:
        return f"the running one was started from other files: {', '.join(found['changes'])}"
    limit = "" if found["budget"] is None else f" of {found['budget']:g} s"
    detail = f" ({found['detail']})" if found["detail"] else ""
    before = f"; before that: {found['reason']}" if found["reason"] else ""
    return f"{found['phase']} since {max(0.0, time.time() - found['since']):.0f} s{limit}{detail}{before}"
