"""The publisher's rules: what needs what, what excludes what, in his own words."""

from __future__ import annotations

import dataclasses

import pytest

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Catalogue, Rule
from tests.unit import test_refusals_example as example
from tests.unit.test_refusals_example import choice, plain, rule, told

pytestmark = pytest.mark.compiler


def ruled(*rules: Rule) -> Catalogue:
    """Return the catalogue with these rules in the recipe without placements."""
    return plain(rules=rules)


@pytest.mark.parametrize(
    ("asked", "faults"),
    [
        (
            choice(strategy="single_node_tep", features=("tools", "latency"), dcp=8),
            [
                (
                    "features[1]: feature latency needs strategy single_node_tp or multi_node_tp, and "
                    "single_node_tep was chosen (seed: no experts) (got single_node_tep); "
                    "choose strategy single_node_tp"
                ),
                (
                    "dcp: dcp 8 needs strategy single_node_tp or multi_node_tp, and single_node_tep was "
                    "chosen "
                    "(seed: beside plain TP) (got single_node_tep); choose strategy single_node_tp"
                ),
            ],
        ),
        (
            choice(hardware="ppu", strategy="multi_node_tep", nodes=2, features=("packed", "draft")),
            [
                (
                    "features[0]: feature packed needs brand NVIDIA, and hardware ppu (PPU) was chosen "
                    "(seed: its kernels) (got PPU); leave packed out, or choose NVIDIA hardware"
                ),
                (
                    "features[1]: hardware ppu (PPU) does not go with feature draft (seed: no drafts) "
                    "(got draft); leave draft out"
                ),
            ],
        ),
        (
            # Neither strategy that the feature takes is described on this hardware.
            choice(hardware="ppu", strategy="multi_node_tep", nodes=2, features=("latency",)),
            [
                (
                    "features[0]: feature latency needs strategy single_node_tp or multi_node_tp, and "
                    "multi_node_tep was chosen (seed: no experts) (got multi_node_tep); leave latency out"
                ),
            ],
        ),
        (
            # A placement that is not described, and what an option needs: both are told, each once.
            choice(hardware="gb300", strategy="single_node_tep", features=("latency",)),
            [
                (
                    "strategy: strategy single_node_tep on hardware gb300 is not described for "
                    "org/described, "
                    "and variant default needs 1680 GB of accelerator memory, more than the 1152 GB of 1 "
                    "node of "
                    "gb300 (seed: eight GPUs) (got single_node_tep); choose strategy multi_node_tp with 2 "
                    "nodes"
                ),
                (
                    "features[0]: feature latency needs strategy single_node_tp or multi_node_tp, and "
                    "single_node_tep was chosen (seed: no experts) (got single_node_tep); "
                    "choose strategy multi_node_tp with 2 nodes"
                ),
            ],
        ),
    ],
)
def test_a_broken_rule_is_told_with_its_sentence(asked: Choice, faults: list[str]) -> None:
    """Both parts that conflict, the sentence, and the nearest way out: same hardware first."""
    assert told(asked) == faults


def test_features_that_are_on_by_default_count() -> None:
    """A rule holds for the default list as well; the place is the one in that list."""
    rules = rule({"features": "tools"}, "ours: test", excludes={"strategy": "single_node_tp"})
    assert told(choice("plain"), ruled(rules)) == [
        (
            "features[0]: feature tools does not go with strategy single_node_tp (ours: test) (got tools); "
            "leave tools out"
        )
    ]


