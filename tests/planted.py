"""The planted faults of tests/golden/faults, laid out as inventories."""

from __future__ import annotations

import shutil
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden" / "faults"
NEEDS = "10-image-without-digest"
"""The one case that can be planned: a value is still to be given."""
CASES = sorted(path.name for path in GOLDEN.iterdir() if path.name not in {"base", NEEDS})


def laid(case: str, directory: Path) -> Path:
    """Lay the base inventory with the files of a case over it."""
    for source in (GOLDEN / "base", GOLDEN / case):
        for file in source.glob("*.yml"):
            shutil.copy(file, directory / file.name)
    return directory


def text(case: str) -> str:
    """Return the exact text of a case's refusal."""
    return (GOLDEN / case / "error.txt").read_text(encoding="utf-8")
