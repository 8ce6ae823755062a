"""The publisher's rules on flags and variables, judged on compiled commands in every spelling."""

from __future__ import annotations

import dataclasses
from typing import Any

import pydantic
import pytest

from kimi_infra.config import recipe_extensions, recipes
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import EnvEntry
from kimi_infra.domain.recipe import Catalogue, Feature, Rule, Settings, Value, ValueKind
from kimi_infra.errors import SpecError
from kimi_infra.planning import refusals, resolve
from tests.unit.test_refusals_example import HERE, choice, plain, rule, told, words

pytestmark = pytest.mark.compiler

GRAPHS = "seed: full graphs"


def forbidding(*flags: str) -> Rule:
    """Return the rule that a feature does not go with flags."""
    return rule({"features": "tools"}, GRAPHS, excludes={"flags": " ".join(flags)})


def ruled(*rules: Rule, base: str = "", **recipe: Any) -> Catalogue:
    """Return the catalogue with rules, and a base command, in the recipe without placements."""
    return plain(rules=rules, base=Settings(args=words(base)), **recipe)


def late(catalogue: Catalogue, *own: str, **changes: Any) -> list[str]:
    """Return what is refused of a compiled choice with the operator's own words."""
    asked = choice("plain", advanced_args=own, **changes)
    assert told(asked, catalogue) == []
    faults = resolve.as_published(catalogue, asked).warnings
    if not faults:
        assert resolve.resolve(catalogue, asked).launches
        return []
    with pytest.raises(SpecError) as caught:
        resolve.resolve(catalogue, asked)
    assert caught.value.faults == faults
    return [str(fault) for fault in faults]


@pytest.mark.parametrize(
    ("word", "own"),
    [
        ("--enforce-eager", ("--enforce-eager",)),
        ("--enforce-eager", ("--enforce_eager",)),
        ("--optimization-level=1", ("-O1",)),
        ("--optimization-level=1", ("-O=1",)),
        ("--optimization-level=1", ("-O", "1")),
        ("--optimization-level=1", ("--optimization_level=1",)),
        ("--node-rank=2", ("--x", "-r2")),
        ("--compilation-config.mode=NONE", ("--compilation-config", '{"mode":"none"}')),
        ("--compilation-config.mode=NONE", ('-cc={"mode":"NONE"}',)),
        ("--compilation-config.mode=NONE", ("-cc.mode", "NONE")),
        ("--compilation-config.mode=NONE", ("--compilation_config.mode=None",)),
        ("--compilation-config.mode=0", ("--compilation-config", '{"mode":0}')),
        ("--compilation-config.a.b=true", ("--compilation-config", '{"a":{"b":true}}')),
        ("--compilation-config.a.b=true", ("-cc.a", '{"b":true}')),
        ("--compilation-config.a", ("-cc.a", "x")),
        ("--speculative-config.n>7", ("-sc", '{"n":8}')),
        ("--speculative-config.n>7", ("-sc.n=8",)),
        ("--max-num-seqs>7", ("--max-num-seqs=8",)),
    ],
)
def test_a_setting_is_found_in_every_spelling(word: str, own: tuple[str, ...]) -> None:
    """The fault stands at the operator's word and quotes it, the other part and the sentence."""
    if "-r2" in own:  # the plan's own flag: nothing of the operator's comes this far
        found = late(ruled(forbidding(word), base=" ".join(own)))
        assert len(found) == 1
        assert found[0].startswith("features[0]: ")
        return
    name, more, most = word.partition(">")
    less = f"give at most {most}" if more else f"leave {name} out"
    assert late(ruled(forbidding(word)), *own) == [
        (
            f"advanced_args: feature tools does not go with {word} ({GRAPHS}) (got {' '.join(own)}); "
            f"{less}, or leave tools out"
        )
    ]
    assert late(ruled(forbidding(word)), *own, features=()) == []


@pytest.mark.parametrize(
    ("word", "own"),
    [
        ("--enforce-eager", ("--no-enforce-eager",)),
        ("--compilation-config.mode=NONE", ("--compilation-config", '{"mode":"FULL"}')),
        ("--compilation-config.mode=NONE", ("--compilation-config", '{"other":{"mode":"NONE"}}')),
        ("--compilation-config.mode=NONE", ("--compilation-config", "NONE")),
        ("--compilation-config.mode=NONE", ("--compilation-config", '{"mode":')),
        ("--compilation-config.mode=NONE", ("-cc.mode=NONE", "-cc.mode=FULL")[1:]),
        ("--speculative-config.n>7", ("-sc", '{"n":7}')),
        ("--speculative-config.n>7", ("-sc", '{"n":"many"}')),
        ("--speculative-config.n>7", ("-sc", "[8]")),
        ("MODE=0", ("--MODE", "0")),
    ],
)
def test_other_settings_do_not_meet_it(word: str, own: tuple[str, ...]) -> None:
    """What is switched off, another key or value, or no JSON object is not what the rule means."""
    assert late(ruled(forbidding(word)), *own) == []


def test_a_recipe_s_own_words_and_variables_are_judged_too() -> None:
    """Then the fault stands at the part of the choice that can be changed."""
    catalogue = ruled(forbidding("--enforce-eager", "MODE=0"), base="--enforce-eager")
    eager = (
        f"features[0]: feature tools does not go with --enforce-eager ({GRAPHS}) (got --enforce-eager); "
        "leave --enforce-eager out, or leave tools out"
    )
    assert late(catalogue) == [eager]
    variable = EnvEntry(name="MODE", value="0", provenance=HERE)
    base = Settings(args=words("--enforce-eager"), env=(variable,))
    assert late(plain(rules=catalogue.recipe("org/plain").rules, base=base)) == [
        eager,
        eager.replace("--enforce-eager", "MODE=0"),
    ]


def test_every_setting_that_a_rule_excludes_is_told() -> None:
    """One word of several is not hidden by another of the same rule."""
    found = late(ruled(forbidding("--a", "--b", "--c")), "--a", "--c")
    assert [line.partition("(got ")[2][:3] for line in found] == ["--a", "--c"]


def test_the_value_that_is_too_large_is_blamed_beside_others() -> None:
    """Of a JSON text with several values the fault names the one that broke the rule."""
    feature = Feature(args=words('-sc {"model":"<value:model>","n":"<value:n>"}'))
    values = {
        "model": Value(name="model", what="the draft", find="its card"),
        "n": Value(name="n", what="tokens", find="it", kind=ValueKind.INTEGER),
    }
    catalogue = ruled(forbidding("--speculative-config.n>7"), features={"tools": feature}, values=values)
    for given in ({"n": "8"}, {"model": "org/draft", "n": "8"}):
        (found,) = late(catalogue, values=given)
        assert found.startswith("values.n: feature tools does not go with --speculative-config.n>7")
        assert found.endswith(f"({GRAPHS}) (got 8); give at most 7, or leave tools out")
    assert late(catalogue, values={"n": "7"}) == []
    assert late(catalogue) == []


@pytest.mark.parametrize(
    ("ruling", "own", "fault"),
    [
        (
            rule({"features": "tools"}, GRAPHS, needs={"flags": "--a --b=1"}),
            (),
            (
                f"features[0]: feature tools needs --a or --b=1, and the command does without ({GRAPHS}) "
                "(got none); add --a to advanced_args, or leave tools out"
            ),
        ),
        (rule({"features": "tools"}, GRAPHS, needs={"flags": "--a --b=1"}), ("--b", "1"), None),
        (
            rule({"flags": "--a"}, GRAPHS, excludes={"features": "tools"}),
            ("--a",),
            (
                f"advanced_args: --a does not go with feature tools ({GRAPHS}) (got --a); "
                "leave --a out, or leave tools out"
            ),
        ),
        (
            rule({"flags": "--a"}, GRAPHS, excludes={"flags": "--b"}),
            ("--a", "--b"),
            f"advanced_args: --a does not go with --b ({GRAPHS}) (got --b); leave --b out",
        ),
        (
            rule({"flags": "--a"}, GRAPHS, needs={"dcp": "8"}),
            ("--a",),
            (
                f"advanced_args: --a needs dcp 8, and none was chosen ({GRAPHS}) (got --a); "
                "choose dcp 8, or leave --a out"
            ),
        ),
    ],
)
def test_flags_stand_on_any_side_of_a_rule(ruling: Rule, own: tuple[str, ...], fault: str | None) -> None:
    """Needed, excluded, or the condition itself."""
    assert late(ruled(ruling), *own) == ([fault] if fault else [])


def test_before_compiling_such_a_rule_says_nothing() -> None:
    """It is none on placement either, even if it names hardware only."""
    ruling = rule({"brand": "NVIDIA"}, GRAPHS, needs={"flags": "--a"})
    catalogue = ruled(ruling)
    assert refusals.faults(catalogue, choice("plain", strategy="single_node_tep")) == ()
    (found,) = late(catalogue)
    assert found.startswith("hardware: hardware b300 (NVIDIA) needs --a")


@pytest.mark.parametrize(
    "word", ["enforce-eager", "--Enforce", "-cc.mode=NONE", "--a.b>c", "--a.b>", "--a=", "none", "=0"]
)
def test_a_word_that_no_command_can_meet_is_a_fault_of_the_file(word: str) -> None:
    """Short options and loose words are not the rules' spelling."""
    with pytest.raises(pydantic.ValidationError, match="is none of --flag"):
        recipe_extensions.Terms.model_validate({"flags": [word]})


def test_a_note_does_not_depend_on_flags() -> None:
    """Notes are read off the choice, which has no flags yet."""
    with pytest.raises(pydantic.ValidationError, match="does not depend on flags"):
        recipe_extensions.Reservation.model_validate({"when": {"flags": "--a"}, "note": "x"})


def _k31(**changes: Any) -> Choice:
    whole = Choice(
        model="moonshotai/Kimi-K3.1-Pro",
        hardware="b300",
        strategy="single_node_tp",
        nodes=1,
        features=("low_latency_decode",),
    )
    return dataclasses.replace(whole, **changes)


def test_the_fused_path_of_the_shipped_recipe_keeps_its_conditions() -> None:
    """Full decode graphs and the V2 runner are asked for by the page, the draft's limit by vLLM."""
    catalogue = recipes.load_catalogue()
    recipe = catalogue.recipe("moonshotai/Kimi-K3.1-Pro")
    for mode in ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"):
        asked = _k31(advanced_args=("--compilation-config", f'{{"cudagraph_mode":"{mode}"}}'))
        assert resolve.resolve(catalogue, asked).launches
    for own in ("-cc.cudagraph_mode=none", "-cc.cudagraph_mode=1", "-O0", "--enforce-eager"):
        with pytest.raises(SpecError, match="FULL decode CUDA graphs"):
            resolve.resolve(catalogue, _k31(advanced_args=(own,)))
        assert resolve.resolve(catalogue, _k31(advanced_args=(own,), features=())).launches
    off = EnvEntry(name="VLLM_USE_V2_MODEL_RUNNER", value="0", provenance=HERE)
    base = dataclasses.replace(recipe.base, env=(*recipe.base.env, off))
    changed = {recipe.key: dataclasses.replace(recipe, base=base)}
    with pytest.raises(SpecError, match="V2 model runner"):
        resolve.resolve(dataclasses.replace(catalogue, recipes=changed), _k31())
