"""One thread that waits for descriptors, timers, children and signals at once."""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Callback = Callable[[], None]


@dataclass(order=True)
class Timer:
    """A callback that is due at a time of the monotonic clock."""

    due: float
    order: int
    callback: Callback = field(compare=False)
    cancelled: bool = field(compare=False, default=False)

    def cancel(self) -> None:
        """Never call back; harmless when it already did."""
        self.cancelled = True


class Loop:
    """Calls back when something happens; everything runs in the thread of :meth:`run`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._orders = itertools.count()

    def watch(self, source: Any, callback: Callback, events: int = selectors.EVENT_READ) -> None:
        """Call back while the source is ready; a second call for one source replaces the first."""
        self.forget(source)
        self._selector.register(source, events, callback)

    def forget(self, source: Any) -> None:
        """Stop watching; harmless for an unknown source."""
        try:
            self._selector.unregister(source)
        except (KeyError, ValueError):
            return

    def after(self, seconds: float, callback: Callback) -> Timer:
        """Call back once, that many seconds from now."""
        timer = Timer(time.monotonic() + seconds, next(self._orders), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def every(
        self, seconds: float, callback: Callable[[], bool], *, growth: float = 1.0, most: float = 60.0
    ) -> None:
        """Call back at once and then again until it returns False, each pause ``growth`` times the last."""

        def again(pause: float) -> None:
            if callback():
                self.after(pause, lambda: again(min(pause * growth, most)))

        again(seconds)

    def child(self, process: subprocess.Popen[bytes], callback: Callable[[int], None]) -> None:
        """Call back with the return code when the process has ended."""
        descriptor = os.pidfd_open(process.pid)

        def ended() -> None:
            self.forget(descriptor)
            os.close(descriptor)
            callback(process.wait())

        self.watch(descriptor, ended)

    def signals(self, numbers: Iterable[signal.Signals], callback: Callable[[signal.Signals], None]) -> None:
        """Call back for these signals, out of the handler's own context."""
        reader, writer = socket.socketpair()
        reader.settimeout(0)
        writer.settimeout(0)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda _number, _frame: None)

        def arrived(_keep: socket.socket = writer) -> None:
            for number in reader.recv(64):
                callback(signal.Signals(number))

        self.watch(reader, arrived)

    def run(self, done: Callable[[], bool]) -> None:
        """Dispatch until ``done``, which is asked after each round."""
        while not done():
            for key, _events in self._selector.select(self._pause()):
                # A callback of this round may have closed the descriptor, and another taken its number.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            now = time.monotonic()
            while self._timers and self._timers[0].due <= now:
                timer = heapq.heappop(self._timers)
                if not timer.cancelled:
                    timer.callback()

    def _pause(self) -> float | None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0].due - time.monotonic()) if self._timers else None
