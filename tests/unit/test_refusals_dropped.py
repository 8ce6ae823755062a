"""Nothing that was asked for is dropped in silence: values without a use, flags that another ousts."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Catalogue, Feature, Preset, Settings, Value, ValueKind
from kimi_infra.errors import SpecError
from kimi_infra.planning import resolve
from tests.unit.test_refusals_example import HERE, choice, plain, words

pytestmark = pytest.mark.compiler

JSON = ("--config-of", '{"own":1}')
PARTS: dict[str, Any] = {
    "features": {
        "one": Feature(args=words('--seqs 8 --config-of {"a":1}')),
        "two": Feature(args=words('--seqs 16 --config-of {"b":1}')),
        "whole": Feature(args=words('--config-of {"own":2,"a":1}')),
        "open": Feature(args=words("<value:open_args>")),
        "named": Feature(args=words("--draft <value:draft>")),
        "switched": Feature(args=words("--plain"), hardware_overrides={"amd": words("--x <value:draft>")}),
    },
    "opt_in_features": frozenset({"one", "two", "whole", "open", "named", "switched"}),
    "base": Settings(args=words('--seqs 1 --config-of {"base":1}')),
    "presets": {
        "tuned": Preset(
            name="tuned",
            title="Tuned",
            hardware="b300",
            strategy="single_node_tp",
            nodes=1,
            features=(),
            dcp=None,
            kv_offload=None,
            args=words('--config-of {"preset":1} --more <value:more>'),
            provenance=HERE,
        )
    },
    "values": {
        "draft": Value(name="draft", what="the draft", find="its card"),
        "more": Value(name="more", what="more", find="the page"),
        "open_args": Value(name="open_args", what="flags", find="the page", kind=ValueKind.ARGS),
    },
}


def late(asked: Choice, catalogue: Catalogue | None = None) -> list[str]:
    """Return what is refused of a compiled choice; as published it is compiled, and the same is a warning."""
    known = catalogue or plain(**PARTS)
    found = resolve.as_published(known, asked)
    assert found.launches
    if not found.warnings:
        assert resolve.resolve(known, asked).launches
        return []
    with pytest.raises(SpecError) as caught:
        resolve.resolve(known, asked)
    assert caught.value.faults == found.warnings
    return [str(fault) for fault in found.warnings]


def own(*given: str, **changes: Any) -> Choice:
    """Return a choice with the operator's own words."""
    return choice("plain", advanced_args=given, **{"features": (), **changes})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"values": {"draft": "org/draft"}},
            (
                "values.draft: nothing in this choice uses it (got org/draft); choose feature named, "
                "or leave it out"
            ),
        ),
        (
            {"values": {"draft": "org/draft"}, "hardware": "mi355x"},
            (
                "values.draft: nothing in this choice uses it (got org/draft); "
                "choose feature named or feature switched, or leave it out"
            ),
        ),
        (
            {"values": {"open_args": ("--own", "b")}},
            (
                "values.open_args: nothing in this choice uses it (got --own b); choose feature open, "
                "or leave it out"
            ),
        ),
        (
            {"values": {"more": "x"}},
            "values.more: nothing in this choice uses it (got x); choose preset tuned, or leave it out",
        ),
        (
            {"values": {"more": "x"}, "hardware": "mi355x"},
            "values.more: nothing in this choice uses it, only preset tuned would (got x); leave it out",
        ),
        (
            {"values": {"tier_bytes": "1"}},
            "values.tier_bytes: nothing in this choice uses it (got 1); leave it out",
        ),
        ({"values": {"draft": "org/draft"}, "features": ("named",)}, None),
        ({"values": {"open_args": ()}, "features": ("open",)}, None),
        ({"values": {"more": "x"}, "preset": "tuned"}, None),
    ],
)
def test_a_value_that_nothing_uses(changes: dict[str, Any], fault: str | None) -> None:
    """It is refused with what would use it, as far as that goes with the rest of the choice."""
    assert late(own(**changes)) == ([fault] if fault else [])


