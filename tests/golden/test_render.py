"""Choices in, pages out: each folder of ``render/`` is one case; the recipe page's own text is the judge."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Iterator

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice, PoolChoice
from kimi_infra.domain.launch import Launch, Resolution
from kimi_infra.errors import SpecError
from kimi_infra.planning import resolve
from kimi_infra.rendering import docker_page, shell

pytestmark = pytest.mark.compiler

FOLDER = pathlib.Path(__file__).parent / "render"
SEED = FOLDER / "seed"
"""The command text of the recipe page, copied; never written by our renderers."""

CASES = sorted(path.parent.name for path in FOLDER.glob("*/choice.json"))
REFUSED = [name for name in CASES if name.startswith("refused-")]
RENDERED = [name for name in CASES if not name.startswith("refused-")]


def choice(name: str) -> Choice:
    """Read a case's choice: the fields of Choice, lists as JSON writes them."""
    written = json.loads((FOLDER / name / "choice.json").read_text())
    if "features" in written:
        written["features"] = tuple(written["features"])
    if "pools" in written:
        written["pools"] = {role: PoolChoice(**pool) for role, pool in written["pools"].items()}
    values = written.get("values", {})
    written["values"] = {key: tuple(it) if isinstance(it, list) else it for key, it in values.items()}
    return Choice(**{"features": None, **written})


@functools.cache
def resolution(name: str) -> Resolution:
    """Resolve a case with the shipped catalogue."""
    return resolve.resolve(recipes.load_catalogue(), choice(name))


def golden(name: str, file: str) -> str:
    """Read one expected text."""
    return (FOLDER / name / file).read_text(encoding="utf-8")


def origins(found: Resolution) -> Iterator[str]:
    """Write down who vouches for what, and what is said beside the commands."""
    for launch in found.launches:
        yield f"node {launch.rank}: {launch.role.value}, {launch.image}, {launch.model_id}"
        yield from _vouched(launch)
    for need in found.needs:
        yield f"needed: {need}"
    for note in found.notes:
        yield f"note: {note}"


def _vouched(launch: Launch) -> Iterator[str]:
    for entry in launch.env:
        yield f"  {entry.name}={entry.value} <- {entry.provenance}"
    for flag in launch.flags:
        yield f"  {' '.join(flag.tokens)} <- {flag.vouched}"
    for entry in launch.replaced_env:
        yield f"  replaced: {entry.name}={entry.value} <- {entry.provenance}"
    for flag in launch.replaced_flags:
        yield f"  replaced: {' '.join(flag.tokens)} <- {flag.vouched}"


@pytest.mark.parametrize("name", RENDERED)
def test_the_shell_form(name: str) -> None:
    """Each node's command, character for character, and the router's."""
    assert shell.resolution(resolution(name)) == golden(name, "shell.txt")


@pytest.mark.parametrize("name", RENDERED)
def test_the_docker_form(name: str) -> None:
    """Each node's docker line, character for character."""
    assert docker_page.page(resolution(name).launches) == golden(name, "docker.txt")


@pytest.mark.parametrize("name", RENDERED)
def test_the_origin_of_every_value(name: str) -> None:
    """Every flag and variable of every node says who vouches for it, and image and role follow the choice."""
    assert "\n".join(origins(resolution(name))) + "\n" == golden(name, "origins.txt")


@pytest.mark.parametrize("name", REFUSED)
def test_the_text_of_a_refusal(name: str) -> None:
    """Each refusal names what conflicts and what works instead; all faults of a choice come at once."""
    with pytest.raises(SpecError) as caught:
        resolution(name)
    assert f"{caught.value}\n" == golden(name, "error.txt")


def test_every_value_that_is_open_stands_in_the_commands() -> None:
    """A need is never only told: its placeholder is in an argument, a variable or an image."""
    for name in RENDERED:
        found = resolution(name)
        placed = repr([(launch.argv, launch.env, launch.image) for launch in found.launches])
        assert [need.what for need in found.needs if need.what not in placed] == [], name


def test_the_pages_commands_are_the_seeds() -> None:
    """The default choice on two GB300 trays is the recipe page's head, worker and docker command."""
    head, worker = (SEED / "head.txt").read_text(), (SEED / "node-1.txt").read_text()
    default = resolution("gb300-2node").launches
    assert shell.page(default) == f"# Head (node 0)\n{head}\n# Node 1\n{worker}"
    docker_head = (SEED / "docker-head.txt").read_text()
    assert docker_page.page(default[:1]) == f"# Head (node 0)\n{docker_head}"


def test_the_pages_docker_worker_follows_from_both() -> None:
    """The page prints no docker line for node 1: ours is the head's with the worker's arguments."""
    worker_args = (SEED / "node-1.txt").read_text().partition("moonshotai/Kimi-K3.1-Pro")[2]
    docker_front = (SEED / "docker-head.txt").read_text().partition(" moonshotai/Kimi-K3.1-Pro")[0]
    expected = f"# Node 1\n{docker_front} moonshotai/Kimi-K3.1-Pro{worker_args}"
    assert docker_page.page(resolution("gb300-2node").launches[1:]) == expected
