"""Secret references → secrets, in one place for every front end. No message holds a secret."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kimi_infra.domain.inventory import SecretRef, SecretSource
from kimi_infra.errors import SecretError

_BYTES_MAX = 65_536
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class VaultReader(Protocol):
    """Whoever can open an Ansible vault."""

    def read(self, path: Path, key: str) -> str:
        """Return the text at a top-level key of a vault.

        Raises:
            SecretError: the vault cannot be opened or has no text there.
        """


def resolve(ref: SecretRef, *, base: Path, environ: Mapping[str, str], vault: VaultReader | None) -> str:
    """Return the secret behind a reference, a single line without its end.

    Args:
        ref: The place of the secret.
        base: Directory of the inventory; relative paths begin there.
        environ: The variables that ``env`` references may name.
        vault: Opens vaults; None when the caller has no password for any.

    Raises:
        SecretError: the reference leads nowhere, or to something that is not one line of text.
    """
    place = f"{ref.source.value}: {ref.key}"
    if ref.source is SecretSource.ENV:
        return _one_line(_from_env(ref.key, environ, place), place)
    if ref.source is SecretSource.FILE:
        return _one_line(_from_file(base / ref.key, place), place)
    return _one_line(_from_vault(ref.key, base, vault, place), place)


def _from_env(name: str, environ: Mapping[str, str], place: str) -> str:
    if name not in environ:
        raise SecretError(f"{place}: the variable is not set; export {name} and run again")
    return environ[name]


def _from_file(path: Path, place: str) -> str:
    try:
        # Not blocking: a named pipe must be refused, not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise SecretError(f"{place}: cannot be opened: {reason}; write the secret to {path}") from error
    try:
        data = _checked(descriptor, path, place)
    finally:
        os.close(descriptor)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        # From None: the decoder's error carries the bytes.
        raise SecretError(f"{place}: not UTF-8 text; write the secret as text") from None


def _checked(descriptor: int, path: Path, place: str) -> bytes:
    """Read the very file that was checked, whatever lies at its path by now."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise SecretError(f"{place}: not a regular file; write the secret to a file")
    if mode & _OTHERS:
        shown = f"{stat.S_IMODE(mode):04o}"
        raise SecretError(f"{place}: others than its owner may use the file (mode {shown}); chmod 600 {path}")
    data = os.read(descriptor, _BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise SecretError(f"{place}: larger than {_BYTES_MAX} bytes; write the secret alone to the file")
    return data


def _from_vault(key: str, base: Path, vault: VaultReader | None, place: str) -> str:
    if vault is None:
        raise SecretError(f"{place}: no vault password; name its file in ANSIBLE_VAULT_PASSWORD_FILE")
    path, _, name = key.rpartition("#")
    return vault.read(base / path, name)


def _one_line(text: str, place: str) -> str:
    line = text.removesuffix("\n").removesuffix("\r")
    if not line:
        raise SecretError(f"{place}: the secret is empty; put the secret there")
    if not line.isprintable():
        raise SecretError(f"{place}: the secret is not one line of printable text; put one line there")
    return line
