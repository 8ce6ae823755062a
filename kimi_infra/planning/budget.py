"""One table of deadlines, each outside the one before it.

The seed prints 3600 s for NVIDIA. Here they are a floor on all real hardware, which is our step and not
the seed's; the operator may only lengthen it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Timeouts
from kimi_infra.domain.launch import EnvEntry
from kimi_infra.domain.plan import Budget
from kimi_infra.domain.provenance import Origin, Provenance

ENGINE_READY = "VLLM_ENGINE_READY_TIMEOUT_S"

VLLM_ENGINE_READY = 600
"""vLLM's default of the variable (vllm: envs.py), for recipes that do not set it."""
_SEED_ENGINE_READY = 3600
_FLOOR = 120
"""Seconds below which no wait for another host or for a first compilation is worth bounding."""
_SHUTDOWN = 30
_WORKER_STOP = 30
"""A worker was seen to need 13 s from SIGTERM to its exit; twice that and a margin."""
_MARGIN = 60


def budget(env: Iterable[EnvEntry], timeouts: Timeouts, profile: HardwareProfile) -> Budget:
    """Compute all deadlines of one engine, in seconds."""
    engine_ready = max(_stated(env), _floor(profile), timeouts.engine_ready or 0)
    first_answer = max(_FLOOR, engine_ready // 6, timeouts.first_answer or 0)
    # Not an end: ranks wait on for an absent one, and their unit's timeout is extended meanwhile. It is when
    # the wait is reported, what a deploy grants it, and how long a host may take to be ready for its rank.
    joined = max(_FLOOR, engine_ready // 4)
    container_stop = _SHUTDOWN + _WORKER_STOP
    return Budget(
        joined=joined,
        engine_ready=engine_ready,
        first_answer=first_answer,
        unit_start=joined + engine_ready + first_answer + _MARGIN,
        shutdown=_SHUTDOWN,
        container_stop=container_stop,
        unit_stop=2 * container_stop + _MARGIN,
    )


def longer_by(deadlines: Budget, timeouts: Timeouts) -> Provenance:
    """Return who vouches for an engine's deadline that is not the recipe's."""
    if timeouts.engine_ready == deadlines.engine_ready:
        return Provenance(origin=Origin.OPERATOR, source="deployment.yml timeouts.engine_ready")
    source = "the seed's value for NVIDIA (recipe page, Serve), as a floor on every accelerator"
    return Provenance(origin=Origin.DERIVED, source=source)


def _stated(env: Iterable[EnvEntry]) -> int:
    return max((int(entry.value) for entry in env if entry.name == ENGINE_READY), default=VLLM_ENGINE_READY)


def _floor(profile: HardwareProfile) -> int:
    """Return the seed's deadline; the lab's CPU ranks load a tiny model."""
    return 0 if profile.generation == "cpu" else _SEED_ENGINE_READY
