"""The environment of Ansible and of what it starts: built from nothing, so no passphrase is inherited."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_KEPT = frozenset(
    {
        *("HOME", "USER", "LOGNAME", "LANG", "TZ", "XDG_RUNTIME_DIR"),
        # The operator's ssh agent and Kerberos tickets.
        *("SSH_AUTH_SOCK", "KRB5CCNAME"),
        # Where vault passwords are; vaults themselves are named in the inventory.
        *("ANSIBLE_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_IDENTITY_LIST"),
    }
)
HIDDEN_CHANGES = "hidden-changes"
"""File in a run's own folder; see callbacks/kimi_hidden_changes.py."""
_CONNECT_SECONDS = 8
_CONNECT_RETRIES = 1
"""A silent host is named within twice the seconds: below the 30 s that an operator is promised."""


def scrubbed(environ: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a run may see, and the secrets that its inventory asks for by name."""
    kept = {name: value for name, value in environ.items() if name in _KEPT}
    # The virtual environment's own programs first, whatever the caller's PATH is.
    path = os.pathsep.join((str(Path(sys.executable).parent), environ.get("PATH", os.defpath)))
    return {**kept, "PATH": path, "LC_ALL": "C.UTF-8", **secrets}


def ansible(root: str, private: Path) -> dict[str, str]:
    """Return Ansible's settings for one run whose own folder is ``private``."""
    return {
        "ANSIBLE_CONFIG": str(Path(root) / "ansible.cfg"),
        # ansible-runner would switch it off.
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_TIMEOUT": str(_CONNECT_SECONDS),
        "ANSIBLE_SSH_RETRIES": str(_CONNECT_RETRIES),
        # What is about to be copied to a host lies here for a moment, secrets too: never on a disk.
        "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
        # Not shared: a run that ends takes its connections with it, and no other run's.
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(private / "cp"),
        "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).parent / "callbacks"),
        "KIMI_HIDDEN_CHANGES": str(private / HIDDEN_CHANGES),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
