"""A choice written as JSON: what is read, and what is refused with its path and the closest key."""

from __future__ import annotations

import json

import pytest

from kimi_infra.config import choices
from kimi_infra.domain.inventory import Choice, Instances, PoolChoice
from kimi_infra.errors import SpecError

pytestmark = pytest.mark.fast

LEFT = frozenset({"hardware", "strategy", "nodes"})


def faults(text: str) -> list[str]:
    """Read a line that must be refused: its faults as text."""
    with pytest.raises(SpecError) as caught:
        choices.read(text)
    return [str(fault) for fault in caught.value.faults]


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
    assert written.absent == frozenset()
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


def test_a_long_value_is_shown_in_part() -> None:
    """A fault stays readable whatever was given."""
    (found,) = faults(json.dumps({"recipe": "a", "hardware": ["x" * 500]}))
    assert len(found) < 200
