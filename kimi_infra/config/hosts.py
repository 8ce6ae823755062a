"""hosts.yml: groups and variables by the rules of Ansible's YAML inventory.

Sources of the rules: ansible 2.19, plugins/inventory/yaml.py (order of reading), inventory/group.py
(depth) and inventory/helpers.py (which group wins: the deeper, the higher priority, the later name).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kimi_infra.config import variables
from kimi_infra.config.reading import Findings
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names

ROOT = "all"
_SECTIONS = ("hosts", "vars", "children")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_group(name: str) -> bool:
    """Tell whether a name is that of a group; any other is a fault, and may be a path."""
    return _GROUP.fullmatch(name) is not None


@dataclass(slots=True, kw_only=True)
class Group:
    """One group, collected from all the places that name it."""

    place: Place
    hosts: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    variables: dict[str, Place] = field(default_factory=dict)

    @property
    def priority(self) -> int:
        """Ansible's tie-break between groups of one depth."""
        place = self.variables.get("ansible_group_priority")
        return place.value if place and isinstance(place.value, int) else 1


class HostsFile:
    """Groups, hosts and the variables that hold for each host."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.places: dict[str, Place] = {}
        """Host → where it is named first."""
        self.incomplete: set[str] = set()
        """Groups that name a host which cannot be read: what they count is not known."""
        self._own: dict[str, dict[str, Place]] = {}

    def members(self, group: str) -> tuple[str, ...]:
        """Return the hosts of a group and of all groups below it."""
        if group == ROOT:
            return tuple(self.places)
        below = _reachable((group,), self._children_of)
        return tuple(dict.fromkeys(host for name in below for host in self.groups[name].hosts))

    def is_complete(self, group: str) -> bool:
        """Tell whether all hosts of a group and below it could be read."""
        return not any(group == ROOT or self.reaches(group, name) for name in self.incomplete)

    def has_child(self, group: str, name: str) -> bool:
        """Tell whether ``name`` is a group right below another."""
        return name in self.groups and (group == ROOT or name in self._children_of(group))

    def variables(self, host: str) -> Place:
        """Return a mapping of the variables that hold for a host, each with its own place."""
        merged: dict[str, Place] = {}
        for name in sorted(self._groups_of(host), key=self._precedence):
            merged |= self.groups[name].variables
        merged |= self._own[host]
        place = self.places[host]
        return Place(file=place.file, path=place.path, value=merged, line=place.line)

    def reaches(self, above: str, below: str) -> bool:
        """Tell whether ``below`` is ``above`` or a group somewhere under it."""
        return below in _reachable((above,), self._children_of)

    def host(self, name: str, place: Place) -> dict[str, Place]:
        """Return the host's own variables, to be filled while reading."""
        self.places.setdefault(name, place)
        return self._own.setdefault(name, {})

    def _children_of(self, name: str) -> Sequence[str]:
        return self.groups[name].children if name in self.groups else ()

    @functools.cached_property
    def _parents(self) -> Mapping[str, Sequence[str]]:
        """The groups right above each one; asked for when everything is read."""
        parents: dict[str, list[str]] = {name: [] for name in self.groups}
        for name, group in self.groups.items():
            for child in group.children:
                parents[child].append(name)
        return parents

    @functools.cached_property
    def _depths(self) -> Mapping[str, int]:
        """The longest way up from each group; each is settled once all above it are."""
        depths = {name: int(name != ROOT) for name in self.groups}
        waiting = {name: len(above) for name, above in self._parents.items()}
        settled = [name for name, count in waiting.items() if not count]
        for name in settled:  # a queue that grows while it is worked off
            for child in self.groups[name].children:
                depths[child] = max(depths[child], depths[name] + 1)
                waiting[child] -= 1
                if not waiting[child]:
                    settled.append(child)
        return depths

    def _groups_of(self, host: str) -> Iterable[str]:
        own = [name for name, group in self.groups.items() if host in group.hosts]
        every = [ROOT] if ROOT in self.groups else []
        return dict.fromkeys([*_reachable(own, self._parents.__getitem__), *every])

    def _precedence(self, name: str) -> tuple[int, int, str]:
        return (self._depths[name], self.groups[name].priority, name)


def _reachable(start: Iterable[str], steps: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """Return ``start`` and all that follows, each once: chains may be long and meet again."""
    found: dict[str, None] = {}
    waiting = [*start][::-1]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            waiting += steps(name)[::-1]
    return tuple(found)


def read(root: Place, found: Findings) -> HostsFile:
    """Return what a hosts.yml says; faults of single hosts' values are not looked for here."""
    result = HostsFile()
    if not isinstance(root.value, dict):
        what = "a mapping of groups is expected"
        found.faults.append(root.fault(what, "write group: {hosts: {...}}", got=False))
    for name, place in root.fields.items():
        _group(name, place, result, found)
    return result


def _group(name: str, place: Place, result: HostsFile, found: Findings) -> None:
    if not is_group(name):
        what = "not a group name that Ansible accepts"
        found.faults.append(
            place.fault(what, "use letters, digits and underscores, a letter first", got=False)
        )
    group = result.groups.setdefault(name, Group(place=place))
    if place.value is None:
        return
    if not isinstance(place.value, dict):
        remedy = f"use the keys {', '.join(_SECTIONS)}"
        found.faults.append(place.fault("a group is a mapping", remedy, got=False))
    for key, section in place.fields.items():
        entries = _section(key, section, found)
        if key == "vars":
            found.faults.extend(variables.faults(entries))
            group.variables |= entries
        elif key == "children":
            for child, below in entries.items():
                _child(name, child, below, result, found)
        elif key == "hosts":
            for host, own in entries.items():
                _host(name, host, own, result, found)


def _section(key: str, place: Place, found: Findings) -> dict[str, Place]:
    if key not in _SECTIONS:
        found.faults.append(place.fault("unknown key", names.closest(key, _SECTIONS), got=False))
        return {}
    if isinstance(place.value, str) and key != "vars":
        return {place.value: place.under(place.value)}  # Ansible takes one name for a mapping of it
    if place.value is not None and not isinstance(place.value, dict):
        remedy = "write each name with a colon after it"
        found.faults.append(place.fault("a mapping is expected", remedy, got=False))
    return place.fields


def _child(parent: str, name: str, place: Place, result: HostsFile, found: Findings) -> None:
    if result.reaches(name, parent) or name == ROOT:
        found.faults.append(
            place.fault("the group is below itself", "remove it from the children", got=False)
        )
        return
    if name not in result.groups[parent].children:
        result.groups[parent].children.append(name)
    _group(name, place, result, found)


def _host(group: str, name: str, place: Place, result: HostsFile, found: Findings) -> None:
    if not _HOST.fullmatch(name):
        what = "a range of hosts" if "[" in name else "not a host name"
        remedy = "write each host with its own values; letters, digits, dots and dashes make its name"
        # Variables written as in an INI file stand in the name, a password may be among them.
        shown = dataclasses.replace(place, path=place.path[:-1]) if "=" in name else place
        found.faults.append(shown.fault(what, remedy, got=False))
        result.incomplete.add(group)
        return
    if place.value is not None and not isinstance(place.value, dict):
        what = "a host is a mapping of its variables"
        found.faults.append(place.fault(what, "write name: {key: value}", got=False))
    found.faults.extend(variables.faults(place.fields))
    own = result.host(name, place)
    own |= place.fields
    if name not in result.groups[group].hosts:
        result.groups[group].hosts.append(name)
