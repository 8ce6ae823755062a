"""The project's commands: CI runs what the README says, and a step's fate is told."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture import sources

pytestmark = pytest.mark.fast


def bash(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in the tree's top, without standard input or a terminal."""
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(
        command,
        cwd=sources.ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_ci_runs_the_command_of_the_readme() -> None:
    """The last line of .ci/run is the README's test command and nothing cleverer."""
    last = sources.read(Path(".ci/run")).splitlines()[-1]
    commands = re.findall(r"^(\./run \w+)", sources.read(Path("README.md")), re.MULTILINE)
    assert commands == ["./run up", "./run test"]
    assert last == f"exec {commands[1]}"


def test_an_unknown_command_is_refused() -> None:
    """A misspelt command prints the usage and leaves with 2."""
    result = bash("./run tset")
    assert result.returncode == 2
    assert "./run test" in result.stderr


def test_a_failed_step_shows_its_log_and_stops_the_run() -> None:
    """Of two steps side by side the failed one is named with its output, the other ends, nothing follows."""
    result = bash(
        "source tools/setup/progress.sh; "
        "bad() { echo the reason; false; echo not reached; }; good() { echo quiet; }; "
        "together Good good Bad bad; echo followed"
    )
    assert result.returncode == 1
    assert re.search(r"done in \d+ s: Good\n", result.stdout)
    assert re.search(r"FAILED after \d+ s: Bad\n    \| the reason\n", result.stdout)
    assert not re.search("quiet|not reached|followed", result.stdout)


def test_a_step_longer_than_two_seconds_shows_progress() -> None:
    """A step that takes three seconds says so once before it ends."""
    result = bash("source tools/setup/progress.sh; slow() { sleep 3; }; together Slow slow")
    assert re.fullmatch(r"  \.\.\. \d s: Slow\n  done in \d s: Slow\n", result.stdout)


def test_a_shown_command_keeps_its_output_and_exit_status() -> None:
    """A command shown in full passes its exit status on, and an end leaves no scratch folder behind."""
    result = bash('source tools/setup/progress.sh; echo "$SCRATCH"; shown Ask bash -c "echo answer; exit 7"')
    assert result.returncode == 7
    assert "answer\n" in result.stdout
    assert not Path(result.stdout.splitlines()[0]).exists()


def test_the_uv_of_set_up_is_pinned_by_hash() -> None:
    """Set-up installs one version of uv, and pip refuses any file that is not of its hashes."""
    pinned = bash('source tools/setup/python.sh; echo "$UV_VERSION"').stdout.strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+", pinned)
    assert sources.read(Path("tools/setup/uv.txt")).count("--hash=sha256:") > 1
