"""``group_vars/`` and ``host_vars/`` of an inventory: Ansible reads them, the plan does not.

A key that counts for the plan must not stand there: Ansible would take it and the plan another value.
Source of the file names: ansible 2.19, parsing/dataloader.py (``find_vars_files``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kimi_infra.config import variables, yamlfile
from kimi_infra.config.hosts import ROOT, HostsFile, is_group
from kimi_infra.config.models import HostModel
from kimi_infra.config.yamlfile import Place
from kimi_infra.errors import Fault

_SUFFIXES = (".yml", ".yaml", ".json")


def faults(inventory: Path, groups: HostsFile) -> Iterator[Fault]:
    """Find what Ansible would read from these folders and the plan from hosts.yml."""
    # Other names are faults of hosts.yml already, and one such as / or .. leads out of the inventory.
    named = (name for name in groups.groups if is_group(name))
    for folder, owners in (("group_vars", (ROOT, "ungrouped", *named)), ("host_vars", groups.places)):
        for owner in dict.fromkeys(owners):
            yield from _owner(inventory, Path(folder) / owner)


def _owner(inventory: Path, place: Path) -> Iterator[Fault]:
    try:
        files = tuple(_files(inventory / place))
    except OSError:
        yield Fault(
            where=str(place), what="it cannot be looked for", remedy="make it readable, or use a shorter name"
        )
        return
    for file in files:
        yield from _file(file, str(file.relative_to(inventory)))


def _files(base: Path) -> Iterator[Path]:
    candidates = (base.with_name(f"{base.name}{suffix}") for suffix in ("", *_SUFFIXES))
    found = next((path for path in candidates if path.exists()), None)
    if found is not None:
        yield from _below(found) if found.is_dir() else (found,)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith("~"):
            continue
        if path.is_dir() and not path.suffix:
            yield from _below(path)
        elif path.is_file() and path.suffix in {"", *_SUFFIXES}:
            yield path


def _file(file: Path, name: str) -> Iterator[Fault]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        yield Fault(where=name, what="the file cannot be read", remedy="make it a readable UTF-8 text")
        return
    found: list[Fault] = []
    root = yamlfile.parse(text, name, found)
    if root is None:
        yield from (fault for fault in found if fault.what != yamlfile.EMPTY)
        return
    # A vault of the whole file is one scalar to YAML: it has no fields to judge.
    for key, place in root.fields.items():
        yield from _variable(key, place)


def _variable(key: str, place: Place) -> Iterator[Fault]:
    if key in HostModel.model_fields or key in variables.OTHER_SPELLINGS:
        what = "Ansible would take this value and the plan the one of hosts.yml"
        yield place.fault(what, "write it in hosts.yml", got=False)
    else:
        yield from variables.pinning(key, place)
