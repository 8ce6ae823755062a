"""Content hashes of the files that a stage runs, so that a changed role is a difference that can be seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from kimi_infra.cloud.stages import Stage

_SHOWN = 16
"""Hexadecimal digits: 64 bits tell versions of a file apart."""
_INVENTORY = ("hosts.yml", "group_vars", "host_vars")
"""What Ansible itself reads of an inventory. deployment.yml is not among them: all that a stage takes from it
is in the plan, so that an edit touches the stages that it concerns."""


def root() -> Path:
    """Return the folder of the checkout: ansible.cfg, playbooks, roles, plugins."""
    return Path(__file__).resolve().parents[2]


def hashes(stage: Stage, tree: Path, inventory: Path) -> dict[str, str]:
    """Return a hash of each part that the stage depends on, by the part's path."""
    common = ("ansible.cfg", "plugins", "playbooks/group_vars", "playbooks/check.yml")
    ours = (*common, f"playbooks/{stage.playbook}", f"roles/{stage.role}")
    found = {name: _hash(tree / name) for name in ours if (tree / name).exists()}
    named = {f"inventory/{name}": inventory / name for name in _INVENTORY if (inventory / name).exists()}
    return {**found, **{name: _hash(path) for name, path in named.items()}}


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(_files(path)):
        digest.update(f"{file.relative_to(path)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:_SHOWN]


def _files(path: Path) -> Iterator[Path]:
    candidates: Iterable[Path] = path.rglob("*") if path.is_dir() else (path,)
    return (file for file in candidates if file.is_file() and "__pycache__" not in file.parts)
