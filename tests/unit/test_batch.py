"""Many choices in, as many answers out: order, shape, errors, memory."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kimi_infra import cli
from kimi_infra.config import recipes
from kimi_infra.deploy import batch
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.planning import resolve

pytestmark = pytest.mark.compiler

WORKED = Path(__file__).parent / "worked"
K3 = "moonshotai/Kimi-K3"
GB300 = {"recipe": K3, "hardware": "gb300", "strategy": "multi_node_tp", "nodes": 2}
PD = {
    "recipe": K3,
    "hardware": "gb300",
    "strategy": "pd_cluster",
    "nodes": 6,
    "pools": {"prefill": {"nodes": 2}, "decode": {"nodes": 4, "parallelism": "dep"}},
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    """The recipes that were written for the worked examples."""
    return recipes.read_catalogue(WORKED)


def asked(choice: Mapping[str, object]) -> bytes:
    """A choice as a line."""
    return json.dumps(choice).encode() + b"\n"


def answered(catalogue: Catalogue, *lines: bytes) -> list[dict[str, Any]]:
    """The answers to some lines."""
    return [json.loads(answer) for answer in batch.answers(catalogue, lines)]


def run(*arguments: str, given: str = "") -> tuple[int, str, str]:
    """Run the command line in this process: exit code, standard output, standard error."""
    done = CliRunner().invoke(cli.app, ["render", *arguments], input=given)
    return done.exit_code, done.stdout, done.stderr


def test_an_answer_is_what_the_resolver_says(catalogue: Catalogue) -> None:
    """Nodes in rank order with their argv, environment and image, keys in the promised order."""
    (found,) = answered(catalogue, asked(GB300))
    choice = Choice(model=K3, hardware="gb300", strategy="multi_node_tp", nodes=2, features=None)
    launches = resolve.as_published(catalogue, choice).launches
    assert list(found) == ["nodes", "router"]
    assert found["router"] is None
    assert [list(node) for node in found["nodes"]] == [["role", "rank", "argv", "env", "image"]] * 2
    assert [(node["role"], node["rank"]) for node in found["nodes"]] == [("head", 0), ("worker", 1)]
    for node, launch in zip(found["nodes"], launches, strict=True):
        assert node["argv"] == list(launch.argv)
        assert node["argv"][:3] == ["vllm", "serve", K3]
        assert list(node["env"].items()) == [(entry.name, entry.value) for entry in launch.env]
        assert node["image"] == launch.image


def test_a_cluster_has_a_router(catalogue: Catalogue) -> None:
    """Prefill stands before decode, ranks count within a pool, the router is words."""
    (found,) = answered(catalogue, asked(PD))
    assert [(node["role"], node["rank"]) for node in found["nodes"]] == [
        *(("prefill", rank) for rank in range(2)),
        *(("decode", rank) for rank in range(4)),
    ]
    assert found["router"][:2] == ["vllm-router", "--policy"]
    assert "http://$DECODE_NODE_4:8002" in found["router"]


def test_what_is_left_out_is_the_pages_default(catalogue: Catalogue) -> None:
    """Hardware, strategy and nodes that are not given are those that the page opens with."""
    (found,) = answered(catalogue, asked({"recipe": K3, "hardware": "gb300"}))
    assert found == answered(catalogue, asked({**GB300, "features": None, "pools": None}))[0]


def test_every_line_has_its_answer_in_its_place(catalogue: Catalogue) -> None:
    """A line that cannot be answered holds up none of the others, and says all that is wrong with it."""
    lines = (asked(GB300), b"{\n", b"\n", asked({"recipe": K3, "node": 1, "nodes": "2"}), asked(PD))
    found = answered(catalogue, *lines)
    assert [next(iter(answer)) for answer in found] == ["nodes", "error", "error", "error", "nodes"]
    assert found[3]["error"].splitlines() == [
        "node: unknown key; did you mean nodes?",
        'nodes: a whole number from 1 to 1024 is expected (got "2"); write it as docs/recipes.md says',
    ]


def test_an_unknown_recipe_is_named_as_the_batch_does(catalogue: Catalogue) -> None:
    """The place of the fault is the key that was written, with the closest id."""
    (found,) = answered(catalogue, asked({"recipe": "moonshotai/Kimi-K33"}))
    assert found["error"].startswith("recipe: ")
    assert f"did you mean {K3}?" in found["error"]


def told(catalogue: Catalogue, choice: Mapping[str, object]) -> list[str]:
    """The faults of a line that cannot be answered, without their remedies."""
    (found,) = answered(catalogue, asked(choice))
    return [line.partition("; ")[0] for line in found["error"].splitlines()]


def test_a_line_is_told_all_that_is_wrong_with_it(catalogue: Catalogue) -> None:
    """Of what can be read names are looked up, whatever else cannot be read or is unknown."""
    line = {"recipe": "unknown", "strategy": 5, "hardware": "gb3000", "kv_offload": "nosuch"}
    assert told(catalogue, line) == [
        "strategy: text is expected (got 5)",
        "recipe: no such model is known (got unknown)",
        "hardware: no such hardware is known (got gb3000)",
        "kv_offload: no such KV offload is known (got nosuch)",
    ]
    line = {"recipe": K3, "nodes": "2", "hardware": "gb300", "features": ["reasonin", 1, "tool_callin"]}
    assert told(catalogue, line) == [
        'nodes: a whole number from 1 to 1024 is expected (got "2")',
        "features[1]: text is expected (got 1)",
        "features[0]: no such feature is known (got reasonin)",
        "features[2]: no such feature is known (got tool_callin)",
    ]
    assert told(catalogue, {"hardware": "gb301"}) == [
        "recipe: missing key",
        "hardware: no such hardware is known (got gb301)",
    ]


@pytest.mark.parametrize(
    "line",
    [
        {**PD, "hardware": 5},
        {**PD, "strategy": 5},
        {**PD, "pools": {"prefill": {"nodes": 2}, "decod": {"nodes": 4}}},
        {**PD, "strategy": None, "stratgy": "pd_cluster"},
        {**PD, "pools": None, "hardware": "b300", "nodes": "2"},
        {**GB300, "hardware": None, "hardwear": "gb300"},
        {**GB300, "features": "reasoning", "feature_modes": {"spec_decoding": "mtp"}},
    ],
    ids=str,
)
def test_what_follows_from_a_fault_is_not_told_beside_it(
    catalogue: Catalogue, line: Mapping[str, object]
) -> None:
    """A field that cannot be read is not judged, nor replaced by a default that others contradict."""
    assert len(told(catalogue, line)) == 1


def test_a_recipe_that_cannot_be_read_does_not_hide_an_unknown_name(tmp_path: Path) -> None:
    """The file's faults stand beside those of the choice."""
    folder = tmp_path / "catalogue"
    shutil.copytree(WORKED, folder)
    (folder / "models" / "moonshotai" / "Broken.yaml").write_text("meta: [\n")
    known = recipes.open_catalogue(folder, lambda _: None)
    found = told(known, {"recipe": "moonshotai/Broken", "hardware": "gb301"})
    assert found[0].startswith("models/moonshotai/Broken.yaml")
    assert found[-1] == "hardware: no such hardware is known (got gb301)"


