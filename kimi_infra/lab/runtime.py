"""What hosts and containers see at /opt/kimi-lab: vLLM's CPU build and the tiny model.

Built inside the image's own root file system, so the controller's Python does not matter.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from kimi_infra.errors import LabError
from kimi_infra.lab import layout, requirements, run
from kimi_infra.lab.filesystems import Cached, key

INSIDE = Path(__file__).resolve().parent / "inside"
_BUILD = "/run/kimi-build"
_CERTIFICATES = "/run/kimi-certificates.pem"
# How this machine's package index is reached; nothing else of the caller's environment goes in.
_PASSED = re.compile(
    r"^(https?|no|all)_proxy$|^UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|HTTP_TIMEOUT|INDEX_STRATEGY)$"
    r"|^UV_INDEX_.*_(USERNAME|PASSWORD)$",
    re.IGNORECASE,
)


def cached(cache: Path, image: Cached) -> Cached:
    """The folder that is bound at /opt/kimi-lab; its key covers every file that goes into it."""
    inputs = sorted(path for path in INSIDE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    texts = [f"{path.relative_to(INSIDE)}\n{path.read_text(encoding='utf-8')}" for path in inputs]
    return Cached(
        path=cache / f"kimi-lab-{key(image.path.name, *texts)}",
        title="vLLM's CPU build and the tiny model",
    )


def build(part: Path, image: Path) -> None:
    """Install, compile and train in the image's root file system, of which nothing is changed."""
    bundle = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    passed = {name: value for name, value in os.environ.items() if _PASSED.match(name)}
    configurations = (Path("/etc/uv/uv.toml"), Path.home() / ".config/uv/uv.toml")
    configuration = next((path for path in configurations if path.is_file()), None)
    run.output(
        [
            "systemd-nspawn",
            "--quiet",
            f"--directory={image / 'root'}",
            "--volatile=overlay",
            "--as-pid2",
            "--register=no",
            "--keep-unit",
            "--console=pipe",
            "--resolv-conf=bind-host",
            "--bind-ro=/etc/hosts",
            f"--bind={part}:{layout.SHARED_PATH}",
            f"--bind-ro={INSIDE}:{_BUILD}",
            f"--bind-ro={uv()}:/usr/local/bin/uv",
            *([f"--bind-ro={bundle}:{_CERTIFICATES}"] if Path(bundle).is_file() else []),
            *([f"--setenv=SSL_CERT_FILE={_CERTIFICATES}"] if Path(bundle).is_file() else []),
            *(
                [f"--bind-ro={configuration}:/run/uv.toml", "--setenv=UV_CONFIG_FILE=/run/uv.toml"]
                if configuration
                else []
            ),
            *(f"--setenv={name}={value}" for name, value in passed.items()),
            "/bin/sh",
            f"{_BUILD}/build.sh",
        ]
    )


def uv() -> Path:
    """The uv program itself; what is on PATH may be a script of a version manager."""
    found = shutil.which("uv", path=requirements.search_path())
    if found is None:
        raise LabError("uv: not on PATH; install it, for example with `pip install uv`")
    path = Path(found).resolve()
    with path.open("rb") as program:
        if program.read(4) == b"\x7fELF":
            return path
    # `uv run` tells its child where uv itself lies (documented as the variable UV).
    return Path(run.output([found, "run", "--no-project", "--quiet", "--", "printenv", "UV"]).strip())
