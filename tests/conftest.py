"""Plugins of the whole test tree: groups with time shares, and no network for fast tests."""

from __future__ import annotations

pytest_plugins = ("pytester", "tests.shares", "tests.sockets")
