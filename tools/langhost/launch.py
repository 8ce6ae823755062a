"""Starts the language host under a Python that has Pulumi's SDK.

Standard library only: any Python 3 of the machine may run it.
It looks at the environment that is active, then at the nearest ``.venv`` upwards of the working directory
(the engine starts a language host in the project's folder), last at PATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HAS_SDK = """
import importlib.util, sys
spec = importlib.util.find_spec("pulumi")
sys.exit(spec is None or spec.origin is None)  # a folder of that name is a package without an origin
"""


def main() -> None:
    """Become the language host."""
    seen: list[str] = []
    for python in candidates(Path.cwd()):
        if has_sdk(python):
            host = Path(__file__).resolve().with_name("host.py")
            os.execv(python, [python, str(host), *sys.argv[1:]])  # noqa: S606  no shell is meant
        seen.append(python)
    sys.exit(
        f"pulumi-language-python: no Python with Pulumi's SDK among {', '.join(seen) or 'none'}; "
        "make the project's .venv by its set-up, or activate an environment that has the package pulumi"
    )


def candidates(folder: Path) -> Iterator[str]:
    """Python programs that may hold the SDK, the likeliest first."""
    active = os.environ.get("VIRTUAL_ENV")
    environments = [Path(active)] if active else []
    environments += [parent / ".venv" for parent in (folder, *folder.parents)]
    for environment in environments:
        python = environment / "bin" / "python"
        if python.exists():
            yield str(python)
    yield sys.executable


def has_sdk(python: str) -> bool:
    """Say whether a Python can import Pulumi's SDK, without importing it: that takes a second."""
    # Isolated: neither the working directory nor PYTHONPATH may pretend.
    asked = [python, "-I", "-c", HAS_SDK]
    return subprocess.run(asked, check=False, stdin=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    main()
