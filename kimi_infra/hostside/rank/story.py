"""What is told about a run: a journal line per transition, systemd's STATUS and the state file."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from . import config, host, state


def say(text: str) -> None:
    """One line in the journal; the engine's own lines stand between ours."""
    print(f"kimi-rank: {text}", file=sys.stderr, flush=True)


def notify(text: str) -> None:
    """Tell systemd, if it listens (sd_notify(3)); a lost message is not worth an engine."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.settimeout(1)  # a manager that does not read must not stop the rank's own loop
        try:
            link.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as error:
            say(f"systemd cannot be told: {error}")


def extend(seconds: float) -> None:
    """Let the start take at least so many seconds from now (sd_notify(3), systemd 236)."""
    notify(f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}")


class Story:
    """The run of one supervisor."""

    def __init__(self, settings: config.Config, run_dir: Path) -> None:
        self._file = state.path(run_dir, settings.deployment)
        before = state.load(self._file)
        self._entered = time.monotonic()
        self._saved = False
        self._state: dict[str, Any] = {
            "pid": os.getpid(),
            "started": host.start_ticks(os.getpid()),
            "plan": settings.plan,
            "rank": settings.rank,
            "inputs": state.digests(settings.inputs),
            "phase": "checking",
            "budget": None,
            "ready": False,
            "joined": [],
            "detail": "",
            "reason": None,
            # A run that was killed left no reason of its own.
            "previous_reason": before.get("reason") or before.get("previous_reason"),
        }

    @property
    def phase(self) -> str:
        """The phase that the run is in."""
        return str(self._state["phase"])

    @property
    def detail(self) -> str:
        """What the phase waits for, as far as it is known."""
        return str(self._state["detail"])

    def changes(self, settings: config.Config, unit_file: Path | None) -> list[str]:
        """How the files on disk differ from what this run was started from."""
        return state.changes(self._state, settings, unit_file)

    def enter(self, phase: str, budget: float | None, *, ready: bool = False) -> None:
        """Begin a phase."""
        self._entered = time.monotonic()
        self._state.update(phase=phase, budget=budget, ready=ready, since=round(time.time(), 3), detail="")
        limit = "" if budget is None else f", within {budget:g} s"
        say(f"rank {self._state['rank']}: {phase}{limit}")
        self._save()
        if ready:
            notify("READY=1")
        self.tick()

    def note(self, joined: list[int], detail: str) -> None:
        """Remember who is connected and what is waited for; one line when that is news."""
        if (joined, detail) == (self._state["joined"], self._state["detail"]):
            return
        if detail and detail != self._state["detail"]:
            say(f"rank {self._state['rank']}: {self.phase}: {detail}")
        self._state.update(joined=joined, detail=detail)
        self._save()
        self.tick()

    def tick(self) -> None:
        """Tell systemd the phase, the time in it and its limit; save what could not be saved before."""
        if not self._saved:
            self._save()
        budget = self._state["budget"]
        limit = "" if budget is None else f" of {budget:g} s"
        elapsed = f": {time.monotonic() - self._entered:.0f} s{limit}" if not self._state["ready"] else ""
        detail = f" ({self.detail})" if self.detail else ""
        notify(f"STATUS={self.phase}{elapsed}{detail}")

    def end(self, reason: str, code: int) -> None:
        """The last line of the run."""
        self._state.update(
            phase="ended", budget=None, ready=False, since=round(time.time(), 3), reason=reason
        )
        self._save()
        notify(f"STATUS=ended: {reason}")
        say(f"rank {self._state['rank']} ends with exit code {code}: {reason}")

    def _save(self) -> None:
        try:
            state.save(self._file, self._state)
            self._saved = True
        except OSError as error:
            # A full /run must not end an engine that serves; the next tick tries again.
            self._saved = False
            say(f"{self._file} cannot be written: {error}")
