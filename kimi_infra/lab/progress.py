"""Says what goes on: a line when a step starts, one with its seconds when it is done."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path

Report = Callable[[str], None]
"""Takes one line without its line feed."""


def silent(_line: str) -> None:
    """A report that nobody reads."""


class Progress:
    """Lines of several steps that run side by side, one at a time."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """One line."""
        with self._lock:
            self._report(line)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Announce the step, and its seconds when it is done; a failed one says so."""
        self.say(f"{what} …")
        start = time.monotonic()
        try:
            yield
        except BaseException:
            self.say(f"{what}: failed after {time.monotonic() - start:.1f} s")
            raise
        self.say(f"{what}: done in {time.monotonic() - start:.1f} s")


def side_by_side(jobs: Sequence[Callable[[], object]]) -> None:
    """Run all jobs at once and raise the first one's error, in their order, when all have ended."""
    with futures.ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        running = [pool.submit(job) for job in jobs]
    for job in running:
        job.result()


@contextlib.contextmanager
def locked(path: Path, progress: Progress, what: str) -> Iterator[None]:
    """Hold the lock file; says so when another process holds it and waits for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step(f"waiting for another process that holds {what} ({path})"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
