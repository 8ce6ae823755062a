"""What a run costs that changes nothing: `pulumi up` beside `ansible-playbook`, on the lab, in turn.

Needs the lab with its stack up (./run up). Prints each run's wall seconds, the medians and their ratio:

    .venv/bin/python benchmarks/noop.py [PAIRS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kimi_infra import lab

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
STACK = "lab-2node"


def seconds(command: Sequence[str], environ: Mapping[str, str]) -> float:
    """Run a command that must succeed and return its wall time."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return time.monotonic() - began


def main() -> None:
    """Measure in pairs, so that a machine that slows down slows both."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    getter = [sys.executable, str(ROOT / "tools/setup/get_pulumi.py")]
    folder = subprocess.run(getter, capture_output=True, text=True, check=True).stdout.strip()
    environ = {**os.environ, **lab.pulumi_environment(), "PATH": f"{folder}:{BIN}:{os.environ['PATH']}"}
    options = ["--stack", STACK, "--non-interactive", "--yes"]
    commands = {
        "pulumi up": ["pulumi", "up", *options, "--expect-no-changes"],
        "pulumi up --refresh": ["pulumi", "up", *options, "--refresh", "--expect-no-changes"],
        "ansible-playbook site.yml": [
            *(str(BIN / "ansible-playbook"), "-i", f"inventories/{STACK}"),
            "playbooks/site.yml",
        ],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(pairs):
        for name, command in commands.items():
            taken[name].append(seconds(command, environ))
    for name, values in taken.items():
        runs = " ".join(f"{value:.1f}" for value in values)
        print(f"{name:<26} median {statistics.median(values):6.1f} s   runs {runs}")
    plain = statistics.median(taken["ansible-playbook site.yml"])
    for name in list(taken)[:2]:
        print(f"{name} / ansible-playbook: {statistics.median(taken[name]) / plain:.2f}")


main()
