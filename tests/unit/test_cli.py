"""The command line: exit codes, and what is refused before a host is contacted."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kimi_infra import cli
from kimi_infra.cli import options
from kimi_infra.domain.inventory import Choice
from kimi_infra.observe import ssh
from tests import planted

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[2]
GB300 = str(ROOT / "inventories" / "gb300-2node")


def run(*arguments: str) -> tuple[int, str, str]:
    """Run the command line in this process: exit code, standard output, standard error."""
    done = CliRunner().invoke(cli.app, arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("case", planted.CASES)
def test_a_planted_fault_is_refused_by_every_verb(case: str, tmp_path: Path) -> None:
    """Exit code 2 and the golden text, whether the verb would contact a host or not."""
    inventory = str(planted.laid(case, tmp_path))
    for verb in (["plan"], ["render"], ["status"], ["ask"], ["verify"]):
        assert run(*verb, inventory) == (2, "", f"kimi-infra: {planted.text(case)}")


def test_a_missing_value_is_listed_by_a_plan() -> None:
    """The gb300 inventory can be planned as shipped: exit code 0, and what is needed comes last."""
    code, text, _ = run("plan", GB300)
    needed = text.partition("needed before applying\n")[2]
    assert code == 0
    assert [line.split()[0] for line in needed.splitlines()] == [
        "hosts.yml:",
        "hosts.yml:",
        "deployment.yml:",
    ]
    assert "docker buildx imagetools inspect vllm/vllm-openai:kimi-k31" in needed


@pytest.mark.parametrize("verb", ["status", "ask", "verify"])
def test_a_missing_value_is_refused_by_a_verb_that_contacts_hosts(verb: str) -> None:
    """Exit code 2, and the text says what is needed."""
    code, text, error = run(verb, GB300)
    assert (code, text) == (2, "")
    assert "needed before applying" in error
    assert "image.digest" in error


def test_a_plan_as_json_holds_commands_origins_and_needs() -> None:
    """A program finds every rank's command, each flag's origin, and what is needed."""
    code, text, _ = run("plan", GB300, "--json")
    plan = json.loads(text)
    (deployment,) = plan["deployments"]
    assert code == 0
    assert deployment["commands"]["tray-b"][:2] == ["/usr/bin/docker", "run"]
    origins = {flag["provenance"]["origin"] for flag in deployment["ranks"][0]["flags"]}
    assert origins == {"seed", "derived", "vllm"}
    assert len(plan["needed_before_applying"]) == 3


@pytest.mark.parametrize(
    ("form", "begins"), [("shell", "# Head (node 0)\nexport"), ("docker", "# Head (node 0)\ndocker run")]
)
def test_an_inventory_renders_like_its_choice(form: str, begins: str) -> None:
    """The page's form of an inventory is that of the same choice by options."""
    named = run("render", GB300, "--as", form)
    chosen = run("render", "--hardware", "gb300", "--strategy", "multi_node_tp", "--nodes", "2", "--as", form)
    assert named[:2] == chosen[:2]
    assert named[1].startswith(begins)


@pytest.mark.parametrize("form", ["shell", "docker", "systemd"])
def test_rendering_says_what_is_needed_before_applying(form: str) -> None:
    """On standard error, so that standard output is the commands alone."""
    code, text, error = run("render", GB300, "--as", form)
    assert code == 0
    assert "needed before applying" not in text
    assert error.startswith("kimi-infra: needed before applying:\n  hosts.yml: ")
    assert len(error.splitlines()) == 4


@pytest.mark.parametrize(
    "options",
    [["--hardware", "gb300"], ["--features", "none"], ["--nodes", "2", "--accept-preview"]],
    ids=lambda options: options[0],
)
def test_a_choice_beside_an_inventory_is_refused(options: list[str]) -> None:
    """Exit code 2 names each option that would have had no effect, even where it equals the default."""
    code, text, error = run("render", GB300, *options)
    assert (code, text) == (2, "")
    names = [word for word in options if word.startswith("--")]
    assert all(f"  {name}: an INVENTORY makes this choice itself" in error for name in names)
    assert error.startswith(f"kimi-infra: {len(names)} fault")


@pytest.mark.parametrize("features", ["", " ", "reasoning,", ",reasoning"])
def test_an_empty_feature_is_told_of_none(features: str) -> None:
    """Exit code 2, and the remedy is the word for no feature at all."""
    code, _, error = run("render", "--features", features)
    assert code == 2
    assert f"--features: an empty name (got {features!r}); give none for no feature" in error


