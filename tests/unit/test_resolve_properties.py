"""What holds of every choice, whatever it names, on the fixture and on the shipped recipes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_infra.config import recipes
from kimi_infra.deploy import batch
from kimi_infra.domain.inventory import Choice, Instances, PoolChoice
from kimi_infra.domain.launch import EnvEntry, Launch, Resolution
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import POOLS, Catalogue, Feature, Recipe, Settings, Word
from kimi_infra.errors import SpecError, UnsafeTextError
from kimi_infra.planning import resolve
from kimi_infra.rendering import docker_page, envfile, shell, systemd
from tests.oracles import docker_env, hostile, systemd_exec

pytestmark = pytest.mark.compiler

FIXTURE = pathlib.Path(__file__).parent / "recipe_format"
GLACIER = "acme/Glacier-72B"
TEST = Provenance(origin=Origin.OURS, source="test")
PROGRAM = "/usr/bin/env"
V = TypeVar("V")


@functools.cache
def catalogue(name: str) -> Catalogue:
    """The fixture, or the shipped recipes."""
    return recipes.read_catalogue(FIXTURE) if name == "fixture" else recipes.load_catalogue()


CATALOGUES = pytest.mark.parametrize("name", ["fixture", "shipped"])


def one_of(known: Iterable[str], *others: Any) -> st.SearchStrategy[Any]:
    """A name that is known, or something else."""
    return st.sampled_from([*known, *others])


@st.composite
def choices(draw: st.DrawFn, known: Catalogue) -> Choice:
    """A choice of a recipe: mostly names that it knows, and some that nobody does."""
    recipe = known.recipe(draw(st.sampled_from([key for key, it in known.recipes.items() if not it.omni])))
    modes = [mode for feature in recipe.features.values() for mode in feature.modes]
    pool = st.builds(
        PoolChoice,
        nodes=st.sampled_from([None, 0, 1, 2, 3]),
        parallelism=st.sampled_from([None, "tp", "tep", "dep", "pp"]),
    )
    names = draw(st.none() | st.lists(one_of(recipe.features, "no_feature"), unique=True, max_size=6))
    words = st.sampled_from(
        ["--max-num-seqs", "8", "-1", "--x=1", "loose", "", "--headless", "$HEAD_IP", "a b"]
    )
    return Choice(
        model=recipe.key,
        variant=draw(one_of(recipe.variants, "no_variant")),
        hardware=draw(one_of(known.profiles, "no_hardware")),
        strategy=draw(one_of(known.strategies, "no_strategy", *known.kv_stores)),
        nodes=draw(st.integers(1, 4)),
        features=None if names is None else tuple(names),
        feature_modes=draw(
            st.dictionaries(one_of(recipe.features, "x"), one_of(modes, "no_mode"), max_size=3)
        ),
        pools=draw(st.none() | st.dictionaries(st.sampled_from(POOLS), pool)),
        kv_offload=draw(one_of([*known.kv_options, *known.kv_stores], None, "no_option")),
        kv_instances=draw(
            st.none() | st.builds(Instances, count=st.integers(1, 3), current=st.integers(0, 3))
        ),
        preset=draw(one_of(recipe.presets, None, "no_preset")),
        dcp=draw(st.sampled_from([None, None, 2, 8])),
        advanced_args=tuple(draw(st.lists(words, max_size=4))),
    )


def compiled(known: Catalogue, choice: Choice) -> list[Resolution]:
    """The choice as the page takes it, and strictly where it is not refused."""
    found = [resolve.as_published(known, choice)]
    with contextlib.suppress(SpecError):
        found.append(resolve.resolve(known, choice))
    return found


@CATALOGUES
@settings(deadline=None, max_examples=120)
@given(data=st.data())
def test_a_command_is_in_order(name: str, data: st.DataObject) -> None:
    """The same twice; no flag and no variable is there twice; somebody vouches for each of them."""
    known = catalogue(name)
    choice = data.draw(choices(known))
    found = compiled(known, choice)
    assert found == compiled(known, choice)
    for launch in (launch for each in found for launch in each.launches):
        flags = Counter(flag.name for flag in launch.flags if flag.name.startswith("-"))
        assert [flag for flag, count in flags.items() if count > 1] == []
        variables = [entry.name for entry in launch.env]
        assert len(variables) == len(set(variables))
        assert launch.argv == ("vllm", "serve", launch.model_id, *launch.args)
        flagged = [flag.provenance for flag in (*launch.flags, *launch.replaced_flags)]
        set_by = [entry.provenance for entry in (*launch.env, *launch.replaced_env)]
        for voucher in (*flagged, *set_by):
            assert isinstance(voucher.origin, Origin)
            assert voucher.source
        assert all(token for flag in launch.flags for token in flag.tokens)


def turned(entries: Mapping[str, V]) -> dict[str, V]:
    """The same map in the opposite order."""
    return dict(reversed(tuple(entries.items())))


def about(recipe: Recipe, *, modes: bool) -> Recipe:
    """The recipe with the maps turned around whose order has no meaning; of features that of modes has."""
    features: dict[str, Feature] = {
        key: dataclasses.replace(
            it,
            hardware_overrides=turned(it.hardware_overrides),
            modes=turned(it.modes) if modes else it.modes,
        )
        for key, it in reversed(tuple(recipe.features.items()))
    }
    return dataclasses.replace(
        recipe,
        features=features,
        variants={
            key: dataclasses.replace(it, hardware_overrides=turned(it.hardware_overrides), tp=turned(it.tp))
            for key, it in reversed(tuple(recipe.variants.items()))
        },
        strategy_overrides={
            key: dataclasses.replace(
                it, hardware_overrides=turned(it.hardware_overrides), roles=turned(it.roles)
            )
            for key, it in reversed(tuple(recipe.strategy_overrides.items()))
        },
        hardware_overrides=turned(recipe.hardware_overrides),
    )


@CATALOGUES
@settings(deadline=None, max_examples=100)
@given(data=st.data(), modes=st.booleans())
def test_only_the_order_of_lists_counts(name: str, data: st.DataObject, *, modes: bool) -> None:
    """Maps may stand in any order; that of modes decides which one is the first, and never a variable."""
    known = catalogue(name)
    choice = data.draw(choices(known))
    recipe = known.recipe(choice.model)
    if choice.features is None:
        listed = recipe.default_features(choice.strategy, choice.hardware, choice.variant)
        choice = dataclasses.replace(choice, features=listed)
    other = dataclasses.replace(known, recipes={choice.model: about(recipe, modes=modes)})
    same = dataclasses.replace(
        choice,
        feature_modes=turned(choice.feature_modes),
        pools=turned(choice.pools) if choice.pools else choice.pools,
    )
    before, after = resolve.as_published(known, choice), resolve.as_published(other, same)
    assert [(it.role, it.rank, it.env, it.image) for it in after.launches] == [
        (it.role, it.rank, it.env, it.image) for it in before.launches
    ]
    if not modes:
        assert [it.argv for it in after.launches] == [it.argv for it in before.launches]
        assert after.router == before.router


def asked(known: Catalogue, count: int) -> list[str]:
    """Random choices as lines of a batch, the same in every run."""
    pick = random.Random(5)  # noqa: S311 - not for secrets
    keys = [key for key, recipe in known.recipes.items() if not recipe.omni]
    lines = []
    for _ in range(count):
        recipe = known.recipe(pick.choice(keys))
        chosen = {
            "recipe": recipe.key,
            "variant": pick.choice([*recipe.variants]),
            "hardware": pick.choice([*known.profiles, None]),
            "strategy": pick.choice([*known.strategies, None]),
            "nodes": pick.choice([1, 2, 3, None]),
            "features": pick.choice([None, pick.sample([*recipe.features], min(3, len(recipe.features)))]),
            "kv_offload": pick.choice([None, *known.kv_options, *known.kv_stores]),
        }
        lines.append(json.dumps(chosen))
    return lines


@CATALOGUES
def test_other_processes_answer_alike(name: str) -> None:
    """Nothing depends on the hashes of a process, not even the order of warnings."""
    known = catalogue(name)
    lines = asked(known, 60)
    program = "import sys; from kimi_infra.cli import main; sys.argv[0] = 'kimi-infra'; main()"
    given_folder = ["--catalog", str(FIXTURE)] if name == "fixture" else []
    found = [
        subprocess.run(
            [sys.executable, "-c", program, "render", *given_folder, "--batch", "-"],
            input="\n".join(lines),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed in ("1", "4242")
    ]
    assert found[0] == found[1] == list(batch.answers(known, [line.encode() for line in lines]))
    assert sum('"nodes"' in line for line in found[0]) > 50


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


def with_texts(words: Iterable[str], variables: Mapping[str, str]) -> Launch:
    """The fixture with these words and variables of its own, compiled as published."""
    known = catalogue("fixture")
    base = Settings(
        args=tuple(Word(text=text, provenance=TEST) for text in words),
        env=tuple(EnvEntry(name=name, value=value, provenance=TEST) for name, value in variables.items()),
    )
    recipe = dataclasses.replace(known.recipe(GLACIER), base=base)
    choice = Choice(
        model=GLACIER,
        hardware="b300",
        strategy="single_node_tp",
        nodes=1,
        features=("reasoning",),
        advanced_args=tuple(words),
    )
    known = dataclasses.replace(known, recipes={GLACIER: recipe})
    return resolve.as_published(known, choice).launches[0]


def read_back(text: str) -> list[str]:
    """Words that a shell would pass on, placeholders as they are."""
    return shlex.split(text.replace(" \\\n", " "))


@settings(deadline=None, max_examples=120)
@given(words=st.lists(hostile.texts, max_size=5), variables=st.dictionaries(NAMES, hostile.texts, max_size=4))
def test_every_form_says_the_same_command(words: list[str], variables: dict[str, str]) -> None:
    """Unit, shell page, docker page and env file, read by their readers' rules, are the command again."""
    launch = with_texts(words, variables)
    ousted = {token for flag in launch.replaced_flags for token in flag.tokens}
    assert set(filter(None, words)) <= {*launch.args, *ousted}
    pairs = [(entry.name, entry.value) for entry in launch.env]
    assert [name for name, _ in pairs][: len(variables)] == list(variables)
    environment = {"HOME": "/root", "A": "one two", "HEAD_IP": "::1"}
    line = systemd.exec_line((PROGRAM, *launch.argv))
    assert systemd_exec.executed(line, environment) == (PROGRAM, *launch.argv)
    heading, *exports = shell.page((launch,)).splitlines(keepends=True)
    assert heading.startswith("# ")
    count = len(pairs)
    assert [read_back(line) for line in exports[:count]] == [
        ["export", f"{name}={value}"] for name, value in pairs
    ]
    assert read_back("".join(exports[count:])) == list(launch.argv)
    heading, page = docker_page.page((launch,)).split("\n", 1)
    assert read_back(page) == list(docker_page.argv(launch) or ())
    assert envfile.docker(pairs) == "".join(f"{name}={value}\n" for name, value in pairs)
    assert docker_env.entries(envfile.docker(pairs).encode()) == pairs


@pytest.mark.parametrize("text", hostile.REFUSED)
def test_a_form_that_would_break_is_refused(text: str) -> None:
    """A line end or a control character in a word or in a variable reaches no form at all."""
    word, variable = with_texts(["--word", text], {}), with_texts([], {"A": text})
    for launch in (word, variable):
        for page in (shell.page, docker_page.page):
            with pytest.raises(UnsafeTextError):
                page((launch,))
    with pytest.raises(UnsafeTextError):
        systemd.exec_line((PROGRAM, *word.argv))
    with pytest.raises(UnsafeTextError):
        envfile.docker([(entry.name, entry.value) for entry in variable.env])
