"""Secret references → secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kimi_infra.converge.vault import AnsibleVault
from kimi_infra.deploy import secrets
from kimi_infra.domain.inventory import SecretRef, SecretSource
from kimi_infra.errors import SecretError

pytestmark = pytest.mark.fast

CANARY = "canary-7c1d"


def resolved(
    source: SecretSource,
    key: str,
    base: Path,
    environ: dict[str, str] | None = None,
    vault: secrets.VaultReader | None = None,
) -> str:
    """Resolve a reference."""
    return secrets.resolve(SecretRef(source=source, key=key), base=base, environ=environ or {}, vault=vault)


def refusal(
    source: SecretSource,
    key: str,
    base: Path,
    environ: dict[str, str] | None = None,
    vault: secrets.VaultReader | None = None,
) -> str:
    """Return the message of the refusal; neither it nor what led to it may hold the secret."""
    with pytest.raises(SecretError) as caught:
        resolved(source, key, base, environ, vault)
    error: BaseException | None = caught.value
    while error is not None:
        assert "canary" not in repr((error, error.args))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return str(caught.value)


def written(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Write a file with a mode and return its path."""
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_variable_is_read_from_the_environment_that_was_passed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's own environment is never looked at."""
    monkeypatch.setenv("KIMI_OTHER", CANARY)
    assert resolved(SecretSource.ENV, "KIMI", tmp_path, {"KIMI": CANARY}) == CANARY
    assert "KIMI_OTHER: the variable is not set" in refusal(SecretSource.ENV, "KIMI_OTHER", tmp_path)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_file_gives_its_line_without_the_end(tmp_path: Path, end: bytes) -> None:
    """Relative paths begin in the inventory, and one line end is no part of the secret."""
    written(tmp_path / "token", CANARY.encode() + end)
    assert resolved(SecretSource.FILE, "token", tmp_path) == CANARY
    assert resolved(SecretSource.FILE, str(tmp_path / "token"), Path("/")) == CANARY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o644])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    """The remedy is the command that closes it."""
    path = written(tmp_path / "token", CANARY.encode(), mode)
    assert f"chmod 600 {path}" in refusal(SecretSource.FILE, "token", tmp_path)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the secret is empty"),
        (b"\n", "the secret is empty"),
        (b"canary\ncanary\n", "not one line"),
        (b"canary\n\n", "not one line"),
        (b"can\0ary", "not one line"),
        (b"canary\xff", "not UTF-8"),
        (b"canary" * 20_000, "larger than"),
    ],
)
def test_a_file_that_holds_something_else_than_one_line_is_refused(
    tmp_path: Path, data: bytes, what: str
) -> None:
    """An env file can carry one line; more or less is a mistake of the operator."""
    written(tmp_path / "token", data)
    assert what in refusal(SecretSource.FILE, "token", tmp_path)


def test_an_empty_variable_is_refused(tmp_path: Path) -> None:
    """A variable that is set to nothing would open the API to all."""
    assert "the secret is empty" in refusal(SecretSource.ENV, "KIMI", tmp_path, {"KIMI": ""})


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    """A missing file, a directory and a pipe that nobody writes to are all told at once."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "no such file" in refusal(SecretSource.FILE, "missing", tmp_path)
    assert "not a regular file" in refusal(SecretSource.FILE, "pipe", tmp_path)
    assert "not a regular file" in refusal(SecretSource.FILE, ".", tmp_path)


def test_a_vault_without_a_password_names_the_variable(tmp_path: Path) -> None:
    """The operator learns how Ansible itself is told the password."""
    assert "ANSIBLE_VAULT_PASSWORD_FILE" in refusal(SecretSource.VAULT, "v.yml#k", tmp_path)
    assert AnsibleVault.from_environ({}) is None


@pytest.fixture(scope="module")
def vaults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vaults as ansible-vault writes them: one whole, one with an inline value."""
    base = tmp_path_factory.mktemp("vaults")
    written(base / "password", b"open sesame\n")
    written(base / "wrong", b"open barley\n")
    whole = f"token: {CANARY}\nnumber: 12\n"
    written(base / "whole.yml", whole.encode())
    tool = [sys.executable, "-m", "ansible", "vault"]
    password = ["--vault-password-file", str(base / "password")]
    subprocess.run([*tool, "encrypt", *password, str(base / "whole.yml")], check=True, capture_output=True)
    command = [*tool, "encrypt_string", *password, "--name", "token", CANARY]
    inline = subprocess.run(command, check=True, capture_output=True).stdout
    written(base / "inline.yml", inline + b"\nplain: canary\n")
    return base


@pytest.mark.parametrize("file", ["whole.yml", "inline.yml"])
def test_what_ansible_vault_encrypted_is_read_back(vaults: Path, file: str) -> None:
    """Whole files and inline values, with the password file that Ansible's variable names."""
    vault = AnsibleVault.from_environ({"ANSIBLE_VAULT_PASSWORD_FILE": str(vaults / "password")})
    assert resolved(SecretSource.VAULT, f"{file}#token", vaults, vault=vault) == CANARY


@pytest.mark.parametrize(
    ("place", "password", "what"),
    [
        ("whole.yml#token", "wrong", "cannot be decrypted"),
        ("inline.yml#token", "wrong", "cannot be decrypted"),
        ("whole.yml#token", "missing", "cannot be decrypted"),
        ("whole.yml#tokens", "password", "no such key"),
        ("whole.yml#number", "password", "the value is not text"),
        ("inline.yml#plain", "password", "the value is not encrypted"),
        ("missing.yml#token", "password", "no such file"),
    ],
)
def test_a_vault_that_does_not_give_the_secret_says_why(
    vaults: Path, place: str, password: str, what: str
) -> None:
    """Wrong password, wrong key and clear text are told apart, and nothing decrypted is shown."""
    vault = AnsibleVault(vaults / password)
    assert what in refusal(SecretSource.VAULT, place, vaults, vault=vault)
