"""Planted faults: each folder of tests/golden/faults is the base inventory with a mistake in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_infra.config import recipes
from kimi_infra.deploy import check
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import SpecError
from tests import planted

pytestmark = pytest.mark.fast


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Read the shipped recipes once."""
    return recipes.load_catalogue()


def test_the_base_inventory_has_no_fault_and_needs_nothing(tmp_path: Path, catalogue: Catalogue) -> None:
    """Every refusal below is due to the planted fault alone."""
    assert check.check(planted.laid("base", tmp_path), catalogue).needs == ()


@pytest.mark.parametrize("case", planted.CASES)
def test_a_planted_fault_is_refused_with_its_exact_text(
    case: str, tmp_path: Path, catalogue: Catalogue
) -> None:
    """Each fault is refused before a host is asked, all faults at once, in the words of its golden file."""
    with pytest.raises(SpecError) as refusal:
        check.check(planted.laid(case, tmp_path), catalogue)
    assert f"{refusal.value}\n" == planted.text(case)


@pytest.mark.parametrize("case", planted.CASES)
def test_no_refusal_shows_a_secret(case: str, tmp_path: Path, catalogue: Catalogue) -> None:
    """A literal secret is named by its place only, also in the fields of the fault."""
    with pytest.raises(SpecError) as refusal:
        check.check(planted.laid(case, tmp_path), catalogue)
    assert "canary" not in repr((str(refusal.value), refusal.value.faults))


def test_an_image_without_digest_can_be_planned_and_is_needed_for_applying(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    """An unpinned image is no fault but a need, which names the command that finds the digest."""
    needs = check.check(planted.laid(planted.NEEDS, tmp_path), catalogue).needs
    text = "".join(f"{need}\n" for need in needs)
    assert text == planted.text(planted.NEEDS)
