"""Each host holds what the plan says."""

from __future__ import annotations

import hashlib

from testinfra.host import Host as Machine

from kimi_infra.domain import paths
from kimi_infra.domain.plan import DeploymentPlan, HostFile, HostLayout, RankPlan
from kimi_infra.rendering import units


def test_runtime(machine: Machine, plan: DeploymentPlan, rank: RankPlan) -> None:
    """Docker is installed, runs, and will after a reboot."""
    service = machine.service("docker")
    assert machine.package("docker.io").is_installed or machine.package("docker-ce").is_installed, (
        f"{rank.host.name}: no docker package; run playbooks/prepare.yml for {plan.deployment.name}"
    )
    assert service.is_running, f"{rank.host.name}: docker does not run"
    assert service.is_enabled, f"{rank.host.name}: docker would not start at boot"


def test_image(machine: Machine, plan: DeploymentPlan, rank: RankPlan) -> None:
    """The image is here under its digest, with the same ID on all hosts."""
    reference = plan.deployment.image.reference
    found = machine.check_output("docker image inspect --format '{{.Id}}' %s", reference)
    ids = {other.container.image_id for other in plan.ranks}
    assert ids == {found}, f"{reference} is {found} on {rank.host.name}, the group has {sorted(ids)}"


def test_file(machine: Machine, layout: HostLayout, file: HostFile) -> None:
    """A file is as planned: present, content by hash, mode."""
    found = machine.file(file.path)
    assert found.exists, f"{layout.host}: {file.path} is missing"
    assert f"{found.mode:04o}" == file.mode, (
        f"{layout.host}: {file.path} has mode {found.mode:04o}, not {file.mode}"
    )
    wanted = hashlib.sha256(file.content.encode()).hexdigest()
    assert found.sha256sum == wanted, f"{layout.host}: {file.path} differs from the plan"


def test_unit(machine: Machine, plan: DeploymentPlan, rank: RankPlan) -> None:
    """The rank's unit is enabled, through its target, and active."""
    unit = machine.service(rank.unit)
    assert unit.is_enabled, f"{rank.host.name}: {rank.unit} would not start at boot"
    boot = paths.boot_unit(plan.deployment.name)
    assert machine.service(boot).is_enabled, f"{rank.host.name}: {boot} would not start {rank.unit} at boot"
    state = machine.run("systemctl is-active %s", rank.unit).stdout.strip()
    assert state == "active", f"{rank.host.name}: {rank.unit} is {state}; see journalctl -u {rank.unit}"


def test_command(machine: Machine, plan: DeploymentPlan, rank: RankPlan) -> None:
    """What runs is, word for word, what was planned."""
    pid = machine.check_output("systemctl show --property MainPID --value %s", rank.unit)
    words = machine.check_output("tr '\\0' '\\n' < /proc/%s/cmdline", str(int(pid))).split("\n")
    planned = list(units.command(plan.deployment.name, rank))
    assert words[-len(planned) :] == planned, f"{rank.host.name}: process {pid} runs another command: {words}"
