"""The reference page of the inventory's keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_infra.config import models, reference

pytestmark = pytest.mark.fast


def test_the_committed_page_is_current() -> None:
    """docs/inventory-reference.md is what python -m kimi_infra.config.reference prints."""
    committed = Path(__file__).parents[2] / "docs" / "inventory-reference.md"
    assert committed.read_text(encoding="utf-8") == reference.page()


def test_every_key_is_on_the_page_with_a_meaning() -> None:
    """A key added to a model cannot be left out of the page or stand there unexplained."""
    lines = reference.page().splitlines()
    for model in (models.HostModel, models.DeploymentModel, models.ImageModel, models.OffloadModel):
        for name in model.model_fields:
            rows = [line for line in lines if line.startswith(f"| `{name}` |")]
            assert rows, name
            assert all(row.rstrip(" |").endswith((".", ".`")) for row in rows), rows