def test_a_choice_by_options_is_refused_in_their_words() -> None:
    """A remedy names an option, never a line of a file that is not there."""
    code, _, error = run("render", "--hardware", "vr200", "--features", "nosuch", "--nodes", "0")
    assert code == 2
    assert "--accept-preview: hardware vr200 is a preview" in error
    assert "; give --accept-preview, or choose other hardware" in error
    assert "--nodes: a whole number from 1 to 1024 is expected (got '0')" in error
    assert "--features: " in error
    assert "accept_preview" not in error


def test_a_plan_says_what_is_accepted_and_not_acted_on(tmp_path: Path) -> None:
    """The plan lists such values of the deployment, as text and as JSON; without any there is no heading."""
    heading = "accepted, not acted on by this version"
    assert heading not in run("plan", GB300)[1]
    inventory = planted.laid("base", tmp_path)
    file = inventory / "deployment.yml"
    file.write_text(file.read_text() + "    allow: [restart, reboot]\n    offload: {policy: measured}\n")
    below = run("plan", str(inventory))[1].partition(heading)[2].split("\n\n")[0].splitlines()[1:]
    (deployment,) = json.loads(run("plan", str(inventory), "--json")[1])["deployments"]
    assert [line.strip().removeprefix("- ") for line in below] == deployment["not_acted_on"]
    assert [value.partition(":")[0] for value in deployment["not_acted_on"]] == ["offload", "allow"]
    assert "policy measured" in deployment["not_acted_on"][0]


def test_what_hosts_run_needs_an_inventory() -> None:
    """A choice without hosts has no units: exit code 2."""
    code, text, error = run("render", "--as", "systemd")
    assert (code, text) == (2, "")
    assert "--as: units need hosts (got systemd); name an INVENTORY" in error


def test_units_are_rendered_without_a_host() -> None:
    """`--as systemd` shows every file of each host, what only a host knows as a placeholder."""
    code, text, _ = run("render", GB300, "--as", "systemd")
    assert code == 0
    heads = [line for line in text.splitlines() if line.startswith("# tray-")]
    for host, unit in (("tray-a", "head"), ("tray-b", "worker")):
        assert {
            f"# {host}: /etc/kimi-infra/kimi/rank.json",
            f"# {host}: /etc/kimi-infra/kimi/engine.env",
            f"# {host}: /etc/kimi-infra/kimi/secret.env (not shown: holds secrets)",
            f"# {host}: /etc/systemd/system/kimi-kimi.target",
            f"# {host}: /etc/systemd/system/kimi-kimi-boot.service",
            f"# {host}: /etc/systemd/system/vllm-kimi-{unit}.service",
        } <= set(heads)
    assert text.count("ExecStart=") == 4
    assert "<image ID of vllm/vllm-openai:kimi-k31>" in text
    assert "VLLM_API_KEY" not in text
    assert "import " not in text


def test_a_host_that_does_not_answer_is_a_failure_not_a_refusal(tmp_path: Path) -> None:
    """`status` of hosts on which nobody listens names them: exit code 1."""
    inventory = planted.laid("base", tmp_path)
    hosts = inventory / "hosts.yml"
    text = hosts.read_text()
    for rank in (1, 2):
        closed = f"ansible_host: 127.0.0.{rank}\n      ansible_port: 1"
        text = text.replace(f"ansible_host: 192.0.2.1{rank}", closed)
    hosts.write_text(text)
    code, out, _ = run("status", str(inventory))
    assert code == 1
    assert out.count("cannot be reached") == 2


@pytest.mark.parametrize("printed", ["[]", "null", "[" * 100_000, "", "\ufffd"], ids=lambda text: text[:4])
def test_a_supervisor_that_prints_something_else_is_trouble(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` names both hosts and ends with exit code 1, whatever they print."""
    monkeypatch.setattr(ssh, "run", lambda *_, **__: printed)
    code, out, error = run("status", str(planted.laid("base", tmp_path)))
    assert (code, error) == (1, "")
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "kimi rank 0 on tray-a",
        "kimi rank 1 on tray-b",
    ]


def test_a_machine_without_ssh_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` reports it for each host instead of ending in a traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, _ = run("status", str(planted.laid("base", tmp_path)))
    assert code == 1
    assert out.count("ssh did not start") == 2


def test_a_terminal_without_utf8_gets_escapes(tmp_path: Path) -> None:
    """What the terminal's encoding lacks ends in no traceback."""
    inventory = planted.laid("base", tmp_path)
    file = inventory / "deployment.yml"
    file.write_text(file.read_text().replace("/srv/models", "/srv/深"), encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).with_name("kimi-infra"), "plan", inventory],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1:strict"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"weights /srv/\\u6df1/" in done.stdout