@pytest.mark.parametrize(
    ("rules", "asked", "fault"),
    [
        (
            rule({"features": "draft"}, "ours: test", excludes={"features": "tools"}),
            choice("plain", features=("draft", "tools")),
            (
                "features[1]: feature draft does not go with feature tools (ours: test) (got tools); "
                "leave tools out"
            ),
        ),
        (
            rule({"kv_offload": "simple"}, "ours: test", needs={"dcp": "8"}),
            choice("plain", kv_offload="simple"),
            (
                "kv_offload: kv_offload simple needs dcp 8, and none was chosen (ours: test) (got none); "
                "choose dcp 8, or leave kv_offload simple out"
            ),
        ),
        (
            rule({"kv_offload": "simple"}, "ours: test", needs={"dcp": "none"}),
            choice("plain", kv_offload="simple", dcp=8),
            (
                "kv_offload: kv_offload simple needs no dcp, and 8 was chosen (ours: test) (got 8); "
                "leave dcp out"
            ),
        ),
        (
            rule({"dcp": "8"}, "ours: test", needs={"features": "draft helped"}),
            choice("plain", dcp=8),
            (
                "dcp: dcp 8 needs feature draft or helped, and tools was chosen (ours: test) (got tools); "
                "switch on feature draft or helped, or leave dcp out"
            ),
        ),
        (
            rule({"features": "draft", "dcp": "8"}, "ours: test", needs={"hardware": "gb300"}),
            choice("plain", features=("draft",), dcp=8),
            (
                "features[0]: feature draft with dcp 8 needs hardware gb300, and b300 was chosen (ours: "
                "test) "
                "(got b300); leave draft out, or choose hardware gb300"
            ),
        ),
        (
            rule({"dcp": "none", "brand": "NVIDIA"}, "ours: test", excludes={"kv_offload": "simple"}),
            choice("plain", kv_offload="simple"),
            (
                "dcp: no dcp with hardware b300 (NVIDIA) does not go with kv_offload simple (ours: test) "
                "(got none); choose dcp"
            ),
        ),
        (
            rule({"variant": "small"}, "ours: test", needs={"strategy": "multi_node_tp"}),
            choice("plain", variant="small"),
            (
                "variant: variant small needs strategy multi_node_tp, and single_node_tp was chosen (ours: "
                "test) "
                "(got single_node_tp); choose strategy multi_node_tp with 2 nodes"
            ),
        ),
        (
            rule({"strategy": "single_node_tp"}, "ours: test", needs={"variant": "small"}),
            choice("plain"),
            (
                "strategy: strategy single_node_tp needs variant small, and default was chosen (ours: test) "
                "(got default); choose variant small, or choose another strategy"
            ),
        ),
        (
            rule({"hardware": "b300"}, "ours: test", excludes={"variant": "default"}),
            choice("plain"),
            (
                "variant: hardware b300 (NVIDIA) does not go with variant default (ours: test) "
                "(got default); choose another variant"
            ),
        ),
        (
            rule({"brand": "NVIDIA"}, "ours: test", needs={"variant": "small"}),
            choice("plain"),
            (
                "hardware: hardware b300 (NVIDIA) needs variant small, and default was chosen (ours: test) "
                "(got default); choose variant small, or choose another hardware"
            ),
        ),
        (
            # On placement alone, and the recipe describes none: the nearest placement keeps to the rule.
            rule({"hardware": "b300"}, "ours: test", needs={"strategy": "multi_node_tep multi_node_dep"}),
            choice("plain"),
            (
                "strategy: hardware b300 (NVIDIA) needs strategy multi_node_tep or multi_node_dep, and "
                "single_node_tp was chosen (ours: test) (got single_node_tp); "
                "choose strategy multi_node_tep with 2 nodes"
            ),
        ),
    ],
)
def test_every_part_of_a_choice_can_be_ruled(rules: Rule, asked: Choice, fault: str) -> None:
    """The refusal stands at the part that is the easiest to change, and says how to do without it."""
    assert told(asked, ruled(rules)) == [fault]


def test_a_rule_on_what_is_refused_anyway_is_not_told() -> None:
    """Hardware that is not offered breaks no rule beside that, and a baseline is no preset."""
    asked = choice(hardware="npu", features=("packed",), strategy="single_node_tp")
    assert [line.partition(":")[0] for line in told(asked)] == ["hardware"]
    rules = rule({"preset": "none"}, "ours: test", excludes={"features": "tools"})
    assert told(choice("plain", preset="baseline"), ruled(rules)) != []
    unmet = dataclasses.replace(rules, when=example.rule({"preset": "tuned"}, "").when)
    assert told(choice("plain", preset="baseline"), ruled(unmet)) == []
