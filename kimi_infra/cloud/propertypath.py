"""Pulumi's property paths: ``plan.kimi["tray-a"].command[3]``."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
"""Names that the engine's parser takes without quotes (sdk/go/common/resource/property_path.go)."""


def joined(path: str, step: str | int) -> str:
    """Return the path of a child."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    if _PLAIN.fullmatch(step):
        return f"{path}.{step}" if path else step
    return f"{path}[{json.dumps(step, ensure_ascii=False)}]"


def root(path: str) -> str:
    """Return the property that a path begins with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]
