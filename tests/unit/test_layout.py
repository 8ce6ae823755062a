"""Files of each host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kimi_infra.config import recipes
from kimi_infra.deploy import layout
from kimi_infra.domain.inventory import Deployment, SecretRef
from kimi_infra.domain.plan import DeploymentPlan, HostLayout
from kimi_infra.planning import host, resolve
from tests import examples

pytestmark = pytest.mark.fast

SECRET = "canary-5f1c"


def plan(deployment: Deployment) -> DeploymentPlan:
    """Plan with the facts of both hosts."""
    catalogue = recipes.load_catalogue()
    resolution = resolve.resolve(catalogue, deployment.choice)
    return host.plan(deployment, catalogue.hardware("gb300"), resolution, examples.all_facts())


def layouts(deployment: Deployment | None = None) -> tuple[HostLayout, ...]:
    """Render with a canary for every secret."""

    def resolver(_: SecretRef) -> str:
        return SECRET

    return layout.layouts(plan(deployment or examples.deployment()), resolver)


def test_a_secret_is_in_one_file_that_root_alone_reads() -> None:
    """The canary appears in the secret file, mode 0600, and nowhere else."""
    for one in layouts():
        holding = [file for file in one.files if SECRET in file.content]
        assert [(file.path, file.mode, file.secret) for file in holding] == [
            ("/etc/kimi-infra/kimi/secret.env", "0600", True)
        ]


def test_both_ranks_carry_one_plan() -> None:
    """The supervisors compare this: equal on all ranks, different when any rank's command differs."""
    configs = [json.loads(_content(one, "rank.json")) for one in layouts()]
    moved = layouts(examples.deployment(model_path="/srv/other"))
    assert configs[0]["plan"] == configs[1]["plan"]
    assert json.loads(_content(moved[0], "rank.json"))["plan"] != configs[0]["plan"]


def test_other_weights_at_the_same_path_are_another_plan() -> None:
    """A new content hash changes the group's plan and the file that staleness is read from, on every rank."""
    for before, after in zip(layouts(), layouts(examples.deployment(model_sha256="e" * 64)), strict=True):
        old, new = (json.loads(_content(one, "rank.json")) for one in (before, after))
        assert old["plan"] != new["plan"]
        assert (old["model_sha256"], new["model_sha256"]) == (None, "e" * 64)


def test_docker_that_stops_takes_no_rank_down_for_good() -> None:
    """A rank starts docker and comes after it, by no rule that ends or fails it with docker."""
    for one in layouts():
        unit = _content(one, one.serving_unit)
        for rule in ("Requires", "BindsTo", "Requisite", "PartOf"):
            assert not any(line.startswith(f"{rule}=docker") for line in unit.split("\n"))
        assert "Wants=docker.service " in unit
        assert "After=docker.service " in unit
        assert "Restart=always" in unit


def test_docker_keeps_no_second_copy_of_the_log() -> None:
    """The journal holds the engine's lines; json-file beside it grows without a bound."""
    for one in layouts():
        assert "--log-driver none" in _content(one, one.serving_unit)


def test_rendering_is_byte_stable() -> None:
    """The same inventory and facts give the same bytes."""
    assert layouts() == layouts()


def test_systemd_has_nothing_to_say_about_the_units(tmp_path: Path) -> None:
    """`systemd-analyze verify` prints nothing about units under their real names."""
    program = tmp_path / "kimi-rank"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    for one in layouts():
        for file in one.files:
            if file.path.startswith("/etc/systemd/system/"):
                text = file.content.replace("/usr/local/lib/kimi-infra/kimi-rank", str(program))
                (tmp_path / Path(file.path).name).write_text(text)
    names = sorted(path.name for path in tmp_path.iterdir() if path.suffix in {".service", ".target"})
    assert names == [
        "docker.service",
        "kimi-kimi-boot.service",
        "kimi-kimi.target",
        "vllm-kimi-head.service",
        "vllm-kimi-worker.service",
    ]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        check=False,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pools_ranks_know_their_own_pool() -> None:
    """A rank's file names the head, the size and the API of its pool; its files lie under its own unit."""
    found = layouts(examples.cluster())
    configs = [json.loads(_content(one, "rank.json")) for one in found]
    assert [(each["role"], each["rank"], each["ranks"]) for each in configs] == [
        ("prefill", 0, 2),
        ("prefill", 1, 2),
        *(("decode", rank, 4) for rank in range(4)),
    ]
    assert [each["head_address"] for each in configs] == ["198.51.100.11"] * 2 + ["198.51.100.13"] * 4
    assert [each["api_port"] for each in configs] == [8001, 30000, 8002, 8002, 8002, 8002]
    assert [one.serving_unit for one in found][4] == "vllm-kimi-decode-2.service"
    assert "--name vllm-kimi-decode-2 " in _content(found[4], "vllm-kimi-decode-2.service")


def _content(one: HostLayout, name: str) -> str:
    return next(file.content for file in one.files if file.path.endswith(name))