@pytest.mark.parametrize("case", ["21-faults-everywhere", planted.NEEDS])
def test_a_playbook_refuses_before_it_contacts_a_host(case: str, tmp_path: Path) -> None:
    """ansible-playbook ends with 2 and the golden text, and has not even started ssh."""
    (tmp_path / "inventory").mkdir()
    inventory = planted.laid(case, tmp_path / "inventory")
    called = tmp_path / "ssh-was-called"
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\ntouch {called}\nexit 255\n")
    ssh.chmod(0o755)
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, "playbooks/site.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}", "ANSIBLE_FORCE_COLOR": "0"},
    )
    shown = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    for line in planted.text(case).splitlines()[1:]:
        assert " ".join(line.split()) in shown
    assert not called.exists()


CHOSEN = ("render", "--hardware", "b300")


def rendered(*arguments: str) -> dict[str, Any]:
    """A choice by options as JSON."""
    code, text, error = run(*CHOSEN, "--as", "json", *arguments)
    assert (code, error) == (0, "")
    found: dict[str, Any] = json.loads(text)
    return found


def test_every_field_of_a_choice_has_an_option() -> None:
    """What deployment.yml can say, the command line can."""
    called = {"feature_modes": "feature_mode", "advanced_args": "arg", "values": "value"}
    fields = {called.get(field.name, field.name) for field in dataclasses.fields(Choice)}
    assert fields <= {field.name for field in dataclasses.fields(options.Given)}


def test_a_choice_as_json_holds_commands_and_the_origin_of_every_word() -> None:
    """Beside each word of argv and each variable stands who vouches for it."""
    found = rendered("--features", "none")
    (node,) = found["nodes"]
    assert list(found) == ["nodes", "router", "companions", "needs", "notes", "warnings"]
    assert (node["role"], node["rank"], node["image"]) == ("head", 0, "vllm/vllm-openai:kimi-k31")
    origins = node["provenance"]["argv"]
    assert len(origins) == len(node["argv"])
    by_word = {word: origin["origin"] for word, origin in zip(node["argv"], origins, strict=True)}
    assert by_word["vllm"] == "vllm"
    assert by_word["--tensor-parallel-size"] == "derived"
    assert by_word["--load-format"] == "seed"
    assert list(node["provenance"]["env"]) == list(node["env"])
    assert node["docker"][:4] == ["docker", "run", "--gpus", "all"]
    assert node["docker"][-len(node["argv"]) + 2 :] == node["argv"][2:]


def test_the_page_and_json_say_the_same() -> None:
    """The shell form, read as a shell reads it, is the argv of the JSON form."""
    code, text, _ = run(*CHOSEN, "--features", "reasoning")
    (node,) = rendered("--features", "reasoning")["nodes"]
    command = text[text.index("vllm serve") :].replace("\\\n", "")
    assert code == 0
    assert shlex.split(command) == node["argv"]


def test_what_is_left_out_follows_from_what_is_given() -> None:
    """Strategy and nodes are those of the hardware's placement; a preset brings its own."""
    for given, ranks in (
        (("--hardware", "gb300"), 2),
        (("--hardware", "m890"), 4),
        (("--hardware", "gb300", "--strategy", "pd_cluster"), 6),
        (("--preset", "mi355x_agentx"), 1),
    ):
        code, text, _ = run("render", "--as", "json", *given)
        assert code == 0
        assert len(json.loads(text)["nodes"]) == ranks


def test_pools_are_given_by_their_nodes() -> None:
    """Each pool's nodes stand behind its name; the router is in front of both."""
    code, text, _ = run(
        "render", "--hardware", "gb300", "--strategy", "pd_cluster", "--pools", "prefill=2,decode=4:dep"
    )
    heads = [line for line in text.splitlines() if line.startswith("# ")]
    assert code == 0
    assert heads == [
        *("# Prefill node 1", "# Prefill node 2"),
        *(f"# Decode node {number}" for number in range(1, 5)),
        "# Router",
    ]
    router = text[text.index("vllm-router") :]
    assert "--prefill http://$PREFILL_NODE_1:8001 \\\n" in router
    assert "'" not in router


