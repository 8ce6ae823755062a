"""Receipts: what a host was like before a role changed it, kept on the host until teardown."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any


def read(path: str) -> Any:
    """Return the receipt, or None when none was ever taken."""
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write(path: str, data: dict[str, Any]) -> None:
    """Keep a receipt, for root only: it may hold what a private file said."""
    pathlib.Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace(path, json.dumps(data, indent=2, sort_keys=True) + "\n", mode=0o600)


def drop(path: str) -> None:
    """Forget a receipt that was acted upon."""
    pathlib.Path(path).unlink(missing_ok=True)


def replace(path: str, text: str, *, mode: int) -> None:
    """Write a file so that a reader, or a power loss, sees the old text or the new one."""
    handle, name = tempfile.mkstemp(prefix=".kimi-", dir=pathlib.Path(path).parent)
    temporary = pathlib.Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
