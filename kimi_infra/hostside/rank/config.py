"""rank.json, read and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ConfigError(Exception):
    """rank.json cannot be used; the message names file and key."""


@dataclass(frozen=True)
class Port:
    """A port that must be free before the rank starts."""

    number: int
    purpose: str


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds."""

    joined: float
    """For the host to be ready for the rank, then for all ranks to meet; the meeting goes on after it."""
    engine_ready: float
    """From the engine's start to its port listening (head) or its connections to the head (worker)."""
    first_answer: float
    """From the listening port to an answered completion."""
    container_stop: float
    """``docker stop -t``."""


@dataclass(frozen=True)
class Config:
    """What this rank is."""

    deployment: str
    rank: int
    role: str
    ranks: int
    plan: str
    """Hash that is equal on all ranks of the group."""
    container: str
    """Also the stem of the unit's name."""
    head_address: str
    own_address: str
    interface: str
    supervisor_port: int
    master_port: int
    api_port: int
    model: str
    inputs: tuple[str, ...]
    secret_env: str | None
    ports: tuple[Port, ...]
    limits: Limits

    @property
    def is_head(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def unit(self) -> str:
        """Name of the systemd unit."""
        return f"{self.container}.service"


_TEXTS = ("deployment", "role", "plan", "container", "head_address", "own_address", "interface", "model")
_NUMBERS = ("rank", "ranks", "supervisor_port", "master_port", "api_port")
_LIMITS = ("joined", "engine_ready", "first_answer", "container_stop")


def _take(path: Path, data: Any, keys: tuple[str, ...], kind: type | tuple[type, ...]) -> dict[str, Any]:
    found = {key: data.get(key) if isinstance(data, dict) else None for key in keys}
    for key, value in found.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{path}: {key} is missing or of the wrong type (got {value!r})")
    return found


def read(path: Path) -> Config:
    """Read rank.json; raises :class:`ConfigError` when it is missing, garbled or incomplete."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    texts, numbers = _take(path, data, _TEXTS, str), _take(path, data, _NUMBERS, int)
    lists = _take(path, data, ("inputs", "ports"), list)
    limits = Limits(**_take(path, data.get("seconds"), _LIMITS, (int, float)))
    ports = tuple(Port(**_take(path, port, ("number",), int), **_take(path, port, ("purpose",), str))
                  for port in lists["ports"])  # fmt: skip
    if texts["role"] != ("head" if numbers["rank"] == 0 else "worker"):
        raise ConfigError(f"{path}: rank {numbers['rank']} cannot be a {texts['role']}")
    if not 0 <= numbers["rank"] < numbers["ranks"]:
        raise ConfigError(f"{path}: rank {numbers['rank']} is not one of {numbers['ranks']} ranks")
    inputs = tuple(str(item) for item in lists["inputs"])
    secret = data.get("secret_env")
    return Config(**texts, **numbers, inputs=inputs, ports=ports, limits=limits, secret_env=secret)