def test_the_size_of_an_offload_that_is_not_chosen() -> None:
    """The shipped recipe's own: the tier's size, the draft, and another hardware's image."""
    asked = Choice(
        model="moonshotai/Kimi-K3.1-Pro",
        hardware="gb300",
        strategy="multi_node_tp",
        nodes=2,
        features=None,
        values={"kv_offload_bytes": "1024", "image_m890": "registry.example/m890:1"},
    )
    assert late(asked, recipes.load_catalogue()) == [
        (
            "values.kv_offload_bytes: nothing in this choice uses it (got 1024); choose kv_offload simple, "
            "or leave it out"
        ),
        (
            "values.image_m890: nothing in this choice uses it, only hardware m890 would "
            "(got registry.example/m890:1); leave it out"
        ),
    ]


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (
            own("--seqs", "4", features=("one",)),
            (
                "advanced_args: --seqs 4 of advanced_args would be dropped for --seqs 8 of feature one "
                "(got --seqs 4); leave --seqs out of advanced_args, or leave feature one out"
            ),
        ),
        (
            own(*JSON, features=("one",)),
            (
                'advanced_args: --config-of {"own":1} of advanced_args would be dropped for '
                '--config-of {"a":1} of feature one (got --config-of {"own":1}); '
                "leave --config-of out of advanced_args, or put a into the --config-of of advanced_args and "
                "leave feature one out"
            ),
        ),
        (
            own(*JSON, features=("whole",)),  # no key is lost, but the operator's value is
            (
                'advanced_args: --config-of {"own":1} of advanced_args would be dropped for '
                '--config-of {"own":2,"a":1} of feature whole (got --config-of {"own":1}); '
                "leave --config-of out of advanced_args, or leave feature whole out"
            ),
        ),
        (
            own("--seqs", "4", "--seqs", "5"),
            (
                "advanced_args: --seqs 4 of advanced_args would be dropped for --seqs 5 of advanced_args "
                "(got --seqs 4); give --seqs once"
            ),
        ),
        (
            own("--seqs", "4", features=("open",), values={"open_args": ("--seqs", "5")}),
            (
                "advanced_args: --seqs 4 of advanced_args would be dropped for --seqs 5 of values.open_args "
                "(got --seqs 4); leave --seqs out of advanced_args, or out of values.open_args"
            ),
        ),
        (
            own(features=("one", "two")),
            (
                'features[1]: --config-of {"a":1} of feature one would be dropped for --config-of {"b":1} '
                'of feature two (got --config-of {"b":1}); leave feature one or feature two out'
            ),
        ),
        (
            own(features=("one",), preset="tuned", values={"more": "x"}),
            (
                'features[0]: --config-of {"preset":1} of preset tuned would be dropped for '
                '--config-of {"a":1} of feature one (got --config-of {"a":1}); '
                "leave preset tuned or feature one out"
            ),
        ),
        (
            own(*JSON),
            (
                'advanced_args: --config-of {"base":1} of the recipe would be dropped for '
                '--config-of {"own":1} of advanced_args (got --config-of {"own":1}); '
                "put base into it too, or leave --config-of out of advanced_args"
            ),
        ),
    ],
)
def test_a_flag_that_another_one_ousts(asked: Choice, fault: str) -> None:
    """Both are named with where they are from, and what keeps both or does without one."""
    assert late(asked) == [fault]


@pytest.mark.parametrize(
    "asked",
    [
        own("--seqs", "8", features=("one",)),  # both say the same
        own("--seqs", "4"),  # what an operator writes is there to replace the recipe's
        own("--config-of", '{"base":2}'),
        own(features=("one",)),  # the recipe's own order of its own groups
        own(features=("two",), kv_offload="simple"),
    ],
)
def test_what_is_replaced_on_purpose(asked: Choice) -> None:
    """An override that loses nothing, and the public merge order within a recipe, stay allowed."""
    assert late(asked) == []
