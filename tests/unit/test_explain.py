"""Where a flag, a variable or an image comes from, and what would bring one that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kimi_infra import cli
from tests import planted

pytestmark = pytest.mark.compiler

GB300 = str(Path(__file__).parents[2] / "inventories" / "gb300-2node")
TRAYS = ("--hardware", "gb300", "--strategy", "multi_node_tp", "--nodes", "2")


def explained(*arguments: str) -> tuple[int, str]:
    """Explain one word: exit code and standard output."""
    done = CliRunner().invoke(cli.app, ["explain", *arguments])
    assert done.stderr == ""
    return done.exit_code, done.stdout


def refused(*arguments: str) -> str:
    """Standard error of what is refused."""
    done = CliRunner().invoke(cli.app, ["explain", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.parametrize("word", ["--load-format", "load-format", "load_format", "--load-format=auto"])
def test_a_flag_is_found_by_any_spelling(word: str) -> None:
    """With dashes or without: value, nodes, and who vouches; nodes that are alike stand together."""
    code, text = explained(word, *TRAYS)
    assert code == 0
    shown, nodes, origin = text.splitlines()
    assert shown == "--load-format fastsafetensors"
    assert nodes == "  on    head (node 0), node 1"
    assert origin.startswith("  from  seed: hardware_overrides.nvidia.extra_args")


def test_nodes_that_differ_stand_apart() -> None:
    """Each rank's own value is told of its node."""
    code, text = explained("node-rank", *TRAYS)
    assert code == 0
    assert [line for line in text.splitlines() if not line.startswith("  from  derived")] == [
        "--node-rank 0",
        "  on    head (node 0)",
        "--node-rank 1",
        "  on    node 1",
    ]


def test_a_variable_is_found_by_its_name() -> None:
    """Its value, and the place in the recipe."""
    code, text = explained("VLLM_ENGINE_READY_TIMEOUT_S", *TRAYS)
    assert code == 0
    assert text.startswith("VLLM_ENGINE_READY_TIMEOUT_S=3600\n")
    assert "  from  seed: hardware_overrides.nvidia.extra_env" in text


@pytest.mark.parametrize("word", ["image", "vllm/vllm-openai:kimi-k31"])
def test_an_image_is_found(word: str) -> None:
    """By its name or by the word, with the key that gives it."""
    code, text = explained(word, *TRAYS)
    assert code == 0
    assert text.startswith("vllm/vllm-openai:kimi-k31\n")
    assert "  from  seed: model.docker_image.nvidia (recipe page, Install and Overview)" in text


def test_what_was_replaced_is_told_with_its_origin() -> None:
    """An operator's own word ousts the recipe's, and both are shown."""
    code, text = explained("load-format", *TRAYS, "--arg=--load-format", "--arg=auto")
    assert code == 0
    assert text.splitlines()[0] == "--load-format auto"
    assert "  from  operator: advanced_args" in text
    assert "  replaced --load-format fastsafetensors, from seed: hardware_overrides.nvidia.extra_args" in text


def test_what_would_bring_a_flag_is_told() -> None:
    """Features, placements and presets that have it, each once; exit code 0, as the flag is known."""
    code, text = explained("speculative-config", *TRAYS)
    assert code == 0
    assert text.splitlines() == [
        "speculative-config is not in this command; it would come with",
        "  feature spec_decoding",
        "  preset mi355x_agentx",
    ]


def test_what_the_rest_of_the_choice_forbids_is_told() -> None:
    """A feature that would bring a flag and is refused here says so."""
    code, text = explained("speculative-config", "--hardware", "810e")
    assert code == 0
    (line,) = [line for line in text.splitlines() if line.startswith("  feature spec_decoding")]
    assert "; refused beside the rest: " in line
    assert "PPU" in line


