"""The lab's own Pulumi backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_infra.lab import layout, stack

pytestmark = pytest.mark.fast


@pytest.fixture
def lab(tmp_path: Path) -> layout.Layout:
    """A lab that has only its folders."""
    (tmp_path / "checkout").mkdir()
    return layout.Layout(
        checkout=tmp_path / "checkout", cache=tmp_path / "cache", state=tmp_path / "state" / "0a1b2c"
    )


def test_settings_are_written_once_and_then_left_to_pulumi(lab: layout.Layout) -> None:
    """They name the inventory relative to the project; the salt that pulumi adds survives the next up."""
    stack.write_settings(lab)
    assert lab.stack_settings.read_text() == "config:\n  kimi_infra:inventory: inventories/lab-2node\n"
    lab.stack_settings.write_text("encryptionsalt: v1:x\n")
    stack.write_settings(lab)
    assert lab.stack_settings.read_text() == "encryptionsalt: v1:x\n"


def test_the_passphrase_is_random_and_its_owners_alone(lab: layout.Layout) -> None:
    """Made once, kept, mode 0600, and different for another lab."""
    first = Path(stack.environment(lab)["PULUMI_CONFIG_PASSPHRASE_FILE"])
    text = first.read_text()
    assert first.stat().st_mode & 0o777 == 0o600
    assert len(text.strip()) >= 32
    stack.environment(lab)
    assert first.read_text() == text
    other = layout.Layout(checkout=lab.checkout, cache=lab.cache, state=lab.state.with_name("3d4e5f"))
    assert Path(stack.environment(other)["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text() != text


def test_the_backend_exists_where_its_url_says(lab: layout.Layout) -> None:
    """Pulumi does not make the folder of a file backend itself."""
    assert Path(stack.environment(lab)["PULUMI_BACKEND_URL"].removeprefix("file://")).is_dir()
