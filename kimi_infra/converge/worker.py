"""One run of ansible-runner in a process of its own: request on stdin, events on stdout.

The end of stdin cancels. A process of its own, because ansible-runner forks, polls and sets signal
handlers, which a gRPC server does not survive; because a run has one environment; and because what is
left of a run ends with it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import ansible_runner

from kimi_infra.converge import environment, events, overlay, processes, redaction, results
from kimi_infra.converge import request as requests

_GRACE_SECONDS = 10.0
"""For ansible-playbook to stop its forks after SIGTERM; then comes SIGKILL."""
_TEXTS = frozenset({"task", "message", "reason"})
"""An event's free texts, beside what a task changed and the data that was asked for."""
_LOOSE_MAX = 20
_POLL_SECONDS = 0.2
"""How often ansible-runner looks for a cancellation; its own 5 s would be felt."""


class Reporter:
    """Writes events, known secrets taken out."""

    def __init__(self, stream: TextIO, request: requests.Request) -> None:
        self._stream = stream
        self._redactor = redaction.Redactor(request.secrets)
        self._wanted = request.wanted
        self._loose: deque[str] = deque(maxlen=_LOOSE_MAX)

    def event(self, event: events.Event) -> None:
        """Write one event; nobody listens any more when the caller was killed."""
        fields = json.loads(events.dump(event))
        # Only what is free text: a secret that is also a host's name or "ok" must not take the event apart.
        for name in _TEXTS & fields.keys():
            fields[name] = self._redactor.text(fields[name])
        if isinstance(event, events.TaskEnded):
            fields["changes"] = [self._values(change) for change in fields["changes"]]
            fields["data"] = self._values(fields["data"])
        line = json.dumps(fields)
        try:
            self._stream.write(line + "\n")
        except BrokenPipeError:
            return

    def _values(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._redactor.value(value) for name, value in fields.items()}

    def raw(self, raw: Mapping[str, Any]) -> bool:
        """Take one of ansible-runner's events; False keeps it from writing the event to a file."""
        if raw["event"] in {"error", "verbose"} and raw.get("stdout"):
            self._loose.append(str(raw["stdout"]))
        found = results.event(raw, self._wanted)
        if found is not None:
            self.event(found)
        return False

    @property
    def loose(self) -> str:
        """What Ansible last said outside of any task, for example of a playbook that it cannot read."""
        return "\n".join(self._loose)


class Cancellation:
    """The end of standard input, and what follows from it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._over = threading.Event()
        self._hard = threading.Event()

    def watch(self) -> None:
        """Wait for the end of stdin, then end the run: gently first."""
        sys.stdin.read()
        self.asked.set()
        stopped: set[int] = set()
        end = time.monotonic() + _GRACE_SECONDS
        # Again and again: asked early, the playbook is only about to start.
        while time.monotonic() < end:
            # Its own handler ends the forks, which left its process group; asked twice, it might not.
            for child in set(processes.children(os.getpid())) - stopped:
                processes.stop(child)
                stopped.add(child)
            if self._over.wait(_POLL_SECONDS):
                break
        self._hard.set()

    def over(self) -> None:
        """The run has ended."""
        self._over.set()

    def hard(self) -> bool:
        """Whether ansible-runner is to kill the run now."""
        return self._hard.is_set()


def run(request: requests.Request, private: Path, reporter: Reporter, cancellation: Cancellation) -> str:
    """Run the playbook and return ansible-runner's status; ``private`` is a folder in memory."""
    _settings(request, private)
    inventory = Path(request.inventory)
    if request.hosts:
        inventory = overlay.write(inventory, request.hosts, private / "inventory-copy")
    done = ansible_runner.run(
        private_data_dir=str(private),
        project_dir=request.root,
        playbook=request.playbook,
        inventory=str(inventory),
        cmdline="--diff --check" if request.check else "--diff",
        tags=",".join(request.tags) or None,
        timeout=request.seconds,
        envvars={**request.environ, **environment.ansible(request.root, private)},
        ident="run",
        quiet=True,
        suppress_env_files=True,
        # Runner would set up a cache of facts on disk.
        fact_cache_type="",
        event_handler=reporter.raw,
        cancel_callback=cancellation.hard,
    )
    return "canceled" if cancellation.asked.is_set() else str(done.status)


def _settings(request: requests.Request, private: Path) -> None:
    """Write what ansible-runner 2.4.3 must read from files.

    With ``suppress_env_files`` its ``settings=`` is dropped, and ``extravars=`` would go on a command line.
    """
    settings = {
        "suppress_output_file": True,
        "suppress_ansible_output": True,
        "pexpect_timeout": _POLL_SECONDS,
    }
    for folder in ("env", "tmp", "cp"):
        (private / folder).mkdir(mode=0o700)
    (private / "env/settings").write_text(json.dumps(settings), encoding="utf-8")
    (private / "env/extravars").write_text(json.dumps(dict(request.variables)), encoding="utf-8")


def hidden_changes(private: Path) -> tuple[tuple[str, str], ...]:
    """Return what the callback ``kimi_hidden_changes`` has noted."""
    file = private / environment.HIDDEN_CHANGES
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return tuple((host, uuid) for host, _, uuid in (line.partition("\t") for line in lines))


def memory_folder(environ: Mapping[str, str]) -> str | None:
    """Return a folder that is never on a disk, None where the machine has none."""
    candidates = (environ.get("XDG_RUNTIME_DIR"), "/dev/shm")  # noqa: S108 - a private folder is made in it
    return next((path for path in candidates if path and os.access(path, os.W_OK)), None)


def main() -> None:
    """Run one request."""
    os.umask(0o077)
    processes.adopt_orphans()
    request = requests.load(sys.stdin.readline())
    # Whatever a library prints must not get between the events.
    stream = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    os.environ.clear()
    os.environ.update(request.environ)
    reporter, cancellation = Reporter(stream, request), Cancellation()
    threading.Thread(target=cancellation.watch, daemon=True).start()
    private = Path(tempfile.mkdtemp(prefix="kimi-", dir=memory_folder(request.environ)))
    ended = events.Ended(status=events.Status.CRASHED)
    try:
        status = events.Status(run(request, private, reporter, cancellation))
        failed = status is events.Status.FAILED
        reason = reporter.loose if failed else ""
        ended = events.Ended(status=status, reason=reason, hidden=hidden_changes(private))
    except Exception as error:  # noqa: BLE001 - the caller is told, whatever it is
        ended = events.Ended(status=events.Status.CRASHED, reason=f"{type(error).__name__}: {error}")
    finally:
        cancellation.over()
        processes.kill_descendants()
        shutil.rmtree(private, ignore_errors=True)
        reporter.event(ended)
        stream.flush()
        # The watching thread still reads stdin.
        os._exit(0)


if __name__ == "__main__":
    main()
