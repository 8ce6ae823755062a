"""Ansible's own programs, run from the checkout in an environment built from nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ansible(
    *words: str, home: Path, path: str | None = None, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's programs from this environment."""
    environment = {
        "PATH": path or os.environ["PATH"],
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "1",
        **(environ or {}),
    }
    program = str(Path(sys.executable).parent / words[0])
    return subprocess.run(
        [program, *words[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