@pytest.mark.parametrize("size", ["137438953472", "128GiB", "131072 MiB"])
def test_the_size_of_a_host_tier_may_have_a_unit(size: str) -> None:
    """It ends as bytes in the connector's JSON."""
    (node,) = rendered("--kv-offload", "simple", "--kv-offload-bytes", size)["nodes"]
    config = json.loads(node["argv"][node["argv"].index("--kv-transfer-config") + 1])
    assert config["kv_connector_extra_config"]["cpu_bytes_to_use_per_rank"] == 137438953472


def test_unpublished_values_are_given_by_name() -> None:
    """A value for several words is split as a shell does, and given values are no longer asked for."""
    asked = ("--features", "low_latency_decode,nvfp4_kv_cache")
    names = [need["where"] for need in rendered(*asked)["needs"]]
    assert names == ["values.low_latency_args", "values.nvfp4_kv_dtype"]
    given = ("--value", "low_latency_args=--fast 'a b'", "--value", "nvfp4_kv_dtype=nvfp4=x")
    found = rendered(*asked, *given)
    assert found["needs"] == []
    argv = found["nodes"][0]["argv"]
    assert argv[argv.index("--fast") + 1] == "a b"
    assert argv[argv.index("--kv-cache-dtype") + 1] == "nvfp4=x"


def test_what_is_said_of_a_choice_is_no_part_of_the_page() -> None:
    """Notes and needs stand on standard error; standard output is commands alone."""
    code, text, error = run("render", "--hardware", "mi355x", "--features", "spec_decoding")
    assert code == 0
    assert text.startswith("# Head (node 0)\nexport ")
    assert len([line for line in text.splitlines() if line.startswith("#")]) == 1
    first, *needed = error.splitlines()
    assert first.startswith("# not run by the publisher")
    assert needed[0] == "kimi-infra: needed before applying:"
    assert [line.split()[0] for line in needed[1:]] == ["values.draft_model:", "values.draft_tokens:"]


