"""The supervisor's own state in /run, and whether it still is what lies on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import config, host, unitfile

RUN_DIR = Path("/run/kimi-infra")
"""Emptied by every boot, so a state never outlives the pid in it by a boot."""


def path(run_dir: Path, deployment: str) -> Path:
    """Where the state of a deployment's rank lies."""
    return run_dir / deployment / "state.json"


def load(file: Path) -> dict[str, Any]:
    """The state as last written; empty when there is none or it cannot be understood."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def save(file: Path, state: Mapping[str, Any]) -> None:
    """Write the state so that a reader sees the old one or the new one, and root alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(state, stream, sort_keys=True)
        stream.write("\n")
    fresh.replace(file)


def digests(files: Iterable[str]) -> dict[str, str | None]:
    """SHA-256 of each file's content; None for one that cannot be read."""
    found: dict[str, str | None] = {}
    for name in files:
        try:
            found[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
        except OSError:
            found[name] = None
    return found


def running(state: Mapping[str, Any]) -> bool:
    """Whether the supervisor that wrote this state is still there."""
    pid, started = state.get("pid"), state.get("started")
    return isinstance(pid, int) and started is not None and host.start_ticks(pid) == started


def command(argv: Sequence[str]) -> tuple[str, ...]:
    """What stands behind the first ``--``: the engine's command."""
    return tuple(argv[argv.index("--") + 1 :]) if "--" in argv else ()


def _running_command(pid: int) -> tuple[str, ...]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return command(tuple(os.fsdecode(raw).rstrip("\0").split("\0")))


def changes(state: Mapping[str, Any], settings: config.Config, unit_file: Path | None) -> list[str]:
    """How the running supervisor differs from the files now on disk; empty when it does not."""
    if not running(state):
        return []
    then = state.get("inputs")
    before = then if isinstance(then, dict) else {}
    now = digests(settings.inputs)
    found = [f"{name} changed" for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if unit_file is not None:
        wanted = unitfile.exec_start(unit_file)
        if wanted is None or command(wanted) != _running_command(int(state["pid"])):
            found.append(f"the command in {unit_file} changed")
    return found
