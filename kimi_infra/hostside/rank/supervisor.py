"""One run of a rank: check, meet the group, start the engine, say READY, watch, stop in order."""

from __future__ import annotations

import errno
import itertools
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import config, engine, group, host, loop, state, story, unitfile

_POLL_SECONDS, _POLL_GROWTH, _POLL_MOST = 0.1, 1.2, 1.0
"""A look at a loading engine: soon at first, and seldom in an hour of loading."""
_ASK_AGAIN_SECONDS = 0.5
_CHECK_SECONDS = 1.0
_STATUS_SECONDS = 10.0
_DRAIN_MARGIN_SECONDS = 10.0
"""What a worker that was asked to stop grants the head above the head's own container limit."""

_EXTENSION_SECONDS = 180.0
"""So long does systemd wait for a next sign of a rank that waits; several calls to docker fit in."""
_START_MARGIN_SECONDS = 60.0
"""As the plan's for ``TimeoutStartSec=``."""


class CheckError(Exception):
    """The rank cannot start on this host as it is."""


class NotYetError(Exception):
    """The host is not as far as the rank needs it, as during a boot."""


def check(settings: config.Config, argv: Sequence[str], unit_file: Path | None) -> None:
    """Refuse what cannot work, and take away what an earlier run of this rank left.

    Raises:
        CheckError: waiting does not help.
        NotYetError: it may.
    """
    if len(argv) < 2 or ("--name", settings.container) not in itertools.pairwise(argv):
        raise CheckError(f"the command behind -- does not start the container {settings.container}")
    wanted = None if unit_file is None else unitfile.exec_start(unit_file)
    if wanted is not None and state.command(wanted) != tuple(argv):
        raise CheckError(
            f"the command of this start is not the one in {unit_file}: systemd has not read the unit since "
            "it changed (systemctl daemon-reload), or a drop-in replaces it"
        )
    here = [item for item in host.interfaces() if host.carries(item, settings.own_address)]
    if settings.interface not in {item.device for item in here}:
        found = ", ".join(sorted({item.device for item in here})) or "no device"
        raise NotYetError(
            f"{settings.own_address} is not an address of {settings.interface}: {found} of this host has it"
        )
    try:
        if engine.remove_leftover(argv[0], settings.container):
            story.say(f"removed the leftover container {settings.container}")
    except engine.EngineError as error:
        raise NotYetError(str(error)) from error
    for port in settings.ports:
        holders = host.holders(port.number)
        if holders:
            raise CheckError(f"port {port.number} ({port.purpose}) is held by {', '.join(holders)}")


@dataclass(frozen=True)
class Command:
    """What this run starts."""

    engine: tuple[str, ...]
    """The docker command, in the foreground."""
    ask: tuple[str, ...]
    """Asks the own API for one completion: code 0 when it came, else the reason on standard output."""
    unit_file: Path | None = None
    """Where systemd should have the engine's command from; None compares nothing."""


@dataclass(frozen=True)
class _End:
    """How the run ends."""

    reason: str
    asked: bool