def test_as_published_says_what_it_leaves_out() -> None:
    """What is refused is compiled as the page does, and the reason stands on standard error."""
    asked = (*CHOSEN, "--features", "reasoning,nosuch")
    code, text, error = run(*asked)
    assert (code, text) == (2, "")
    assert "--features: " in error
    code, text, error = run(*asked, "--as-published")
    assert code == 0
    assert "--reasoning-parser" in text
    assert error.startswith("# as published, refused otherwise: --features: ")
    assert "nosuch" in error


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--pools", "prefil=2"], "--pools: no such pool (got 'prefil=2'); did you mean prefill?"),
        (["--pools", "prefill=2,prefill=2"], "--pools: not one pool each (got 'prefill=2')"),
        (["--feature-mode", "x"], "--feature-mode: no NAME=TEXT (got 'x'); give --feature-mode NAME=TEXT"),
        (["--value", "=x"], "--value: no NAME=TEXT (got '=x')"),
        (["--value", "a=1", "--value", "a=2"], "--value: a is given twice (got '2')"),
        (["--value", "low_latency_args='"], "--value low_latency_args: words that cannot be told apart"),
        (
            ["--kv-offload-bytes", "12 GB"],
            "--kv-offload-bytes: not a size (got '12 GB'); give a number, or one",
        ),
        (
            ["--kv-offload-bytes", "1", "--value", "kv_offload_bytes=1"],
            "--kv-offload-bytes: the value kv_offload_bytes is given by --value too; give one of both",
        ),
        (
            ["--kv-instances", "two"],
            "--kv-instances: a whole number from 1 to 1024 is expected (got 'two'); give COUNT, or COUNT:",
        ),
        (["--catalog", "nosuch"], "--catalog: no such folder (got nosuch)"),
        (["--model", "moonshotai/Kimi-K3.1"], "--model: "),
        (["--value", "nosuch=1"], "--value nosuch: "),
        (["--feature-mode", "reasoning=x"], "--feature-mode reasoning: "),
        (["--dcp", "3"], "--dcp: "),
        (["--kv-offload", "simpel"], "--kv-offload: "),
        (["--preset", "nosuch"], "--preset: "),
        (["--kv-instances", "2"], "--kv-instances: "),
        (["--variant", "nosuch"], "--variant: "),
        (
            ["--kv-instances", "3:1", "--kv-offload", "simple"],
            "--kv-instances: instances stand around a KV store, and --kv-offload simple was chosen",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_faults_of_an_option_name_it(arguments: list[str], told: str) -> None:
    """Exit code 2, whether the option cannot be read or the choice cannot be compiled."""
    code, text, error = run(*CHOSEN, *arguments)
    assert (code, text) == (2, "")
    assert f"  {told}" in error
    assert not re.search("kv_instances|feature_modes|advanced_args|accept_preview", error)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--model", "moonshotai/Kimi-K33", "--hardware", "gb3000", "--strategy", "sinlge"],
            ["--model", "--hardware", "--strategy"],
        ),
        (["--hardware", "gb301", "--nodes", "99999"], ["--nodes", "--hardware"]),
        (["--hardware", "gb300", "--nodes", "abc", "--dcp", "x"], ["--nodes", "--dcp"]),
        (
            ["--as", "shel", "--hardware", "gb301", "--features", "reasonin,,tool_calling"],
            ["--as", "--features", "--hardware", "--features"],
        ),
        (
            ["--value", "x", "--value", "nosuch=1", "--feature-mode", "y", "--variant", "nosuch"],
            ["--feature-mode", "--value", "--variant", "--value nosuch"],
        ),
        (
            ["--catalog", "nosuch", "--nodes", "0", "--pools", "prefil=2,decode=2000"],
            ["--catalog", "--nodes", "--pools", "--pools"],
        ),
        (["--as", "systemd", "--kv-instances", "0:x"], ["--as", "--kv-instances", "--kv-instances"]),
    ],
    ids=" ".join,
)
def test_all_faults_of_a_choice_come_at_once(arguments: list[str], told: list[str]) -> None:
    """What cannot be read, unknown names and other options are in one list: one round mends them all."""
    code, text, error = run("render", *arguments)
    head, *lines = error.splitlines()
    assert (code, text) == (2, "")
    assert head == f"kimi-infra: {len(told)} faults:"
    assert [line.strip().partition(": ")[0] for line in lines] == told


def test_a_number_that_is_none_is_an_error_of_ours() -> None:
    """The place, the value and the bounds, for every number in the words of the options."""
    code, _, error = run("explain", "port", "--nodes", "abc")
    assert code == 2
    assert error == (
        "kimi-infra: 1 fault:\n"
        "  --nodes: a whole number from 1 to 1024 is expected (got 'abc'); give such a number in digits\n"
    )


def test_a_fault_of_a_recipes_file_keeps_its_place(tmp_path: Path) -> None:
    """It is no option: the file is named as it is."""
    folder = tmp_path / "catalogue"
    shutil.copytree(ROOT / "tests" / "unit" / "worked", folder)
    (folder / "models" / "moonshotai" / "Broken.yaml").write_text("meta: [\n")
    code, _, error = run("render", "--catalog", str(folder), "--model", "moonshotai/Broken")
    assert code == 2
    assert "\n  models/moonshotai/Broken.yaml: " in error


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("feetures: {}", "feetures: unknown key; did you mean features?"),
        ("default_strategy: singl_node_tp", "default_strategy: no such strategy is known"),
        ("features: {x: {args: [<value:y>]}}", "features.x.args[0]: no such value is declared"),
    ],
    ids=lambda value: value.partition(":")[0],
)
def test_a_folder_of_recipes_is_judged_unless_it_is_read_as_published(
    tmp_path: Path, key: str, told: str
) -> None:
    """Exit code 2 for what the public page ignores in a recipe that is asked for; no other is held up."""
    folder = tmp_path / "catalogue"
    shutil.copytree(ROOT / "tests" / "unit" / "worked", folder)
    (folder / "models" / "moonshotai" / "K.yaml").write_text(
        "meta: {title: K}\n"
        "model: {model_id: moonshotai/K, base_args: []}\n"
        "variants: {default: {precision: bf16, vram_minimum_gb: 1}}\n"
        "compatible_strategies: [single_node_tp]\n"
        f"{key}\n"
    )
    there, asked = ("--catalog", str(folder)), ("--model", "moonshotai/K", "--hardware", "b300")
    for verb in (
        ("render", *asked),
        ("explain", "tensor-parallel-size", *asked),
        ("recipes", "show", "moonshotai/K"),
    ):
        code, text, error = run(*verb, *there)
        assert (code, text) == (2, "")
        assert error.startswith("kimi-infra: 1 fault:\n  models/moonshotai/K.yaml: ")
        assert told in error
    code, text, error = run("recipes", "list", *there)
    assert code == 2
    assert text.startswith("moonshotai/Kimi-K3: ")
    assert told in error
    for verb in (("render", *asked), ("explain", "tensor-parallel-size", *asked)):
        code, _, error = run(*verb, *there, "--as-published")
        assert code == 0
        assert "kimi-infra: ignored: models/moonshotai/K.yaml: " in error
        assert told in error
    others = ("--model", "moonshotai/Kimi-K3", "--hardware", "gb300")
    assert run("render", *others, *there)[0] == 0


