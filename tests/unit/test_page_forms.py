"""The page's forms of a whole choice: helper processes, pools, the router, and docker without a shell."""

from __future__ import annotations

import dataclasses
import json
import shlex

import pytest

from kimi_infra.domain.launch import Companion, EnvEntry, Flag, Launch, Resolution, Role
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.errors import Fault, Need, UnsafeTextError
from kimi_infra.rendering import docker_page, resolution_json, shell

pytestmark = pytest.mark.compiler

SEED = Provenance(origin=Origin.SEED, source="page")
ROUTER = (
    *("vllm-router", "--policy", "round_robin", "--vllm-pd-disaggregation"),
    *("--prefill", "http://$PREFILL_NODE_1:8001", "--host", "$ROUTER_HOST", "--port", "$ROUTER_PORT"),
)


def launch(
    role: Role = Role.HEAD, rank: int = 0, *, model: str = "org/model", env: dict[str, str] | None = None
) -> Launch:
    """A node with one flag."""
    return Launch(
        rank=rank,
        role=role,
        model_id=model,
        flags=(Flag(tokens=("--port", "8001"), provenance=SEED),),
        env=tuple(EnvEntry(name=name, value=value, provenance=SEED) for name, value in (env or {}).items()),
        image="org/image:tag",
        device_flags=("--gpus", "all"),
        port=8001,
    )


def test_the_router_stands_behind_its_pools() -> None:
    """Pools count from 1 as their placeholders do; those of the router stay bare, for a shell to fill."""
    found = Resolution(
        launches=(launch(Role.PREFILL), launch(Role.DECODE, 1)),
        router=ROUTER,
    )
    assert shell.resolution(found) == (
        "# Prefill node 1\n"
        "vllm serve org/model \\\n"
        "  --port 8001\n"
        "\n"
        "# Decode node 2\n"
        "vllm serve org/model \\\n"
        "  --port 8001\n"
        "\n"
        "# Router\n"
        "vllm-router --policy round_robin \\\n"
        "  --vllm-pd-disaggregation \\\n"
        "  --prefill http://$PREFILL_NODE_1:8001 \\\n"
        "  --host $ROUTER_HOST \\\n"
        "  --port $ROUTER_PORT\n"
    )


def test_a_single_engine_is_its_page() -> None:
    """Without helpers and router nothing is added to the nodes' commands."""
    found = Resolution(launches=(launch(), launch(Role.WORKER, 1)))
    assert shell.resolution(found) == shell.page(found.launches)
    assert docker_page.resolution(found) == docker_page.page(found.launches)


def test_a_helper_process_stands_first() -> None:
    """Its command as the page shows it, before the engine that needs it."""
    found = Resolution(
        launches=(launch(),), companions=(Companion(label="Cache server", command="cache \\\n  --port 5\n"),)
    )
    assert shell.resolution(found).startswith(
        "# Cache server, started before the engine\ncache \\\n  --port 5\n\n# Head (node 0)\n"
    )


@pytest.mark.parametrize("text", ["a\x1b[2J", "a\x00", "a\u2028b"])
def test_a_helper_process_does_not_steer_the_terminal(text: str) -> None:
    """Control characters in a recipe's text are refused."""
    found = Resolution(launches=(), companions=(Companion(label="x", command=text),))
    with pytest.raises(UnsafeTextError):
        shell.resolution(found)


def test_docker_gets_a_pools_port_and_the_files_that_variables_name() -> None:
    """The pool's own port, weights that are a path, and each file of a *_CONFIG_PATH, read-only."""
    found = launch(Role.PREFILL, model="/models/m", env={"X_CONFIG_PATH": "$X_CONFIG_PATH", "Y": "a b"})
    lines = docker_page.page((found,)).splitlines()
    assert lines[1:] == [
        "docker run --gpus all \\",
        "  --privileged --ipc=host -p 8001:8001 \\",
        "  -v ~/.cache/huggingface:/root/.cache/huggingface \\",
        "  -v /models/m:/models/m:ro \\",
        "  -v $X_CONFIG_PATH:$X_CONFIG_PATH:ro \\",
        "  -e X_CONFIG_PATH=$X_CONFIG_PATH \\",
        "  -e Y='a b' \\",
        "  org/image:tag /models/m \\",
        "  --port 8001",
    ]


def test_docker_as_words_is_what_a_shell_would_make_of_the_page() -> None:
    """Word for word, with the tilde and the placeholders left as they are."""
    found = launch(env={"A": "x y", "B": "$IFACE_NAME"})
    _, page = docker_page.page((found,)).split("\n", 1)
    assert list(docker_page.argv(found) or ()) == shlex.split(page.replace("\\\n", ""))


def test_without_an_image_there_is_no_docker_command() -> None:
    """The page's form holds a placeholder that says so; as words there is none."""
    found = dataclasses.replace(launch(), image=None)
    assert docker_page.argv(found) is None
    assert "  '<operator: image; the public rules have none for this hardware>' org/model" in (
        docker_page.page((found,))
    )


def test_json_holds_what_is_said_of_a_choice() -> None:
    """Needs, notes and warnings with their fields, and what a flag replaced with its origin."""
    before = Flag(tokens=("--port", "1"), provenance=SEED)
    found = Resolution(
        launches=(dataclasses.replace(launch(), replaced_flags=(before,)),),
        router=ROUTER,
        needs=(Need(where="values.x", what="an x"),),
        notes=("not run",),
        warnings=(Fault(where="dcp", what="no", got="3", remedy="leave it out"),),
    )
    whole = json.loads(resolution_json.document(found))
    assert whole["router"] == list(ROUTER)
    assert whole["needs"] == [{"where": "values.x", "what": "an x"}]
    assert whole["notes"] == ["not run"]
    assert whole["warnings"] == [{"where": "dcp", "what": "no", "got": "3", "remedy": "leave it out"}]
    assert whole["nodes"][0]["replaced"] == [{"argv": ["--port", "1"], "origin": "seed", "source": "page"}]
