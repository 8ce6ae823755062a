"""Puts this language host beside a CLI that came without one: ``python3 tools/langhost/lay.py FOLDER``.

The official one, where it is there, stays. Standard library only.
Each state of our files gets a folder of its own, and the program is a link into one: a change is one step,
and a host that is running keeps its modules.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

OURS = Path(__file__).resolve().parent
PROGRAM = "pulumi-language-python"
FILES = (PROGRAM, "launch.py", "host.py", "program.py")


def lay(programs: Path) -> bool:
    """Lay or renew the language host in a folder of programs; say whether something changed."""
    program = programs / PROGRAM
    if program.exists() and not program.is_symlink():
        return False
    link = Path("..", copy_into(programs.parent).name, PROGRAM)  # relative, so that the cache may be moved
    if program.is_symlink() and program.readlink() == link:
        return False
    fresh = program.with_name(f".{PROGRAM}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(link)
    fresh.replace(program)
    return True


def copy_into(folder: Path) -> Path:
    """Copy our files, once for each state of them."""
    hashed = hashlib.sha256()
    for name in FILES:
        hashed.update((OURS / name).read_bytes())
    copied = folder / f"langhost-{hashed.hexdigest()[:12]}"
    if not copied.exists():
        new = folder / f"{copied.name}.new.{os.getpid()}"
        new.mkdir()
        for name in FILES:
            shutil.copy(OURS / name, new / name)
        new.rename(copied)
    return copied


if __name__ == "__main__":
    if lay(Path(sys.argv[1]).resolve()):
        print(f"Our own {PROGRAM} is laid into {sys.argv[1]}.", file=sys.stderr)