@pytest.mark.parametrize("form", ["shell", "docker"])
@pytest.mark.parametrize("word", ["--x\ny", "--x\x1b[2J", "--x\u2028y", "--x\udcff"], ids=ascii)
def test_a_word_that_the_page_cannot_carry_is_refused(form: str, word: str) -> None:
    """As published too, by one fault with exit code 2; JSON has it escaped."""
    asked = (*CHOSEN, "--as-published", f"--arg={word}")
    code, text, error = run(*asked, "--as", form)
    assert (code, text) == (2, "")
    head, line = error.splitlines()
    assert head == "kimi-infra: 1 fault:"
    assert line.startswith(f"  --as {form}: the page's form cannot carry this choice: a word of a shell")
    assert line.endswith("; remove it, or ask for json, which escapes it")
    code, text, _ = run(*asked, "--as", "json")
    assert code == 0
    assert word not in text
    assert word in json.loads(text)["nodes"][0]["argv"]


def test_recipes_are_listed() -> None:
    """Id, title, strategies and hardware of each, as text and as JSON."""
    code, text, _ = run("recipes", "list")
    assert code == 0
    assert "moonshotai/Kimi-K3.1-Pro: Kimi-K3.1-Pro\n  strategies  single_node_tp, " in text
    rows = json.loads(run("recipes", "list", "--json")[1])
    assert [row["id"] for row in rows] == ["kimi-infra/lab-tiny", "moonshotai/Kimi-K3.1-Pro"]
    assert rows[1]["hardware"] == ["b300", "mi355x", "gb300", "vr200", "810e", "m890"]


def test_a_recipe_is_shown_with_all_that_can_be_chosen() -> None:
    """Features, placements, presets, rules with their sentences, images, and values that are unknown."""
    code, text, _ = run("recipes", "show", "moonshotai/Kimi-K3.1-Pro")
    assert code == 0
    sections = [line.strip() for line in text.splitlines() if line[:2] == "  " and line[2:3] != " "]
    assert sections[1:] == [
        "variants",
        "features (* on by default)",
        "placements",
        "presets",
        "decode context parallelism",
        "KV offload",
        "values that nobody has published",
        "rules",
        "images",
    ]
    lines = [line.strip() for line in text.splitlines()]
    assert any(line.split()[:2] == ["*", "tool_calling"] for line in lines)
    assert any(line.startswith("spec_decoding") and "unknown: draft_model" in line for line in lines)
    assert any(line.split()[:4] == ["multi_node_tp", "gb300", "2", "nodes"] for line in lines)
    assert any("excludes features spec_decoding (seed: " in line for line in lines)
    assert any(line.startswith("draft_model") and "unknown" in line for line in lines)
    images = [line.split() for line in lines[lines.index("images") + 1 :]]
    assert ["b300", "vllm/vllm-openai:kimi-k31"] in images
    assert ["vr200", "vllm/vllm-openai:kimi-k31-cu134"] in images
    assert [key for key, _ in images] == ["b300", "gb300", "vr200", "mi355x", "810e", "m890"]


def test_a_recipe_as_json_holds_the_same() -> None:
    """A program finds the placements, rules and values."""
    found = json.loads(run("recipes", "show", "moonshotai/Kimi-K3.1-Pro", "--json")[1])
    assert {"strategy", "hardware", "nodes", "pools"} <= set(found["placements"][0])
    assert found["features"]["spec_decoding"]["unknown"] == ["draft_model", "draft_tokens"]
    assert found["features"]["tool_calling"]["default"] is True
    assert {"810e", "m890"} <= {row["hardware"] for row in found["placements"]}
    assert all(rule["because"].partition(":")[0] in {"seed", "vllm"} for rule in found["rules"])
    assert set(found["values"]["draft_model"]) == {"what", "find", "kind", "origin"}


