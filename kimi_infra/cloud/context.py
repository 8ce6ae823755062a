"""What the provider's process was started with; the one place that reads its environment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from kimi_infra.cloud import sources
from kimi_infra.converge import environment, vault
from kimi_infra.deploy import site

_DEFAULTS = frozenset({"", "changeme", "default", "passphrase", "password", "pulumi", "secret", "test"})
"""Passphrases that protect nothing."""
_ENGINE = ("PULUMI_",)
"""The engine hands over its whole environment: passphrase, access token, decrypted configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The provider's surroundings."""

    tree: Path
    """Folder of ansible.cfg, playbooks, roles and plugins."""
    project: Path
    """Folder of the Pulumi project; relative inventories begin there."""
    environ: Mapping[str, str] = field(repr=False)
    """The operator's environment, without what is Pulumi's own."""
    passphrase_fault: str | None = None
    """Why the stack must not hold secrets, None where it may."""

    @classmethod
    def take(cls, environ: MutableMapping[str, str], tree: Path | None = None) -> Context:
        """Return the context, and take Pulumi's own variables out of ``environ``: children inherit it."""
        fault = passphrase_fault(environ)
        for name in [name for name in environ if name.startswith(_ENGINE)]:
            del environ[name]
        return cls(
            tree=tree or sources.root(), project=Path.cwd(), environ=dict(environ), passphrase_fault=fault
        )

    def resolve(self, inventory: str) -> Path:
        """Return where an inventory directory lies."""
        return (self.project / inventory).resolve()

    def environment(self, secrets: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
        """Return a run's environment.

        Args:
            secrets: Values that the program gave; they win over the operator's environment.
            named: Variables that the inventory refers to.
        """
        asked = {name: self.environ[name] for name in named if name in self.environ}
        return environment.scrubbed(self.environ, {**asked, **secrets})

    def store(self, secrets: Mapping[str, str], named: Iterable[str]) -> site.SecretStore:
        """Return what secret references are resolved against; the arguments are :meth:`environment`'s."""
        return vault.secret_store(self.environment(secrets, named))


def passphrase_fault(environ: Mapping[str, str]) -> str | None:
    """Say why the stack's passphrase protects nothing; None when it does or is not to be seen."""
    passphrase = environ.get("PULUMI_CONFIG_PASSPHRASE")
    file = environ.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if passphrase is None and file and os.access(file, os.R_OK):
        passphrase = Path(file).read_text(encoding="utf-8", errors="replace").strip()
    if passphrase is None or passphrase.lower() not in _DEFAULTS:
        return None
    kind = "one that everybody tries" if passphrase else "empty"
    return f"the stack's passphrase is {kind}; choose one: pulumi stack change-secrets-provider passphrase"