def test_lines_may_end_as_on_windows(catalogue: Catalogue) -> None:
    """A carriage return before the line's end is no part of the choice."""
    written = asked(GB300)
    assert answered(catalogue, written.replace(b"\n", b"\r\n")) == answered(catalogue, written)


def test_warnings_are_there_only_when_there_are_any(catalogue: Catalogue) -> None:
    """What the page leaves out in silence is said, and the answer is the page's all the same."""
    known, unknown = answered(
        catalogue,
        asked({**GB300, "features": ["reasoning"]}),
        asked({**GB300, "features": ["reasoning", "reasonning"]}),
    )
    assert list(unknown) == ["nodes", "router", "warnings"]
    assert unknown["nodes"] == known["nodes"]
    assert any("reasonning" in warning for warning in unknown["warnings"])


def test_an_answer_needs_no_later_line(catalogue: Catalogue) -> None:
    """One line is read for one answer: nothing is collected."""
    read = 0

    def lines() -> Iterator[bytes]:
        nonlocal read
        for _ in range(10):
            read += 1
            yield asked(GB300)

    answers = batch.answers(catalogue, lines())
    for number in range(1, 4):
        next(answers)
        assert read == number


@pytest.mark.parametrize("size", [batch.LINE_MAX, batch.LINE_MAX + 1, 5 * batch.LINE_MAX + 7])
def test_a_line_without_end_is_not_kept(catalogue: Catalogue, size: int) -> None:
    """It is answered by an error, and the next line by its commands."""
    stream = io.BytesIO(b"[" * size + b"\n" + asked(GB300))
    kept = list(batch.lines(stream))
    assert [len(line) for line in kept] == [batch.LINE_MAX + 1, len(asked(GB300))]
    long, after = answered(catalogue, *kept)
    assert "a line of more than 1048576 bytes" in long["error"]
    assert len(after["nodes"]) == 2