def test_a_value_is_unknown_in_the_modes_that_use_it(tmp_path: Path) -> None:
    """Each mode, and each kind of hardware under it, has its own arguments and its own missing values."""
    folder = tmp_path / "catalogue"
    shutil.copytree(ROOT / "tests" / "unit" / "worked", folder)
    file = folder / "models" / "moonshotai" / "K.yaml"
    file.write_text(
        "meta: {title: K}\n"
        "model: {model_id: moonshotai/K, base_args: []}\n"
        "variants:\n"
        "  default: {precision: bf16, vram_minimum_gb: 1}\n"
        "  small: {precision: fp8, hardware_overrides: {b300: {docker_image: own/image:b300}}}\n"
        "x-values: {draft: {what: a draft, find: there}}\n"
        "compatible_strategies: [single_node_tp]\n"
        "features:\n"
        "  spec_decoding:\n"
        "    default_mode: mtp\n"
        "    modes:\n"
        "      mtp: {args: [--mtp]}\n"
        "      eagle:\n"
        "        args: [--draft, <value:draft>]\n"
        "        variants: [small]\n"
        "        hardware: {b200: unsupported}\n"
        "        hardware_overrides: {mi355x: {args: [--amd, <value:draft>]}}\n"
    )
    asked_ = ("recipes", "show", "moonshotai/K", "--catalog", str(folder))
    lines = [" ".join(line.split()) for line in run(*asked_)[1].splitlines()]
    assert "* spec_decoding=mtp (default) --mtp" in lines
    limits = "only variant small; not on b200; unknown: draft"
    assert f"* spec_decoding=eagle {limits} --draft '<value:draft>'" in lines
    assert "on mi355x unknown: draft --amd '<value:draft>'" in lines
    modes = json.loads(run(*asked_, "--json")[1])["features"]["spec_decoding"]["modes"]
    assert {key: mode["unknown"] for key, mode in modes.items()} == {"mtp": [], "eagle": ["draft"]}
    assert modes["eagle"]["hardware"] == {"mi355x": ["--amd", "<value:draft>"]}
    images = lines[lines.index("images") + 1 :]
    assert "mi355x vllm/vllm-openai-rocm:latest" in images
    assert "b300, variant default vllm/vllm-openai:latest" in images
    assert "b300, variant small own/image:b300" in images


def test_a_recipe_that_is_not_there_is_told_of_the_closest() -> None:
    """Exit code 2."""
    code, text, error = run("recipes", "show", "moonshotai/Kimi-K3.1-pro")
    assert (code, text) == (2, "")
    assert "did you mean moonshotai/Kimi-K3.1-Pro?" in error


def test_every_verb_is_in_the_help() -> None:
    """Each with a line of its own, in the order of the table."""
    code, text, _ = run("--help")
    assert code == 0
    words = [line.split()[1] for line in text.splitlines() if line.startswith("│") and len(line.split()) > 3]
    assert [word for word in words if word in cli.VERBS] == list(cli.VERBS)


def test_a_misspelt_verb_is_told_of_the_closest() -> None:
    """Exit code 2, as for every other word that is not understood."""
    code, _, error = run("rendr")
    assert code == 2
    assert "Did you mean 'render'?" in error


HEAVY = ("ansible", "ansible_runner", "pulumi", "grpc", "pytest", "testinfra", "requests", "jinja2", "rich")
"""What takes long to load and no plan needs."""


def test_a_plan_loads_nothing_that_it_does_not_need() -> None:
    """A plan is on screen without Ansible, Pulumi, pytest, or the layers that contact hosts."""
    program = (
        "import sys; from kimi_infra import cli\n"
        f"sys.argv = ['kimi-infra', 'plan', {GB300!r}]\n"
        "try: cli.main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stderr.splitlines()
    assert done.stdout.startswith("deployment kimi: ")
    assert "kimi_infra.planning.resolve" in loaded
    layers = tuple(f"kimi_infra.{layer}" for layer in ("lab", "cloud", "converge", "observe"))
    assert [name for name in loaded if name.startswith(layers)] == []
    assert [name for name in loaded if name.partition(".")[0] in HEAVY] == []
