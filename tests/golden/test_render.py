"""Choices in, pages out: each folder of ``render/`` is one case; the recipe page's own text is the judge."""

from __future__ import annotations

import json
import pathlib

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Launch
from kimi_infra.errors import SpecError
from kimi_infra.planning import resolve
from kimi_infra.rendering import docker_page, shell

pytestmark = pytest.mark.fast

FOLDER = pathlib.Path(__file__).parent / "render"
SEED = FOLDER / "seed"
"""The command text of the recipe page, copied; never written by our renderers."""

CASES = sorted(path.parent.name for path in FOLDER.glob("*/choice.json"))
REFUSED = [name for name in CASES if name.startswith("refused-")]
RENDERED = [name for name in CASES if not name.startswith("refused-")]


def choice(name: str) -> Choice:
    """Read a case's choice."""
    written = json.loads((FOLDER / name / "choice.json").read_text())
    if "features" in written:
        written["features"] = tuple(written["features"])
    return Choice(**{"features": None, **written})


def launches(name: str) -> tuple[Launch, ...]:
    """Resolve a case with the shipped catalogue."""
    return resolve.resolve(recipes.load_catalogue(), choice(name))


def golden(name: str, file: str) -> str:
    """Read one expected text."""
    return (FOLDER / name / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RENDERED)
def test_the_shell_form(name: str) -> None:
    """Each node's command, character for character."""
    assert shell.page(launches(name)) == golden(name, "shell.txt")


@pytest.mark.parametrize("name", RENDERED)
def test_the_docker_form(name: str) -> None:
    """Each node's docker line, character for character."""
    assert docker_page.page(launches(name)) == golden(name, "docker.txt")


@pytest.mark.parametrize("name", RENDERED)
def test_the_origin_of_every_value(name: str) -> None:
    """Every flag and variable of every node says who vouches for it, and image and role follow the choice."""
    lines = []
    for launch in launches(name):
        lines.append(f"node {launch.rank}: {launch.role.value}, {launch.image}, {launch.model_id}")
        lines += [f"  {entry.name}={entry.value} <- {entry.provenance}" for entry in launch.env]
        lines += [f"  {' '.join(flag.tokens)} <- {flag.provenance}" for flag in launch.flags]
    assert "\n".join(lines) + "\n" == golden(name, "origins.txt")


@pytest.mark.parametrize("name", REFUSED)
def test_the_text_of_a_refusal(name: str) -> None:
    """Each refusal names what conflicts and what works instead; all faults of a choice come at once."""
    with pytest.raises(SpecError) as caught:
        launches(name)
    assert f"{caught.value}\n" == golden(name, "error.txt")


def test_the_pages_commands_are_the_seeds() -> None:
    """The default choice on two GB300 trays is the recipe page's head, worker and docker command."""
    head, worker = (SEED / "head.txt").read_text(), (SEED / "node-1.txt").read_text()
    default = launches("gb300-2node")
    assert shell.page(default) == f"# Head (node 0)\n{head}\n# Node 1\n{worker}"
    docker_head = (SEED / "docker-head.txt").read_text()
    assert docker_page.page(default[:1]) == f"# Head (node 0)\n{docker_head}"


def test_the_pages_docker_worker_follows_from_both() -> None:
    """The page prints no docker line for node 1: ours is the head's with the worker's arguments."""
    worker_args = (SEED / "node-1.txt").read_text().partition("moonshotai/Kimi-K3.1-Pro")[2]
    docker_front = (SEED / "docker-head.txt").read_text().partition(" moonshotai/Kimi-K3.1-Pro")[0]
    expected = f"# Node 1\n{docker_front} moonshotai/Kimi-K3.1-Pro{worker_args}"
    assert docker_page.page(launches("gb300-2node")[1:]) == expected
