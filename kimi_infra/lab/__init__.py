"""Two real systemd hosts on this machine, with a registry and a package cache beside them."""

from kimi_infra.lab.api import (
    LabHost,
    LabInfo,
    boot_id,
    down,
    host_names,
    power_loss,
    power_on,
    pulumi_environment,
    reboot,
    reset,
    ssh_argv,
    status,
    up,
)

__all__ = [
    "LabHost",
    "LabInfo",
    "boot_id",
    "down",
    "host_names",
    "power_loss",
    "power_on",
    "pulumi_environment",
    "reboot",
    "reset",
    "ssh_argv",
    "status",
    "up",
]
