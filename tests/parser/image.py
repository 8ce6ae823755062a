"""The serving image's own Python, which has vLLM's CPU build, run on this machine.

The image and the runtime are the lab's (:mod:`kimi_infra.lab`), built if they are not there.
"""

from __future__ import annotations

from pathlib import Path

from kimi_infra.lab import api, filesystems, layout, mirror, runtime

INSIDE = "/run/kimi-parser"
PYTHON = f"{layout.SHARED_PATH}/runtime/bin/python"
# What the program prints by accident must not stand between its answers.
_SHELL = 'exec 3>&1 1>&2 && exec "$@"'


def command(program: Path) -> list[str]:
    """Return the call that runs a program in the image: no network, nothing written stays.

    The program answers on file descriptor 3, which is the call's standard output.
    """
    api.build(print)
    cache = layout.current().cache
    image = filesystems.image_root(cache, mirror.find())
    return [
        "systemd-nspawn",
        "--quiet",
        f"--directory={image.path / 'root'}",
        "--machine=kimi-parser",
        "--volatile=overlay",
        "--as-pid2",
        "--register=no",
        "--keep-unit",
        "--console=pipe",
        "--private-network",
        f"--bind-ro={runtime.cached(cache, image).path}:{layout.SHARED_PATH}",
        f"--bind-ro={program.parent}:{INSIDE}",
        *("/bin/sh", "-c", _SHELL, "sh", PYTHON, f"{INSIDE}/{program.name}"),
    ]
