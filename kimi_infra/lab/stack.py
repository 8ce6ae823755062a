"""Pulumi for the lab: a backend of files and a random passphrase, both in the lab's state."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from kimi_infra.lab import layout


def write_settings(lab: layout.Layout) -> None:
    """Lay down the stack's settings where there are none: they name the lab's inventory."""
    if not lab.stack_settings.exists():
        path = lab.inventory.relative_to(lab.checkout)
        lab.stack_settings.write_text(f"config:\n  kimi_infra:inventory: {path}\n", encoding="utf-8")


def environment(lab: layout.Layout) -> Mapping[str, str]:
    """Return the variables by which ``pulumi`` finds the lab's own backend; makes what they point to.

    An operator's own backend and passphrase are left alone: nothing here is for another stack.
    """
    root = lab.state / "pulumi"
    for folder in (root / "state", root / "home"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    passphrase = root / "passphrase"
    if not passphrase.exists():
        passphrase.touch(mode=0o600)
        passphrase.write_text(f"{secrets.token_urlsafe(24)}\n", encoding="ascii")
    return {
        "PULUMI_BACKEND_URL": f"file://{root / 'state'}",
        "PULUMI_HOME": str(root / "home"),
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase),
        # Everything that the program needs is in this checkout: nothing is looked for or downloaded.
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }
