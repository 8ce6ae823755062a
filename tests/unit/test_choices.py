"""A choice written as JSON: what is read, and what is refused with its path and the closest key."""

from __future__ import annotations

import json
import time

import pytest

from kimi_infra.config import choices
from kimi_infra.domain.inventory import Choice, Instances, PoolChoice
from kimi_infra.errors import SpecError

pytestmark = pytest.mark.compiler

LEFT = frozenset({"hardware", "strategy", "nodes"})


def faults(text: str) -> list[str]:
    """Read a line that must be refused: its faults as text."""
    try:
        found = choices.read(text).faults
    except SpecError as error:
        found = error.faults
    return [str(fault) for fault in found]


def test_all_keys_are_read() -> None:
    """Every key of the format lands in its field, and lists keep their order."""
    written = choices.read(
        json.dumps(
            {
                "recipe": "org/model",
                "variant": "small",
                "strategy": "pd_cluster",
                "hardware": "gb300",
                "nodes": 6,
                "pools": {"prefill": {"nodes": 2, "parallelism": "tep"}, "decode": {"nodes": 0}},
                "features": ["b", "a"],
                "feature_modes": {"b": "fast"},
                "advanced_args": ["--x", "1 2"],
                "kv_offload": "store",
                "kv_instances": {"count": 2, "current": 1},
            }
        )
    )
    assert (written.absent, written.faults, written.unread) == (frozenset(), (), frozenset())
    assert written.choice == Choice(
        model="org/model",
        variant="small",
        strategy="pd_cluster",
        hardware="gb300",
        nodes=6,
        pools={"prefill": PoolChoice(nodes=2, parallelism="tep"), "decode": PoolChoice(nodes=0)},
        features=("b", "a"),
        feature_modes={"b": "fast"},
        advanced_args=("--x", "1 2"),
        kv_offload="store",
        kv_instances=Instances(count=2, current=1),
    )


@pytest.mark.parametrize("other", [{}, dict.fromkeys(choices.KEYS[1:])], ids=["absent", "null"])
def test_everything_but_the_recipe_may_be_left_out(other: dict[str, object]) -> None:
    """A key that is absent and one that is null mean the same: it is left to the recipe."""
    written = choices.read(json.dumps({"recipe": "org/model", **other}))
    assert written.absent == LEFT
    assert written.choice == Choice(model="org/model", hardware="", strategy="", nodes=0, features=None)


def test_no_feature_is_not_the_default_list() -> None:
    """An empty list switches everything off; null takes the recipe's list."""
    assert choices.read('{"recipe": "o/m", "features": []}').choice.features == ()
    assert choices.read('{"recipe": "o/m", "features": null}').choice.features is None


