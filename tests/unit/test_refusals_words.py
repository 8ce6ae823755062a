"""Words of the operator's own: advanced arguments, and values that nobody has published."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.test_refusals_example import POOLS, choice, told

pytestmark = pytest.mark.fast

PLANNED = "the plan itself decides this flag"


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("--tensor-parallel-size", "choose strategy and nodes instead"),
        ("-tp", "choose strategy and nodes instead"),
        ("--tensor_parallel_size", "choose strategy and nodes instead"),
        ("--tensor-par", "choose strategy and nodes instead"),  # vLLM takes a beginning for the whole
        ("--pipeline-parallel-size=2", "choose strategy and nodes instead"),
        ("-pp", "choose strategy and nodes instead"),
        ("--data-parallel-size", "choose strategy, nodes or pools instead"),
        ("--data-parallel-hybrid-lb", "choose strategy, nodes or pools instead"),
        ("-dpa", "choose strategy, nodes or pools instead"),
        ("--no-enable-expert-parallel", "choose a strategy with expert parallelism instead"),
        ("-ep", "choose a strategy with expert parallelism instead"),
        ("-dcp", "set dcp instead"),
        ("-pcp", "leave it out: no strategy counts its ranks"),
        ("--nnodes", "set nodes instead"),
        ("-n2", "set nodes instead"),
        ("--node-rank", "set nodes instead"),
        ("-r1", "set nodes instead"),
        ("--headless", "set nodes instead"),
        ("--master-addr", "give the hosts' engine_address instead"),
        ("--master-port", "set ports.master of the deployment instead"),
        ("--port", "set api.port of the deployment instead"),
        (
            "--api-key=secret",
            "set api.key of the deployment instead; here every user of the host could read it",
        ),
        ("--served-model-name", "leave it out: the plan gives the model's own id"),
        ("--shutdown-timeout", "leave it out: the unit's deadlines rest on the plan's"),
        ("--model", "set model instead"),
        ("--config", "write its options as words: what is in the file is not seen"),
    ],
)
def test_a_flag_that_the_plan_decides(word: str, remedy: str) -> None:
    """In any spelling it is refused, with what to set instead and without its value."""
    shown = word.partition("=")[0]
    assert told(choice(advanced_args=("--max-num-seqs", "8", word, "1"))) == [
        f"advanced_args[2]: {PLANNED} (got {shown}); {remedy}"
    ]
    assert told(choice(values={"tuned_args": (word, "1")})) == [
        f"values.tuned_args[0]: {PLANNED} (got {shown}); {remedy}"
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--max-num-seqs", "8", "--enable-prefix-caching"),
        ("--enable-ep-weight-filter", "--mm-encoder-tp-mode", "data", "-O3", "--modes", "x"),
        ("--kv-transfer-config", "{}", "--kv-offloading-size", "8"),  # nobody else gives a connector
        ("--model-loader-extra-config", '{"concurrency":8}', "--host", "0.0.0.0", "--portal"),  # noqa: S104
    ],
)
def test_other_flags_are_the_operators_own(words: tuple[str, ...]) -> None:
    """Only what the plan decides is refused; what vLLM thinks of a flag is vLLM's to say."""
    assert told(choice(advanced_args=words)) == []


@pytest.mark.parametrize(
    "changes",
    [{"kv_offload": "simple"}, {"hardware": "gb300", "strategy": "pd_cluster", "nodes": 6, "pools": POOLS}],
)
def test_one_connector_is_the_plans(changes: dict[str, Any]) -> None:
    """Where the plan gives a connector, a second one or what overwrites it is refused."""
    words = ("--kv-transfer-config", "{}", "--kv_offloading_size", "8")
    assert told(choice(**changes, advanced_args=words)) == [
        (
            f"advanced_args[0]: {PLANNED} (got --kv-transfer-config); "
            "choose kv_offload instead: a second one would drop the plan's"
        ),
        (
            f"advanced_args[2]: {PLANNED} (got --kv_offloading_size); "
            "choose kv_offload instead: it would overwrite the plan's connector"
        ),
    ]


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        (
            ("8", "--max-num-seqs"),
            [
                (
                    "[0]: the first word is not a flag, so that it would become the value of the flag "
                    "before it "
                    "(got 8); begin with a flag"
                )
            ],
        ),
        (
            ("--", "x"),
            [
                (
                    "[0]: the first word is not a flag, so that it would become the value of the flag "
                    "before it "
                    "(got --); begin with a flag"
                )
            ],
        ),
        (
            ("", "--a\n", " ", "<operator: what; where>"),
            [
                "[0]: the text is empty; give the text, or leave it out",
                "[1]: a control character cannot be written in a command (got '--a\\n'); take it out",
                "[2]: the text is empty; give the text, or leave it out",
                "[3]: this is still the placeholder (got <operator: what; where>); give what it asks for",
            ],
        ),
    ],
)
def test_words_that_cannot_stand_in_a_command(words: tuple[str, ...], faults: list[str]) -> None:
    """Each is told at its own place, in advanced arguments as in a value of several words."""
    assert told(choice(advanced_args=words)) == [f"advanced_args{fault}" for fault in faults]
    assert told(choice(values={"tuned_args": words})) == [f"values.tuned_args{fault}" for fault in faults]


@pytest.mark.parametrize(
    ("name", "given", "fault"),
    [
        ("draft_model", "", "the text is empty; give the text, or leave it out"),
        (
            "draft_model",
            "a\x1b[31m",
            "a control character cannot be written in a command (got 'a\\x1b[31m'); take it out",
        ),
        ("draft_model", ("a", "b"), "the draft: one text is needed (got a b); give one text"),
        (
            "draft_model",
            "--port",
            (
                "the draft: what begins with a dash would be read as a flag (got --port); "
                "give it without the dash"
            ),
        ),
        ("draft_tokens", "0", "tokens: not a positive whole number (got 0); write it in digits"),
        ("draft_tokens", "1.5", "tokens: not a positive whole number (got 1.5); write it in digits"),
        ("draft_tokens", "\u0663", "tokens: not a positive whole number (got \u0663); write it in digits"),
        ("tier_bytes", "128G", "bytes: not a positive whole number (got 128G); write it in digits"),
        ("tuned_args", "--a", "flags: a list of words is needed (got --a); give each word by itself"),
        (
            "draft_modle",
            "x",
            "no such value of org/described is known (got draft_modle); did you mean draft_model?",
        ),
    ],
)
def test_values(name: str, given: str | tuple[str, ...], fault: str) -> None:
    """A value must be declared by recipe or taxonomy, and be of its kind."""
    assert told(choice(values={name: given})) == [f"values.{name}: {fault}"]


def test_good_values() -> None:
    """None of them is refused; a list of no words is an answer too."""
    values = {
        "draft_model": "org/draft",
        "draft_tokens": "7",
        "tuned_args": (),
        "tier_bytes": "137438953472",
    }
    assert told(choice(values=values)) == []
