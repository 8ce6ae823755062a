"""One running oracle for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parser import image
from tests.parser.checks import Judge
from tests.parser.client import Oracle


@pytest.fixture(scope="package")
def oracle() -> Iterator[Oracle]:
    """Import vLLM once; building the image counts only where ./run has not done it."""
    with Oracle(image.command(Path(__file__).with_name("oracle.py"))) as running:
        yield running


@pytest.fixture(scope="package")
def judge(oracle: Oracle) -> Judge:
    """The checks, with the wheel's vocabulary."""
    return Judge(oracle)
