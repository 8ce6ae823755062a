"""Pulumi's entry: one site from the stack's inventory."""

from __future__ import annotations

import pulumi

from kimi_infra.cloud import Site, SiteArgs

config = pulumi.Config()
site = Site(
    # Constant: a name is a resource's identity, and a stack may be renamed.
    "site",
    SiteArgs(
        inventory=config.require("inventory"),
        secrets=config.get_secret_object("secrets"),
        consent=config.get("consent"),
        on_delete=config.get("onDelete"),
    ),
)
for name, value in site.outputs.items():
    pulumi.export(name, value)
