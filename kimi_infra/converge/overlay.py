"""An inventory directory with values for its hosts that another Pulumi resource gave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

GROUP = "kimi_given"
"""Group of the given values: behind all others, so that its values win."""
_HOSTS = "hosts.yml"


def write(inventory: Path, hosts: Mapping[str, Mapping[str, object]], folder: Path) -> Path:
    """Make a copy of an inventory directory below ``folder`` and return it.

    Everything but hosts.yml is a link, so that what is relative to the inventory is found;
    what lies outside of it (``../key``) is not.
    """
    copy = folder / inventory.name
    copy.mkdir(parents=True)
    for entry in inventory.iterdir():
        if entry.name != _HOSTS:
            (copy / entry.name).symlink_to(entry)
    # A line behind the operator's text: nothing of it is read and written again (!vault, comments).
    given = json.dumps({"hosts": hosts}, sort_keys=True)
    text = (inventory / _HOSTS).read_text(encoding="utf-8")
    (copy / _HOSTS).write_text(f"{text.rstrip()}\n{GROUP}: {given}\n", encoding="utf-8")
    return copy
