"""Ansible vaults: whole encrypted files and plain files with ``!vault`` values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kimi_infra.deploy import site
from kimi_infra.errors import SecretError

PASSWORD_FILE = "ANSIBLE_VAULT_PASSWORD_FILE"  # noqa: S105 - the name of Ansible's own variable
_HEADER = "$ANSIBLE_VAULT;"


def secret_store(environ: Mapping[str, str]) -> site.SecretStore:
    """Return what references are resolved against: the variables and the vaults that they open.

    Every front end has its store from here, so that no kind of reference works in one and not in another.
    """
    return site.SecretStore(environ=environ, vault=AnsibleVault.from_environ(environ))


class AnsibleVault:
    """Reads vaults with the password that a password file holds, or prints when it is a program."""

    def __init__(self, password_file: Path) -> None:
        self.password_file = password_file

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> AnsibleVault | None:
        """Return the reader that Ansible's own variable asks for, None when it is not set."""
        named = environ.get(PASSWORD_FILE)
        return cls(Path(named).expanduser()) if named else None

    def read(self, path: Path, key: str) -> str:
        """Return the text at a top-level key of a vault.

        Raises:
            SecretError: the vault cannot be opened or has no encrypted text there.
        """
        # Ansible takes a second to import and is needed by few inventories.
        from ansible.errors import AnsibleError  # noqa: PLC0415

        place = f"vault: {path}#{key}"
        if not path.is_file():
            raise SecretError(f"{place}: no such file; make it with ansible-vault create {path}")
        try:
            return self._text(path, key, place)
        except (AnsibleError, OSError, UnicodeDecodeError):
            # From None: Ansible's error shows lines of what it could not read.
            remedy = f"check it with ansible-vault view --vault-password-file {self.password_file} {path}"
            raise SecretError(f"{place}: cannot be decrypted with {self.password_file}; {remedy}") from None

    def _text(self, path: Path, key: str, place: str) -> str:
        from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415
        from ansible.parsing.vault import VaultHelper, VaultLib, get_file_vault_secret  # noqa: PLC0415

        loader = DataLoader()
        secret = get_file_vault_secret(filename=str(self.password_file), loader=loader)
        secret.load()
        loader.set_vault_secrets([("default", secret)])
        data: Any = loader.load_from_file(str(path), cache="none")
        if not isinstance(data, dict) or key not in data:
            raise SecretError(f"{place}: no such key; add it with ansible-vault edit {path}")
        inline = VaultHelper.get_ciphertext(data[key], with_tags=False)
        if inline:
            return str(VaultLib([("default", secret)]).decrypt(inline).decode())
        if not path.read_text(encoding="utf-8").startswith(_HEADER):
            raise SecretError(
                f"{place}: the value is not encrypted; encrypt it with ansible-vault encrypt {path}"
            )
        if not isinstance(data[key], str):
            raise SecretError(f"{place}: the value is not text; write it in quotes")
        return str(data[key])