def test_a_flag_that_nothing_brings_is_unknown() -> None:
    """Exit code 1, and the closest name that something brings."""
    code, text = explained("--load-fromat", *TRAYS)
    assert code == 1
    assert text == (
        "--load-fromat is not in this command, and nothing in the recipe brings it;"
        " did you mean --load-format?\n"
    )
    assert explained("zzzzzz", *TRAYS)[1].endswith("nothing in the recipe brings it\n")


def test_an_inventory_is_explained_as_its_hosts_run_it() -> None:
    """By the names of its hosts, with what the plan adds to the page's command."""
    code, text = explained("master-addr", GB300)
    assert code == 0
    assert "  on    tray-a (kimi, head (node 0)), tray-b (kimi, node 1)" in text
    assert "$HEAD_IP" not in text
    code, text = explained("VLLM_HOST_IP", GB300)
    assert code == 0
    assert len([line for line in text.splitlines() if line.startswith("VLLM_HOST_IP=")]) == 2
    code, text = explained("image", GB300)
    assert "  from  operator: deployment.yml" in text


def test_faults_are_those_of_the_options() -> None:
    """A choice that is refused is not explained, and options beside an inventory have no effect."""
    assert "--strategy: " in refused("load-format", "--hardware", "gb300", "--strategy", "single_node_tp")
    assert "--dcp: an INVENTORY makes this choice itself" in refused("load-format", GB300, "--dcp", "8")


def test_a_secret_is_told_by_its_place() -> None:
    """Where a secret's variable comes from, never the secret; and the key that would bring another."""
    code, text = explained("VLLM_API_KEY", GB300)
    assert code == 0
    assert text.startswith("VLLM_API_KEY=<secret>\n")
    assert "  from  operator: deployment.yml api.key" in text
    assert explained("HF_TOKEN", GB300) == (
        0,
        "HF_TOKEN is not in this command; it would come with\n  hub_token in deployment.yml\n",
    )


@pytest.mark.parametrize(
    "where", [("--hardware", "gb300", "--strategy", "pd_cluster"), (str(Path(GB300).with_name("gb300-pd")),)]
)
def test_the_router_has_a_command_too(where: tuple[str, ...]) -> None:
    """A flag of the router in front of the pools is found as one of a node's."""
    code, text = explained("intra-node-data-parallel-size", *where)
    assert code == 0
    assert text.splitlines() == [
        "--intra-node-data-parallel-size 1",
        "  on    router",
        "  from  derived: router of the pools, from their nodes and modes",
    ]


def test_an_image_that_is_still_open_is_shown_as_in_a_command(tmp_path: Path) -> None:
    """The form is that of every document, not the one in which an inventory asks for it."""
    folder = planted.laid("base", tmp_path)
    file = folder / "deployment.yml"
    text = file.read_text(encoding="utf-8").replace(
        "name: vllm/vllm-openai:kimi-k31", 'name: "<fill in: which>"'
    )
    file.write_text(text, encoding="utf-8")
    code, shown = explained("image", str(folder))
    assert code == 0
    assert shown.splitlines()[0] == "<operator: which>"


@pytest.mark.parametrize("name", ["vllm/vllm-openai:kimi-k31", "image"])
def test_an_image_of_an_inventory_is_found_by_its_name_and_shown_as_pinned(name: str, tmp_path: Path) -> None:
    """What hosts run is the digest; what an operator knows is the tag."""
    code, shown = explained(name, str(planted.laid("base", tmp_path)))
    assert code == 0
    assert shown.splitlines()[0].startswith("vllm/vllm-openai@sha256:6105d6cc")


def test_a_value_given_for_this_choice_speaks_against_no_other() -> None:
    """What would bring a flag instead of the preset that a value is of is not called refused for it."""
    preset = ("--preset", "mi355x_agentx", "--value", "draft_model=some/draft")
    code, text = explained("moe-backend", *preset)
    assert code == 0
    assert "strategy single_node_tep" in text
    assert "nothing in this choice uses it" not in text
