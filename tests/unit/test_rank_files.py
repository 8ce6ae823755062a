"""The supervisor as it is laid down on hosts, and its configuration."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kimi_infra import hostside
from kimi_infra.config import recipes
from kimi_infra.deploy import layout
from kimi_infra.hostside.rank import answer, config
from kimi_infra.planning import host, resolve
from tests import examples
from tests.stubs import group

pytestmark = pytest.mark.fast


def test_programs_run_on_the_pythons_of_hosts() -> None:
    """The supervisor has the syntax of Python 3.10, the probe of 3.9; both import its own library only."""
    own = {"kimi_rank", "__future__"}
    texts = {name: content for name, (content, _) in hostside.rank_files().items()}
    for name, text in {**texts, "probe.py": hostside.probe_source()}.items():
        tree = ast.parse(text, name, feature_version=(3, 9) if name == "probe.py" else (3, 10))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                assert node.module.split(".")[0] in own | sys.stdlib_module_names, name
            if isinstance(node, ast.Import):
                assert all(item.name.split(".")[0] in sys.stdlib_module_names for item in node.names), name


def test_a_run_leaves_no_byte_code(tmp_path: Path) -> None:
    """The installed program starts by its first line and writes nothing beside itself."""
    program = group.install(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run((program, "--help"), capture_output=True, text=True, check=True)
    assert "status" in done.stdout
    assert sorted(tmp_path.rglob("*")) == before
    assert program.stat().st_mode & 0o777 == 0o755


GOOD: dict[str, Any] = {
    "deployment": "kimi", "rank": 1, "role": "worker", "ranks": 2, "plan": "p", "container": "c",
    "head_address": "198.51.100.11", "own_address": "198.51.100.12", "interface": "eth0",
    "supervisor_port": 1, "master_port": 2, "api_port": 3, "model": "m", "inputs": [], "ports": [],
    "secret_env": None,
    "seconds": {"joined": 1, "engine_ready": 1, "first_answer": 1, "shutdown": 1, "container_stop": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"plan": None}, "plan is missing or of the wrong type (got None)"),
        ({"rank": "1"}, "rank is missing or of the wrong type (got '1')"),
        ({"ranks": True}, "ranks is missing or of the wrong type (got True)"),
        ({"rank": 2}, "rank 2 is not one of 2 ranks"),
        ({"rank": 0}, "rank 0 cannot be a worker"),
        ({"seconds": {"joined": 1}}, "engine_ready is missing or of the wrong type (got None)"),
        ({"seconds": 3}, "joined is missing or of the wrong type (got None)"),
        ({"ports": [{"number": 1}]}, "purpose is missing or of the wrong type (got None)"),
    ],
)
def test_a_faulty_configuration_is_refused(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    """The message names the file and the key."""
    file = tmp_path / "rank.json"
    file.write_text(json.dumps({**GOOD, **change}), encoding="utf-8")
    with pytest.raises(config.ConfigError) as caught:
        config.read(file)
    assert str(caught.value) == f"{file}: {text}"


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null"])
def test_a_garbled_configuration_is_refused(tmp_path: Path, text: str) -> None:
    """Anything but a JSON object is a configuration error, never another exception."""
    (tmp_path / "rank.json").write_text(text, encoding="utf-8")
    with pytest.raises(config.ConfigError):
        config.read(tmp_path / "rank.json")


def test_what_deploy_writes_is_what_the_supervisor_reads(tmp_path: Path) -> None:
    """Both ends of rank.json agree, key by key."""
    catalogue, deployment = recipes.load_catalogue(), examples.deployment()
    launches = resolve.resolve(catalogue, deployment.choice)
    planned = host.plan(deployment, catalogue.hardware("gb300"), launches, examples.all_facts())
    for rank in planned.ranks:
        file = tmp_path / "rank.json"
        file.write_text(json.dumps(layout.rank_config(planned, rank)), encoding="utf-8")
        read = config.read(file)
        assert (read.rank, read.role) == (rank.rank, rank.role.value)
        assert read.container == rank.container.name
        assert read.unit == rank.unit
        assert read.limits.container_stop == planned.budget.container_stop
        # A worker grants the head its limit and a margin, then needs its own.
        assert planned.budget.unit_stop > 2 * (read.limits.container_stop + 10)


@pytest.mark.parametrize(
    ("content", "key"),
    [("VLLM_API_KEY=a=b \n", "a=b "), ("# VLLM_API_KEY=x\nHF_TOKEN=y\n", None), ("VLLM_API_KEY=\n", None)],
)
def test_the_key_is_read_as_docker_reads_it(tmp_path: Path, content: str, key: str | None) -> None:
    """No quoting, everything behind the first equals sign, comments left alone."""
    (tmp_path / "secret.env").write_text(content, encoding="utf-8")
    assert answer.api_key(str(tmp_path / "secret.env")) == key


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b"", "HTTP status 500"),
        (200, b"<html>", "status 200 without a completion"),
        (200, b"[]", "status 200 without a completion"),
        (200, b'{"choices": [], "usage": {"completion_tokens": 4}}', "a completion without a token"),
        (200, b'{"choices": [{}], "usage": {"completion_tokens": 0}}', "a completion without a token"),
    ],
)
def test_only_a_completion_is_an_answer(status: int, body: bytes, reason: str) -> None:
    """Another program's answer on the port is none."""
    with pytest.raises(answer.NoAnswerError) as caught:
        answer.check(status, body)
    assert str(caught.value) == reason
