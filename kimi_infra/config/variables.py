"""Variables of hosts.yml: which are known, which would undo the pinned host keys, which hold a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kimi_infra.config.models import HostModel
from kimi_infra.config.yamlfile import Encrypted, Place
from kimi_infra.domain import names
from kimi_infra.errors import Fault

OTHER_SPELLINGS = {
    "ansible_private_key_file": "ansible_ssh_private_key_file",
    "ansible_ssh_host": "ansible_host",
    "ansible_ssh_port": "ansible_port",
    "ansible_ssh_user": "ansible_user",
}
"""Ansible obeys these as well, some of them before the spelling that is read here."""
PINS = frozenset({"ansible_ssh_extra_args", "ansible_sftp_extra_args", "ansible_scp_extra_args"})
"""Set by playbooks/group_vars/all.yml; a host's own value would win over it."""
_PIN_SWITCHES = frozenset({"ansible_host_key_checking", "ansible_ssh_host_key_checking"})
_SSH_ARGUMENTS = frozenset({"ansible_ssh_args", "ansible_ssh_common_args"})
_PIN_OPTIONS = re.compile(
    r"StrictHostKeyChecking|(User|Global)KnownHostsFile|KnownHostsCommand|HostKeyAlias|VerifyHostKeyDNS"
    r"|NoHostAuthenticationForLocalhost",
    re.IGNORECASE,
)
"""Options of ssh that decide whom to believe; the first one on a command line wins."""
_SECRET = re.compile(r"ansible_(\w+_)?(pass|password|passphrase|private_key|token|secret)")
"""Variables of Ansible's plugins for connections and for becoming root that are secrets themselves."""
_LOOKED_UP = re.compile(r"\s*\{\{-?\s*[A-Za-z_]((?!\}\}).)*\}\}\s*", re.DOTALL)
"""One expression that begins with a name, not with a literal, and nothing around it."""


def faults(variables: Mapping[str, Place]) -> Iterator[Fault]:
    """Find what is wrong with variables whatever host they hold for; values are read elsewhere."""
    for name, place in variables.items():
        yield from pinning(name, place)
        yield from _secret(name, place)
        if name in OTHER_SPELLINGS:
            remedy = f"write {OTHER_SPELLINGS[name]}"
            yield place.fault("a spelling that is not read here", remedy, got=False)
        elif name not in HostModel.model_fields and not name.startswith("ansible_"):
            yield place.fault("unknown variable", names.closest(name, HostModel.model_fields), got=False)


def pinning(name: str, place: Place) -> Iterator[Fault]:
    """Find what would undo the pinned host keys."""
    if name in PINS:
        remedy = "remove it; other options of ssh go to ansible_ssh_common_args"
        yield place.fault("kimi_infra pins host keys with this variable", remedy, got=False)
    if name in _PIN_SWITCHES:
        yield place.fault("host keys are always checked", "remove it", got=False)
    if name not in _SSH_ARGUMENTS or place.value is None:
        return
    if not isinstance(place.value, str) or "{{" in place.value:
        what = "options of ssh that cannot be read here"
        yield place.fault(what, "write them as one plain text", got=False)
    elif match := _PIN_OPTIONS.search(place.value):
        what = f"{match[0]} would undo the pinned host keys"
        yield place.fault(what, "remove it; the keys come from host_key", got=False)


def _secret(name: str, place: Place) -> Iterator[Fault]:
    if not _SECRET.fullmatch(name) or place.value is None or isinstance(place.value, Encrypted):
        return
    if not isinstance(place.value, str) or not _LOOKED_UP.fullmatch(place.value):
        remedy = (
            "encrypt it with ansible-vault encrypt_string or write \"{{ lookup('env', 'NAME') }}\","
            " and change the secret if this was shared"
        )
        yield place.fault("a secret given as a literal", remedy, got=False)
