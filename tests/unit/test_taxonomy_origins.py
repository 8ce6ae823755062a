"""The seeds are claimed for what they say, and for nothing else."""

from __future__ import annotations

from importlib import resources

import pytest
import yaml

pytestmark = pytest.mark.fast

SAID = {"gpu_count", "display_name", "x-preview"}
"""What the recipe page says of each kind of hardware."""


def test_the_seed_is_not_claimed_for_what_it_does_not_say() -> None:
    """Every other value of a profile, devices above all, names its own origin."""
    taxonomy = yaml.safe_load((resources.files("kimi_infra") / "recipes/taxonomy.yaml").read_text())
    origins = taxonomy["x-provenance"]
    claimed = [
        f"hardware_profiles.{key}.{name}"
        for key, profile in taxonomy["hardware_profiles"].items()
        for name in profile
        if name not in SAID and f"hardware_profiles.{key}" not in origins
    ]
    assert [place for place in claimed if origins.get(place, "seed").startswith("seed")] == []
