"""Words of the operator's own: advanced arguments, and values that nobody has published."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_infra.config import values as config_values
from kimi_infra.domain.recipe import HardwareOverride, Value, Variant
from tests.unit import test_refusals_example as example
from tests.unit.test_refusals_example import POOLS, choice, told

pytestmark = pytest.mark.compiler

API = "leave it out: the plan's checks and its router would look for the API elsewhere"
PLANNED = "the plan itself decides this flag"


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("--tensor-parallel-size", "choose strategy and nodes instead"),
        ("-tp", "choose strategy and nodes instead"),
        ("--tensor_parallel_size", "choose strategy and nodes instead"),
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
        *(
            (word, API)
            for word in ("--host=::", "--uds", "--ssl-keyfile", "--ssl_certfile", "--ssl-ca-certs")
        ),
        *((word, API) for word in ("--root-path", "--grpc")),
        ("--grpc-port", "leave it out: the plan keeps no such port free, and no firewall rule knows it"),
        ("--api-server-count", "leave it out: which nodes hold an API, and how many, is the plan's"),
        ("-asc", "leave it out: which nodes hold an API, and how many, is the plan's"),
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
    ("word", "whole"),
    [
        ("--nnode", "--nnodes"),
        ("--tens", "--tensor-parallel-size"),
        ("--tensor_par=2", "--tensor-parallel-size"),
        ("--hea", "--headless"),
        ("--por", "--port"),
        ("--pi", "--pipeline-parallel-size"),
        ("--shut", "--shutdown-timeout"),
        ("--serv", "--served-model-name"),
        ("--data-par", "--data-parallel-..."),
        ("--hos", "--host"),
        ("--ssl", "--ssl-..."),
        ("--kv-tr", "--kv-transfer-config"),  # whoever gives the connector: checks look for its whole name
        ("--kv-tr.kv_role", "--kv-transfer-config"),
        ("--no-enable-exp", "--enable-expert-parallel"),
        ("--enable-pref", "--enable-prefix-caching"),
        ("--no-enable-prefix", "--enable-prefix-caching"),
        ("-t", "-tp"),
        ("-as", "-asc"),
    ],
)
def test_a_beginning_of_a_flag_that_a_check_knows(word: str, whole: str) -> None:
    """VLLM takes any beginning that is no other flag's for the whole, down to one letter."""
    fault = (
        f"this is a mere beginning of {whole}, for which vLLM may take it "
        f"(got {word.partition('=')[0]}); spell the flag out"
    )
    assert told(choice(advanced_args=(word, "1"))) == [f"advanced_args[0]: {fault}"]
    assert told(choice(values={"tuned_args": ("--own", word)})) == [f"values.tuned_args[1]: {fault}"]


def test_a_beginning_of_a_flag_that_a_rule_names() -> None:
    """A rule on flags cannot be passed by a shortened spelling."""
    no_eager = example.rule({"variant": "default"}, "ours: test", excludes={"flags": "--enforce-eager"})
    catalogue = example.plain(rules=(no_eager,))
    assert told(choice("plain", advanced_args=("--enforce",)), catalogue) == [
        (
            "advanced_args[0]: this is a mere beginning of --enforce-eager, for which vLLM may take it "
            "(got --enforce); spell the flag out"
        )
    ]
    assert told(choice("plain", advanced_args=("--enforce",))) == []


@pytest.mark.parametrize(
    "text",
    [
        *("$HOME", "${HOME}", "$_x", "$HEAD_IP", "$IFACE_NAME"),
        *("tcp://$HEAD_IP:1", "a,$DECODE_NODE_12", "$PREFILL_DP_RPC_PORT", "http://$ROUTER_HOST"),
    ],
)
def test_a_word_in_whose_place_something_is_put(text: str) -> None:
    """A shell and systemd read a variable differently, and the plan replaces the page's placeholders."""
    fault = (
        "what stands here would differ: a shell or the plan puts something in its place "
        f"(got {text}); write what it stands for"
    )
    assert told(choice(advanced_args=("--own", text))) == [f"advanced_args[1]: {fault}"]
    assert told(choice(values={"tuned_args": ("--own", text)})) == [f"values.tuned_args[1]: {fault}"]
    assert told(choice(values={"draft_model": text})) == [f"values.draft_model: {fault}"]


@pytest.mark.parametrize("text", ["a$HOME", "$", "$1", "$$HOME", "$HEAD_IPS/x", "$(id)", "<value", "a<b>"])
def test_a_word_that_stays_what_it_is(text: str) -> None:
    """It is quoted for each target."""
    assert told(choice(advanced_args=("--own", text), values={"draft_model": text})) == []


@pytest.mark.parametrize("mark", ["<operator: what; where>", "<measured: what>", "<value:draft_model>"])
@pytest.mark.parametrize("form", ["{}", "--own={}", '{{"model":"{}"}}'])
def test_a_placeholder_inside_a_word(mark: str, form: str) -> None:
    """It would be filled in, or be taken for what is still to be given."""
    text = form.format(mark)
    fault = f"this is still the placeholder (got {text}); give what it asks for"
    assert told(choice(advanced_args=("--own", text))) == [f"advanced_args[1]: {fault}"]
    if not text.startswith("-"):
        assert told(choice(values={"draft_model": text})) == [f"values.draft_model: {fault}"]


IMAGED: dict[str, Any] = {
    "images": {"amd": "<value:image>"},
    "variants": {
        "default": Variant(hardware_overrides={"b300": HardwareOverride(image="reg.example/a:<value:tag>")})
    },
    "values": {name: Value(name=name, what=f"the {name}", find="its card") for name in ("image", "tag")},
}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("image", "vllm/vllm-openai"),
        ("image", "vllm/vllm-openai@sha256:" + "0" * 64),
        ("image", "Vllm/x:1"),
        ("image", "https://reg.example/a:1"),
        ("tag", "a b"),
        ("tag", "v1:2"),
    ],
)
def test_a_value_that_makes_no_image(name: str, given: str) -> None:
    """What names an image is held to what a deployment's own image.name is held to."""
    assert told(choice("plain", values={name: given}), example.plain(**IMAGED)) == [
        (
            f"values.{name}: the {name}: not an image name with a tag (got {given}); "
            "write for example vllm/vllm-openai:kimi-k31"
        )
    ]


@pytest.mark.parametrize(
    "text", ["vllm/vllm-openai:1", "reg.example:5000/a/b:v1.2", "a:1", "a", "A:1", "a@b:1"]
)
def test_an_image_is_judged_as_a_deployments_own(text: str) -> None:
    """Both accept the same names."""
    own = bool(config_values._IMAGE.fullmatch(text))
    found = told(choice("plain", values={"image": text, "tag": "1"}), example.plain(**IMAGED))
    assert (found == []) is own


@pytest.mark.parametrize(
    "words",
    [
        ("--max-num-seqs", "8", "--enable-prefix-caching"),
        ("--enable-ep-weight-filter", "--mm-encoder-tp-mode", "data", "-O3", "--modes", "x"),
        ("--kv-transfer-config", "{}", "--kv-offloading-size", "8"),  # nobody else gives a connector
        ("--model-loader-extra-config", '{"concurrency":8}', "--portal"),
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
