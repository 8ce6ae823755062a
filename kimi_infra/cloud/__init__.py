"""Pulumi: the provider ``kimi`` and the program-side classes; the only home of pulumi.

A Pulumi program imports :class:`Site` and :class:`SiteArgs` from here.
Type tokens and names are final: docs/decisions/0020-pulumi-names.md.
"""

from __future__ import annotations

from kimi_infra.cloud.site import Site, SiteArgs

__all__ = ["Site", "SiteArgs"]
