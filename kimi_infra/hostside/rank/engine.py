"""The engine's container: started, asked about and stopped through the docker client."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Sequence

from . import loop

_DOCKER_SECONDS = 60.0
"""For a call to the docker daemon that does not wait for a container."""
_MARGIN_SECONDS = 10.0
"""What ``docker stop`` may take above its own limit, and the client after that."""

_NO_CONTAINER = "no such container"
"""In full: a daemon that is down has "no such file or directory" in the client's message."""


class EngineError(Exception):
    """Docker does not do what is needed; the message is docker's own."""


def _docker(docker: str, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            (docker, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOCKER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"docker {words[0]} failed: {error}") from error


def remove_leftover(docker: str, container: str) -> bool:
    """Remove the container of exactly this name; False when there is none."""
    found = _docker(docker, "container", "inspect", "--format", "{{.Id}}", container)
    if found.returncode != 0:
        if _NO_CONTAINER in found.stderr.lower():
            return False
        raise EngineError(f"docker does not answer: {found.stderr.strip()[:300]}")
    removed = _docker(docker, "rm", "--force", container)
    # --rm may have taken it between the two calls.
    if removed.returncode != 0 and _NO_CONTAINER not in removed.stderr.lower():
        raise EngineError(f"container {container} cannot be removed: {removed.stderr.strip()[:300]}")
    return True


class Engine:
    """One run of the container in the foreground of its docker client."""

    def __init__(
        self, events: loop.Loop, argv: Sequence[str], container: str, ended: Callable[[int], None]
    ) -> None:
        self._loop, self._argv, self._container, self._ended = events, tuple(argv), container, ended
        self._docker = self._argv[0]
        self._client: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the docker client is there."""
        return self._client is not None

    def start(self) -> None:
        """Start; the engine's output is the supervisor's. OSError when docker is not there."""
        # A session of its own: a terminal's Ctrl-C is for the supervisor, which stops in order.
        self._client = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, start_new_session=True)
        self._loop.child(self._client, self._over)

    def ask_pid(self, answered: Callable[[int], None]) -> None:
        """Call back with the host's pid of the container's first process, once it has one."""
        query = subprocess.Popen(
            (self._docker, "inspect", "--format", "{{.State.Pid}}", self._container),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

        def done(code: int) -> None:
            assert query.stdout is not None  # noqa: S101 - for the type only; it is a pipe
            with query.stdout as stream:
                text = stream.read().strip()
            answered(int(text) if code == 0 and text.isdigit() else 0)

        self._loop.child(query, done)

    def stop(self, seconds: float) -> None:
        """Ask the container to end; after the limit it is killed. ``ended`` is called as ever."""
        order = subprocess.Popen(
            (self._docker, "stop", "--time", f"{seconds:.0f}", self._container),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self._loop.child(order, self._stop_ordered)
        self._loop.after(seconds + _MARGIN_SECONDS, self._kill_client)
        self._loop.after(seconds + _MARGIN_SECONDS, lambda: _kill(order))

    def _stop_ordered(self, _code: int) -> None:
        # Docker also says that it is done when it never heard of the container: then the client is to go.
        self._loop.after(_MARGIN_SECONDS / 2, self._kill_client)

    def _kill_client(self) -> None:
        if self._client is not None:
            _kill(self._client)

    def _over(self, code: int) -> None:
        self._client = None
        self._ended(code)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