class Supervisor:
    """The events of one run; :meth:`run` returns the exit code."""

    def __init__(self, settings: config.Config, command: Command, record: story.Story) -> None:
        self._settings, self._command, self._story = settings, command, record
        self._docker = command.engine[0]
        self._loop = loop.Loop()
        self._engine = engine.Engine(self._loop, command.engine, settings.container, self._engine_ended)
        role = group.Head if settings.is_head else group.Worker
        self._group: group.Head | group.Worker = role(self._loop, settings, self)
        self._deadline: loop.Timer | None = None
        self._end: _End | None = None
        self._started = False
        self._done = False
        self._container_pid = 0
        self._questioner: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Everything, until the engine is gone."""
        self._loop.signals((signal.SIGTERM, signal.SIGINT), self._signalled)
        self._loop.every(_STATUS_SECONDS, self._tick)
        self._enter("checking", self._settings.limits.joined)
        self._loop.every(_CHECK_SECONDS, self._check)
        self._loop.run(lambda: self._done)
        return self._close()

    def _check(self) -> bool:
        """Look again while the host is not ready for the rank, as long as a group may take to meet."""
        if self._end is not None:
            return False
        try:
            check(self._settings, self._command.engine, self._command.unit_file)
        except NotYetError as error:
            self._story.note([], str(error))
            return True
        except CheckError as error:
            self._finish(str(error), asked=False)
            return False
        self._meet()
        return False

    def _meet(self) -> None:
        # Without an end: a peer that is away for hours must not use up this unit's starts.
        seconds = self._settings.limits.joined
        self._enter("waiting for the group", seconds, firm=False)
        self._deadline = self._loop.after(seconds, self._wait_on)
        try:
            self._group.open()
        except OSError as error:
            self._finish(self._cannot_listen(error), asked=False)
        if self._story.phase == "waiting for the group":
            self.group_changed()

    def _wait_on(self) -> None:
        story.say(f"still {self._story.phase} ({self._story.detail}); waiting on")

    # What the group says (group.Listener).

    def group_changed(self) -> None:
        """See :class:`group.Listener`."""
        if self._end is None:
            self._story.note(self._group.joined, self._group.trouble)

    def group_started(self) -> None:
        """See :class:`group.Listener`."""
        if self._end is not None:
            return
        # The wait may have been long, and the container reads its environment files only now.
        changes = self._story.changes(self._settings, self._command.unit_file)
        if changes:
            self._finish(f"changed while this run waited: {', '.join(changes)}", asked=False)
            return
        self._story.note(self._group.joined, "")
        limits = self._settings.limits
        story.extend(limits.engine_ready + limits.first_answer + _START_MARGIN_SECONDS)
        self._started = True
        self._enter("starting the engine", self._settings.limits.engine_ready)
        try:
            self._engine.start()
        except OSError as error:
            self._finish(f"{self._docker} cannot be started: {error}", asked=False)
            return
        self._poll(self._listens if self._settings.is_head else self._has_joined)

    def group_leaving(self, reason: str) -> None:
        """See :class:`group.Listener`."""
        self._finish(reason, asked=False, keep_group=True)

    def group_lost(self, reason: str) -> None:
        """See :class:`group.Listener`."""
        if self._end is None:
            self._finish(reason, asked=False)
        elif self._end.asked and self._story.phase == "draining":
            self._stop_engine()

    # Phases.

    def _enter(self, phase: str, seconds: float | None, *, firm: bool = True) -> None:
        """Begin a phase; ``firm`` ends the run when it takes longer."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        self._story.enter(phase, seconds, ready=phase == "ready")
        if seconds is not None and firm:
            self._deadline = self._loop.after(seconds, lambda: self._overrun(phase, seconds))

    def _overrun(self, phase: str, seconds: float) -> None:
        detail = f" ({self._story.detail})" if self._story.detail else ""
        self._finish(f"{phase} took longer than {seconds:g} s{detail}", asked=False)

    def _tick(self) -> bool:
        self._story.tick()
        if not self._started and self._end is None:
            # TimeoutStartSec= is for a start under way, not for a peer that is away.
            story.extend(_EXTENSION_SECONDS)
        return True

    def _poll(self, look: Callable[[], bool]) -> None:
        self._loop.every(_POLL_SECONDS, look, growth=_POLL_GROWTH, most=_POLL_MOST)

    def _listens(self) -> bool:
        if self._end is not None:
            return False
        try:
            # Loopback answers at once; the limit is for a listener whose queue is full.
            socket.create_connection(("127.0.0.1", self._settings.api_port), timeout=0.2).close()
        except OSError:
            return True
        self._enter("waiting for the first answer", self._settings.limits.first_answer)
        self._question()
        return False

    def _question(self) -> None:
        if self._end is None:
            questioner = subprocess.Popen(self._command.ask, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            self._questioner = questioner
            self._loop.child(questioner, lambda code: self._answered(questioner, code))

    def _answered(self, questioner: subprocess.Popen[bytes], code: int) -> None:
        self._questioner = None
        assert questioner.stdout is not None  # noqa: S101 - for the type only; it is a pipe
        with questioner.stdout as stream:
            said = group.clean(stream.read(500).decode(errors="replace").strip())
        if self._end is not None:
            return
        if code == 0:
            self._serve()
        else:
            self._story.note(self._group.joined, said or f"the question ended with code {code}")
            self._loop.after(_ASK_AGAIN_SECONDS, self._question)

    def _has_joined(self) -> bool:
        if self._end is not None:
            return False
        if not self._container_pid:
            self._engine.ask_pid(self._found)
            return False
        settings = self._settings
        heads = self._group.head_addresses if isinstance(self._group, group.Worker) else ()
        sockets = host.engine_sockets(self._container_pid)
        not_proof = {settings.master_port, settings.supervisor_port}
        if not host.joined(sockets, heads, not_proof):
            return True
        self._serve()
        return False

    def _serve(self) -> None:
        self._group.serving()
        self._enter("ready", None)

    def _found(self, pid: int) -> None:
        self._container_pid = pid
        self._loop.after(_POLL_SECONDS, lambda: self._poll(self._has_joined))

    # The end.

    def _signalled(self, number: signal.Signals) -> None:
        reason = f"stopped by {number.name}"
        if self._end is not None:
            return
        if self._settings.is_head:
            self._finish(reason, asked=True, keep_group=True)
        elif not self._engine.running or not self._group.joined:
            self._finish(reason, asked=True)
        else:
            # The head finishes its requests first: without this rank it could not.
            self._end = _End(reason, asked=True)
            seconds = self._settings.limits.container_stop + _DRAIN_MARGIN_SECONDS
            self._enter_end("draining", seconds)
            self._loop.after(seconds, self._stop_engine)
            self._group.tell("leaving", reason)

    def _engine_ended(self, code: int) -> None:
        if self._end is None:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._finish(f"the engine ended by itself with {how} while {self._story.phase}", asked=False)
        self._done = True

    def _finish(self, reason: str, *, asked: bool, keep_group: bool = False) -> None:
        """Stop the engine; the first reason is the reason.

        ``keep_group``: the workers stop after this rank's engine, so that its requests can end.
        """
        if self._end is not None:
            return
        self._end = _End(reason, asked)
        self._group.leave()
        if not keep_group:
            self._group.tell("ended", reason)
            self._group.close()
        self._stop_engine()

    def _stop_engine(self) -> None:
        if self._story.phase == "stopping" or self._done:
            return
        seconds = self._settings.limits.container_stop
        self._enter_end("stopping", seconds)
        if self._engine.running:
            self._engine.stop(seconds)
        else:
            self._done = True

    def _enter_end(self, phase: str, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._story.enter(phase, seconds)
        story.notify("STOPPING=1")

    def _close(self) -> int:
        assert self._end is not None  # noqa: S101 - the loop ends through _finish or _signalled only
        if self._questioner is not None:
            self._questioner.kill()
            self._questioner.wait()
        try:
            # Only there when docker's client ended without its container.
            if self._started and engine.remove_leftover(self._docker, self._settings.container):
                story.say(f"removed the container {self._settings.container}")
        except engine.EngineError as error:
            story.say(str(error))
        self._group.tell("ended", self._end.reason)
        self._group.close()
        code = 0 if self._end.asked else 1
        self._story.end(self._end.reason, code)
        return code

    def _cannot_listen(self, error: OSError) -> str:
        port = self._settings.supervisor_port
        holders = host.holders(port) if error.errno == errno.EADDRINUSE else []
        held = f", held by {', '.join(holders)}" if holders else ""
        return f"port {port} (supervisor) cannot be listened on: {error.strerror}{held}"


def run(settings: config.Config, command: Command, run_dir: Path) -> int:
    """Supervise one run of the rank; returns the exit code."""
    return Supervisor(settings, command, story.Story(settings, run_dir)).run()