@pytest.mark.parametrize("words", [["--x"] * 60_000, ["x" * 1_000_000]], ids=["many", "long"])
def test_words_that_every_node_would_repeat_are_limited(catalogue: Catalogue, words: list[str]) -> None:
    """A line that is short enough to be read does not ask for gigabytes of answer."""
    (found,) = answered(catalogue, asked({**GB300, "nodes": 1024, "advanced_args": words}))
    assert re.match(r"advanced_args: .*at most (512 texts|32768 bytes)", found["error"])


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b'{"recipe": "\xc3"}\n'])
def test_bytes_that_are_no_text_are_an_error(catalogue: Catalogue, line: bytes) -> None:
    """The place of the byte is told."""
    (found,) = answered(catalogue, line)
    assert re.match(r"choice: not UTF-8 at byte \d+; ", found["error"])


def test_a_mark_at_the_beginning_of_a_file_is_no_fault(catalogue: Catalogue) -> None:
    """Editors put a byte order mark there."""
    assert answered(catalogue, b"\xef\xbb\xbf" + asked(GB300)) == answered(catalogue, asked(GB300))


def test_an_accident_of_ours_costs_one_line(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line on which the resolver breaks is answered by where it broke; the others are not lost."""
    real = resolve.as_published

    def breaks(known: Catalogue, choice: Choice) -> Resolution:
        if choice.nodes == 3:
            raise KeyError("planted")
        return real(known, choice)

    monkeypatch.setattr(resolve, "as_published", breaks)
    found = answered(catalogue, asked({**GB300, "nodes": 3}), asked(GB300))
    assert re.search(r"KeyError\('planted'\) at test_batch\.py:\d+; please report", found[0]["error"])
    assert len(found[1]["nodes"]) == 2


def test_hostile_text_passes_through(catalogue: Catalogue) -> None:
    """Words of an operator come back as they are, whatever they hold, one answer a line."""
    words = ["--x", "a\nb 'c' \"d\" $e % \u2028 \x00 深", "-"]
    answers = list(batch.answers(catalogue, [asked({**GB300, "advanced_args": words})]))
    assert len(answers) == 1
    assert "\n" not in answers[0]
    argv = json.loads(answers[0])["nodes"][0]["argv"]
    start = argv.index("--x")
    assert argv[start : start + 3] == words


def test_the_verb_answers_a_file_and_standard_input_alike(tmp_path: Path) -> None:
    """Exit code 0 whatever single lines hold, and nothing but the answers on standard output."""
    file = tmp_path / "choices.jsonl"
    file.write_bytes(asked(GB300) + b"nonsense\n" + asked(PD))
    code, out, error = run("--catalog", str(WORKED), "--batch", str(file))
    assert (code, error) == (0, "")
    assert [list(json.loads(line)) for line in out.splitlines()] == [
        ["nodes", "router"],
        ["error"],
        ["nodes", "router"],
    ]
    assert run("--catalog", str(WORKED), "--batch", "-", given=file.read_text()) == (code, out, error)


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    """An empty file has no answer, a line without its end has one."""
    file = tmp_path / "choices.jsonl"
    file.write_bytes(b"")
    assert run("--batch", str(file)) == (0, "", "")
    file.write_bytes(asked({"recipe": "kimi-infra/lab-tiny"}).strip())
    assert len(run("--batch", str(file))[1].splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batch", "nosuch.jsonl"], "--batch: the file cannot be read: No such file or directory"),
        (["--batch", "."], "--batch: the file cannot be read: Is a directory"),
        (["--batch", "-", "--catalog", "nosuch"], "--catalog: no such folder"),
        (
            ["--batch", "-", "--hardware", "b300"],
            "--hardware: each line of a --batch makes this choice itself",
        ),
        (["--batch", "-", "--as", "json"], "--as: a --batch is answered in its own form"),
        (["--batch", "-", "inventories/gb300-2node"], "INVENTORY: a --batch is answered in its own form"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_answered_at_all_is_refused(arguments: list[str], told: str) -> None:
    """Exit code 2, and no line is read."""
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert told in error


def test_a_catalogue_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Exit code 2 for a folder that is none."""
    code, out, error = run("--catalog", str(tmp_path), "--batch", "-", given="{}\n")
    assert (code, out) == (2, "")
    assert "taxonomy.yaml" in error


def test_what_the_page_ignores_in_a_catalogue_is_said_once(tmp_path: Path) -> None:
    """A key that nobody reads costs no answer; it is named on standard error, however often it is met."""
    folder = tmp_path / "catalogue"
    shutil.copytree(WORKED, folder)
    recipe = folder / "models" / "moonshotai" / "Kimi-K3.yaml"
    recipe.write_text(recipe.read_text() + "\nfeetures: {}\n")
    given = (asked(GB300) * 3).decode()
    code, out, error = run("--catalog", str(folder), "--batch", "-", given=given)
    assert (code, out) == run("--catalog", str(WORKED), "--batch", "-", given=given)[:2]
    (line,) = error.splitlines()
    assert line.startswith("kimi-infra: ignored: models/moonshotai/Kimi-K3.yaml: feetures")
    assert "did you mean features?" in line


def test_a_recipe_that_cannot_be_read_costs_its_own_lines(tmp_path: Path) -> None:
    """Lines of other recipes are answered; the file's faults are in the line that asked for it."""
    folder = tmp_path / "catalogue"
    shutil.copytree(WORKED, folder)
    (folder / "models" / "moonshotai" / "Broken.yaml").write_text("meta: [\n")
    given = (asked({"recipe": "moonshotai/Broken"}) + asked(GB300)).decode()
    code, out, _ = run("--catalog", str(folder), "--batch", "-", given=given)
    broken, sound = map(json.loads, out.splitlines())
    assert code == 0
    assert "models/moonshotai/Broken.yaml" in broken["error"]
    assert len(sound["nodes"]) == 2


PROGRAM = Path(sys.executable).with_name("kimi-infra")


def test_a_reader_that_leaves_ends_a_batch_quietly(tmp_path: Path) -> None:
    """As a shell tells of any program whose pipe has been closed, without a traceback."""
    file = tmp_path / "choices.jsonl"
    file.write_bytes(asked(GB300) * 500)
    with subprocess.Popen(
        [PROGRAM, "render", "--catalog", str(WORKED), "--batch", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline().startswith(b'{"nodes":')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 128 + signal.SIGPIPE


def test_an_interrupted_batch_ends_quietly() -> None:
    """Ctrl-C is answered by exit code 130; what was answered before is complete."""
    with subprocess.Popen(
        [PROGRAM, "render", "--catalog", str(WORKED), "--batch", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(asked(GB300))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["nodes"]
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        assert (process.returncode, out, error) == (130, b"", b"")


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("<&-", 2, "--batch: standard input is closed (got -)"),
        (">&-", 1, "standard output cannot be written: Bad file descriptor"),
        (">/dev/full", 1, "standard output cannot be written: No space left on device"),
    ],
    ids=str,
)
def test_a_stream_that_is_closed_or_full_is_told(redirected: str, code: int, said: str) -> None:
    """One line on standard error instead of a traceback."""
    command = f'"$0" render --catalog "$1" --batch - {redirected}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, PROGRAM, WORKED],
        input=None if redirected == "<&-" else asked(GB300),
        capture_output=True,
        check=False,
    )
    error = done.stderr.decode()
    assert done.returncode == code
    assert said in error
    assert "Traceback" not in error
