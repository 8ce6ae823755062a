"""Pulumi's entry: one site from the stack's inventory."""

from __future__ import annotations

import pulumi

from kimi_infra.cloud import Site, SiteArgs

config = pulumi.Config()
site = Site(
    pulumi.get_stack(),
    SiteArgs(
        inventory=config.require("inventory"),
        secrets=config.get_secret_object("secrets"),
        consent=config.get("consent"),
        on_delete=config.get("onDelete"),
    ),
)
for name, value in site.outputs.items():
    pulumi.export(name, value)
