"""Where things lie on a host. ``name`` is a deployment's name throughout."""

from __future__ import annotations

CONFIG_ROOT = "/etc/kimi-infra"
STATE_ROOT = "/var/lib/kimi-infra"
PROGRAM_ROOT = "/usr/local/lib/kimi-infra"
UNIT_ROOT = "/etc/systemd/system"

RANK_PROGRAM = f"{PROGRAM_ROOT}/kimi-rank"


def config_dir(name: str) -> str:
    """Folder of a deployment's configuration."""
    return f"{CONFIG_ROOT}/{name}"


def rank_config(name: str) -> str:
    """Configuration of the deployment's rank supervisor."""
    return f"{config_dir(name)}/rank.json"


def engine_env(name: str) -> str:
    """Docker env file of the engine, readable by all."""
    return f"{config_dir(name)}/engine.env"


def secret_env(name: str) -> str:
    """Docker env file of the engine's secrets, readable by root only."""
    return f"{config_dir(name)}/secret.env"


def cache_dir(name: str) -> str:
    """Folder of the engine's compile and graph caches."""
    return f"{STATE_ROOT}/{name}/cache"


def target(name: str) -> str:
    """Name of the deployment's target."""
    return f"kimi-{name}.target"


def boot_unit(name: str) -> str:
    """Name of the unit that starts the deployment's target after a boot."""
    return f"kimi-{name}-boot.service"


def unit_path(unit: str) -> str:
    """Where a unit's file lies."""
    return f"{UNIT_ROOT}/{unit}"
