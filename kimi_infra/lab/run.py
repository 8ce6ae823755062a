"""The one place where the lab calls other programs and waits for them."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence

from kimi_infra.errors import LabError
from kimi_infra.lab import requirements

_TAIL = 15
"""Lines of a failed program's output that are worth reading."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with the administrator's folders on PATH and untranslated messages."""
    return {**os.environ, "PATH": requirements.search_path(), "LC_ALL": "C.UTF-8", **(extra or {})}


def output(argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float | None = None) -> str:
    """Run to the end and give standard output; LabError with the last lines on any failure."""
    done = attempt(argv, env=env, timeout=timeout)
    if done.returncode != 0:
        raise LabError(
            f"{shlex.join(argv[:4])} …: ended with {done.returncode}: {tail(done.stderr or done.stdout)}"
        )
    return done.stdout


def attempt(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end, whatever the exit code; LabError if it cannot start or takes too long."""
    try:
        return subprocess.run(
            list(argv),
            env=dict(env) if env is not None else environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{shlex.join(argv[:4])} …: no end within {timeout:.0f} s") from error
    except OSError as error:
        raise LabError(f"{argv[0]}: cannot be started: {error.strerror}") from error


def tail(text: str) -> str:
    """The last lines of a program's output."""
    return "\n".join(text.strip().splitlines()[-_TAIL:])