def test_all_faults_come_at_once() -> None:
    """Each fault has its path, what was found, and for a name the closest one."""
    found = faults(
        json.dumps(
            {
                "recipe": 7,
                "hardwear": "b300",
                "nodes": True,
                "pools": {"prefil": {}, "decode": {"nodes": 1.5, "mode": "tp"}},
                "features": ["a", None],
                "feature_modes": {"a": 1},
                "advanced_args": "--x",
                "kv_instances": {"count": 0},
            }
        )
    )
    assert [line.partition("; ")[0] for line in found] == [
        "hardwear: unknown key",
        "recipe: text is expected (got 7)",
        "nodes: a whole number from 1 to 1024 is expected (got true)",
        "pools.prefil: unknown key",
        "pools.decode.mode: unknown key",
        "pools.decode.nodes: a whole number from 0 to 1024 is expected (got 1.5)",
        "features[1]: text is expected (got null)",
        "feature_modes.a: text is expected (got 1)",
        'advanced_args: a list of texts is expected (got "--x")',
        "kv_instances.count: a whole number from 1 to 1024 is expected (got 0)",
    ]
    assert found[0].endswith("did you mean hardware?")
    assert found[3].endswith("did you mean prefill?")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "choice: not JSON: Expecting value at character 1"),
        ("{", "choice: not JSON: Expecting property name enclosed in double quotes at character 2"),
        ('{"recipe": "a"} x', "choice: not JSON: Extra data at character 17"),
        ("[" * 100_000, "choice: JSON that cannot be read"),
        ('{"nodes": ' + "9" * 5000 + "}", "choice: JSON that cannot be read"),
        ("null", "choice: an object is expected"),
        ('["o/m"]', "choice: an object is expected"),
        ("{}", "recipe: missing key"),
        ('{"recipe": null}', "recipe: missing key"),
        ('{"recipe": ""}', "recipe: a name is expected"),
        ('{"recipe": "a", "recipe": "b"}', "recipe: the key is given twice"),
        ('{"recipe": "a", "nodes": 9999999}', "nodes: a whole number from 1 to 1024 is expected"),
        ('{"recipe": "a", "nodes": NaN}', "nodes: a whole number from 1 to 1024 is expected (got NaN)"),
        ('{"recipe": "a", "pools": {"decode": {"nodes": 1, "nodes": 2}}}', "nodes: the key is given twice"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_no_choice_is_refused(text: str, told: str) -> None:
    """Text of any kind ends in a fault, never in another exception."""
    (first, *_) = faults(text)
    assert first.startswith(told)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"advanced_args": ["x"] * 513}, "advanced_args: at most 512 texts are expected (got 513)"),
        (
            {"advanced_args": ["é" * 5461]},
            "advanced_args: words that take at most 32768 bytes as JSON are expected (got 32770)",
        ),
        ({"features": ["x"] * 257}, "features: at most 256 texts are expected (got 257)"),
        (
            {"feature_modes": {str(number): "x" for number in range(257)}},
            "feature_modes: at most 256 keys are expected (got 257)",
        ),
        *(
            (given, f"{path}: a name of at most 512 characters is expected, not of 513 (got ")
            for path, given in (
                ("hardware", {"hardware": "x" * 513}),
                ("features[0]", {"features": ["x" * 513]}),
                ("feature_modes.a", {"feature_modes": {"a": "x" * 513}}),
                ("pools.decode.parallelism", {"pools": {"decode": {"parallelism": "x" * 513}}}),
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_choice_asks_for_a_limited_answer(given: dict[str, object], told: str) -> None:
    """Each list and each name has its limit, which is told with what was given."""
    (found,) = faults(json.dumps({"recipe": "o/m", **given}))
    assert found.startswith(told)
    assert len(found) < 250


def test_as_much_as_the_limits_allow_is_read() -> None:
    """The limits themselves are no fault."""
    words, names = ["x" * 60] * 512, [str(number) * 100 for number in range(256)]
    given = {"recipe": "x" * 512, "advanced_args": words, "features": names}
    written = choices.read(json.dumps({**given, "feature_modes": dict.fromkeys(names, "x")}))
    assert written.faults == ()
    assert written.choice.advanced_args == tuple(words)


@pytest.mark.parametrize(
    ("keys", "first", "last"),
    [
        (
            "".join(f', "k{number}": 1, "k{number}": 2' for number in range(30_000)),
            "k0: the key is given twice; give it once",
            "choice: 30000 keys are given twice, of which the first 64 are told",
        ),
        (
            "".join(f', "k{number}": 1' for number in range(60_000)),
            "k0: unknown key",
            "choice: 60000 keys are unknown, of which the first 64 are told",
        ),
    ],
    ids=["twice", "unknown"],
)
def test_many_wrong_keys_are_read_at_once(keys: str, first: str, last: str) -> None:
    """A line takes time by its length alone, and its answer tells of enough keys to mend it."""
    began = time.process_time()
    found = faults(f'{{"recipe": "o/m"{keys}}}')
    assert time.process_time() - began < 3
    assert found[0].startswith(first)
    assert found[64].startswith(last)


def test_a_long_value_is_shown_in_part() -> None:
    """A fault stays readable whatever was given."""
    (found,) = faults(json.dumps({"recipe": "a", "hardware": ["x" * 500]}))
    assert len(found) < 200


def test_what_can_be_read_is_read_beside_a_fault() -> None:
    """A stand-in takes the place of the rest, and lists keep the places of their words."""
    written = choices.read(
        json.dumps({"recipe": "o/m", "strategy": 5, "nodes": "2", "features": ["a", 1, "b"], "variant": None})
    )
    assert written.choice == Choice(
        model="o/m", hardware="", strategy="", nodes=0, features=("a", "", "b"), variant="default"
    )
    assert written.absent == {"hardware"}
    assert written.unread == {"strategy", "nodes", "features[1]"}


@pytest.mark.parametrize(
    ("given", "unread"),
    [
        ({"recipe": 7}, {"model"}),
        ({}, {"model"}),
        ({"recipe": "o/m", "hardwear": "gb300"}, {"hardware"}),
        ({"recipe": "o/m", "xyz": 1}, set()),
        ({"recipe": "o/m", "pools": {"prefil": {}}}, {"pools.prefil"}),
    ],
    ids=str,
)
def test_what_could_not_be_read_is_named_as_a_refusal_names_it(
    given: dict[str, object], unread: set[str]
) -> None:
    """Of a misspelt key it is the one that was meant: its value is no default of the recipe."""
    written = choices.read(json.dumps(given))
    assert written.faults
    assert written.unread == unread
    assert not written.absent & unread
