"""hosts.yml: groups and variables by the rules of Ansible's YAML inventory.

Sources of the rules: ansible 2.19, plugins/inventory/yaml.py (order of reading), inventory/group.py
(depth) and inventory/helpers.py (which group wins: the deeper, the higher priority, the later name).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kimi_infra.config.models import HostModel
from kimi_infra.config.reading import Findings
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names

ROOT = "all"
_SECTIONS = ("hosts", "vars", "children")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OTHER_SPELLINGS = {
    "ansible_private_key_file": "ansible_ssh_private_key_file",
    "ansible_ssh_host": "ansible_host",
    "ansible_ssh_port": "ansible_port",
    "ansible_ssh_user": "ansible_user",
}
"""Ansible obeys these as well, some of them before the spelling that is read here."""
_PIN_SWITCHES = frozenset({"ansible_host_key_checking", "ansible_ssh_host_key_checking"})
_SSH_ARGUMENTS = frozenset(
    {"ansible_ssh_args", "ansible_ssh_common_args", "ansible_sftp_extra_args", "ansible_scp_extra_args"}
)
_PIN_OPTIONS = re.compile(
    r"StrictHostKeyChecking|(User|Global)KnownHostsFile|KnownHostsCommand|HostKeyAlias|VerifyHostKeyDNS"
    r"|NoHostAuthenticationForLocalhost",
    re.IGNORECASE,
)
"""Options of ssh that decide whom to believe; the first one on a command line wins."""


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
        hosts = list(self.groups[group].hosts)
        for child in self.groups[group].children:
            hosts += self.members(child)
        return tuple(dict.fromkeys(hosts))

    def is_complete(self, group: str) -> bool:
        """Tell whether all hosts of a group and below it could be read."""
        return not any(group == ROOT or self.reaches(group, name) for name in self.incomplete)

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
        if above == below:
            return True
        children = self.groups[above].children if above in self.groups else []
        return any(self.reaches(child, below) for child in children)

    def host(self, name: str, place: Place) -> dict[str, Place]:
        """Return the host's own variables, to be filled while reading."""
        self.places.setdefault(name, place)
        return self._own.setdefault(name, {})

    def _groups_of(self, host: str) -> list[str]:
        return [name for name in self.groups if host in self.members(name)]

    def _precedence(self, name: str) -> tuple[int, int, str]:
        return (self._depth(name), self.groups[name].priority, name)

    def _depth(self, name: str) -> int:
        if name == ROOT:
            return 0
        above = [parent for parent, group in self.groups.items() if name in group.children]
        return 1 + max((self._depth(parent) for parent in above), default=0)


def read(root: Place, found: Findings) -> HostsFile:
    """Return what a hosts.yml says; faults of single hosts' values are not looked for here."""
    result = HostsFile()
    if not isinstance(root.value, dict):
        found.faults.append(root.fault("a mapping of groups is expected", "write group: {hosts: {...}}"))
    for name, place in root.fields.items():
        _group(name, place, result, found)
    return result


def _group(name: str, place: Place, result: HostsFile, found: Findings) -> None:
    if not _GROUP.fullmatch(name):
        what = "not a group name that Ansible accepts"
        found.faults.append(
            place.fault(what, "use letters, digits and underscores, a letter first", got=False)
        )
    group = result.groups.setdefault(name, Group(place=place))
    if place.value is None:
        return
    if not isinstance(place.value, dict):
        found.faults.append(place.fault("a group is a mapping", f"use the keys {', '.join(_SECTIONS)}"))
    for key, section in place.fields.items():
        entries = _section(key, section, found)
        if key == "vars":
            _check_variables(entries, found)
            group.variables |= entries
        elif key == "children":
            for child, below in entries.items():
                _child(name, child, below, result, found)
        elif key == "hosts":
            for host, variables in entries.items():
                _host(name, host, variables, result, found)


def _section(key: str, place: Place, found: Findings) -> dict[str, Place]:
    if key not in _SECTIONS:
        found.faults.append(place.fault("unknown key", names.closest(key, _SECTIONS), got=False))
        return {}
    if isinstance(place.value, str) and key != "vars":
        return {place.value: place.under(place.value)}  # Ansible takes one name for a mapping of it
    if place.value is not None and not isinstance(place.value, dict):
        found.faults.append(place.fault("a mapping is expected", "write each name with a colon after it"))
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
        found.faults.append(place.fault(what, remedy, got=False))
        result.incomplete.add(group)
        return
    if place.value is not None and not isinstance(place.value, dict):
        found.faults.append(place.fault("a host is a mapping of its variables", "write name: {key: value}"))
    _check_variables(place.fields, found)
    own = result.host(name, place)
    own |= place.fields
    if name not in result.groups[group].hosts:
        result.groups[group].hosts.append(name)


def _check_variables(variables: dict[str, Place], found: Findings) -> None:
    for name, place in variables.items():
        _check_pinning(name, place, found)
        if name in _OTHER_SPELLINGS:
            remedy = f"write {_OTHER_SPELLINGS[name]}"
            found.faults.append(place.fault("a spelling that is not read here", remedy, got=False))
        elif name not in HostModel.model_fields and not name.startswith("ansible_"):
            remedy = names.closest(name, HostModel.model_fields)
            found.faults.append(place.fault("unknown variable", remedy, got=False))


def _check_pinning(name: str, place: Place, found: Findings) -> None:
    if name == "ansible_ssh_extra_args":
        remedy = "remove it; other options of ssh go to ansible_ssh_common_args"
        found.faults.append(place.fault("kimi_infra pins host keys with this variable", remedy, got=False))
    if name in _PIN_SWITCHES:
        found.faults.append(place.fault("host keys are always checked", "remove it", got=False))
    if name not in _SSH_ARGUMENTS or place.value is None:
        return
    if not isinstance(place.value, str) or "{{" in place.value:
        what = "options of ssh that cannot be read here"
        found.faults.append(place.fault(what, "write them as one plain text", got=False))
    elif match := _PIN_OPTIONS.search(place.value):
        what = f"{match[0]} would undo the pinned host keys"
        found.faults.append(place.fault(what, "remove it; the keys come from host_key", got=False))
