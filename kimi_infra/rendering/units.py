"""The systemd units of one rank."""

from __future__ import annotations

from kimi_infra.domain import paths
from kimi_infra.domain.plan import Budget, DeploymentPlan, RankPlan
from kimi_infra.rendering import docker, grouping, systemd

START_LIMIT_BURST = 5
"""Starts within the interval after which a unit stays failed, with its reason, until someone looks."""
_RESTART_PAUSE = 5
"""Seconds; long enough for the other side of a lost connection to have ended too."""

_BOOT_LIMIT = 900
"""Seconds that a boot may take before ranks start all the same; GPU servers need minutes."""

_MANAGED = "# Written by kimi_infra; a change made here is overwritten.\n"


def target(plan: DeploymentPlan) -> str:
    """Return the target that a deployment's rank hangs on.

    Without default dependencies it is not ordered after its ranks: it is active while they load.
    """
    name = plan.deployment.name
    return (
        f"{_MANAGED}[Unit]\n"
        f"Description=Serving ranks of deployment {systemd.text(name)} on this host\n"
        "DefaultDependencies=no\n"
        "Conflicts=shutdown.target\n"
        "Before=shutdown.target\n"
    )


def boot(plan: DeploymentPlan) -> str:
    """Return the unit that starts a deployment's target once the host has booted.

    A rank's start takes up to an hour. As a job of the boot it would keep the host in the state
    `starting` for as long, and whoever waits for the end of the boot with it.
    """
    name = plan.deployment.name
    started = f"systemctl start --no-block {paths.target(name)}"
    # Another unit that never ends its start must not keep us from serving.
    wait = f"timeout {_BOOT_LIMIT} systemctl is-system-running --wait"
    return (
        f"{_MANAGED}[Unit]\n"
        f"Description=Start of deployment {systemd.text(name)} after a boot\n"
        "\n[Service]\n"
        "Type=exec\n"
        f"ExecStart={systemd.exec_line(('/bin/sh', '-c', f'{wait}; exec {started}'))}\n"
        "\n[Install]\n"
        "WantedBy=multi-user.target\n"
    )


def rank(plan: DeploymentPlan, rank_plan: RankPlan) -> str:
    """Return the unit of one rank; its main process is the rank supervisor."""
    deployment = plan.deployment
    what = f"vLLM rank {rank_plan.rank} ({rank_plan.role.value}) of deployment {deployment.name}"
    owner = paths.target(deployment.name)
    return (
        f"{_MANAGED}[Unit]\n"
        f"Description={systemd.text(f'{what}: {deployment.choice.model}')}\n"
        # Not Requires=: a docker that is stopped or fails would take the rank down, and Restart= not act.
        "Wants=docker.service network-online.target\n"
        "After=docker.service network-online.target\n"
        f"PartOf={owner}\n"
        f"StartLimitIntervalSec={START_LIMIT_BURST * plan.budget.unit_start}\n"
        f"StartLimitBurst={START_LIMIT_BURST}\n"
        "\n[Service]\n"
        f"{_service(plan.budget, rank_plan)}"
        f"ExecStart={_exec(deployment.name, rank_plan)}\n"
        "\n[Install]\n"
        f"WantedBy={owner}\n"
    )


def _service(budget: Budget, rank_plan: RankPlan) -> str:
    return (
        "Type=notify\n"
        "NotifyAccess=main\n"
        "Restart=always\n"
        f"RestartSec={_RESTART_PAUSE}\n"
        f"TimeoutStartSec={budget.unit_start}\n"
        f"TimeoutStopSec={budget.unit_stop}\n"
        # The supervisor alone gets SIGTERM: it stops the container in order.
        "KillMode=mixed\n"
        f"SyslogIdentifier={rank_plan.unit.removesuffix('.service')}\n"
    )


def command(name: str, rank_plan: RankPlan) -> tuple[str, ...]:
    """Return the words that systemd executes for a rank of deployment ``name``."""
    return (*_supervisor(name), *docker.run_argv(rank_plan))


def _supervisor(name: str) -> tuple[str, ...]:
    return (paths.RANK_PROGRAM, "run", "--config", paths.rank_config(name), "--")


def _exec(name: str, rank_plan: RankPlan) -> str:
    lines = grouping.by_option(docker.run_argv(rank_plan))
    words = (" ".join(systemd.word(word) for word in line) for line in lines)
    return " \\\n  ".join((systemd.exec_line(_supervisor(name)), *words))
