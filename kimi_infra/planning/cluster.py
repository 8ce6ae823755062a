"""Prefill and decode apart: two pools, and the router in front of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from kimi_infra.domain.inventory import PoolChoice
from kimi_infra.domain.launch import EnvEntry, Launch, Role
from kimi_infra.domain.recipe import POOLS, RoleOverride, RoleSettings, Settings, Words
from kimi_infra.planning import groups, merge, parallel
from kimi_infra.planning.selection import Selected

_NO_OVERRIDE = RoleOverride()
_NO_SETTINGS = RoleSettings()
_NOTHING_ASKED = PoolChoice()
_TRAYS = frozenset({"gb200", "gb300"})
_TRAYS_ONLY = frozenset(
    {
        "VLLM_USE_NCCL_SYMM_MEM",
        "NCCL_CUMEM_ENABLE",
        "NCCL_MNNVL_ENABLE",
        "NCCL_NVLS_ENABLE",
        "UCX_NET_DEVICES",
    }
)
"""Variables that the public rules keep on Grace trays only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A pool and what the recipe gives it."""

    pool: parallel.Pool
    mode: str
    """The one that was asked for: where it is not allowed, router and variables still go by it."""
    override: RoleOverride
    settings: Settings


def cluster(chosen: Selected) -> tuple[tuple[Launch, ...], tuple[str, ...]]:
    """Return the commands of both pools, and the router's."""
    pools = tuple(_pool(chosen, role) for role in POOLS)
    launches = tuple(launch for asked in pools for launch in _launches(chosen, asked))
    return launches, _router(chosen, pools)


def _launches(chosen: Selected, asked: _Asked) -> Iterator[Launch]:
    role = asked.pool.role
    exact = asked.override.hardware_overrides.get(chosen.profile.key, groups.NOTHING)
    before = (*groups.front(chosen), *asked.settings.args)
    after = (
        *asked.override.args,
        *groups.hardware_args(chosen),
        *exact.args,
        *groups.tail(chosen),
        *_connector(chosen, role),
    )
    env = tuple(groups.filled_env(chosen, _env(chosen, asked, exact)))
    for rank in range(asked.pool.members):
        words = (*before, *parallel.pool_words(asked.pool, rank), *after)
        moved = _moved(env, role, rank) if asked.mode == "dep" and rank else env
        yield groups.launch(chosen, role=Role(role), rank=rank, words=words, env=merge.env(moved))


def _pool(chosen: Selected, role: str) -> _Asked:
    stated = (chosen.choice.pools or {}).get(role) or _NOTHING_ASKED
    override = chosen.override.roles.get(role) or _NO_OVERRIDE
    settings = chosen.strategy.roles.get(role) or _NO_SETTINGS
    default = 1 if chosen.choice.nodes > 1 else 0
    asked = stated.parallelism or override.parallelism or settings.parallelism or "tp"
    allowed = parallel.pool_modes(chosen.recipe, role)
    pool = parallel.Pool(
        role=role,
        mode=asked if asked in allowed else allowed[0],
        nodes=default if stated.nodes is None else stated.nodes,
        gpus=chosen.profile.gpus_per_node,
        tp=settings.tp if override.tp is None else override.tp,
        parallel_flag=override.parallel_flag or settings.parallel_flag or chosen.strategy.parallel_flag,
    )
    return _Asked(pool=pool, mode=asked, override=override, settings=settings.settings)


def _connector(chosen: Selected, role: str) -> Words:
    if chosen.kv_option and role in chosen.kv_option.pools:
        return chosen.kv_option.settings.args
    return chosen.kv_store.pools.get(role, ()) if chosen.kv_store else ()


def _env(chosen: Selected, asked: _Asked, exact: Settings) -> Iterator[EnvEntry]:
    for entry in _all_env(chosen, asked, exact):
        if chosen.profile.key in _TRAYS or entry.name not in _TRAYS_ONLY:
            yield entry


def _all_env(chosen: Selected, asked: _Asked, exact: Settings) -> Iterator[EnvEntry]:
    yield from groups.front_env(chosen)
    yield from asked.settings.env
    if chosen.kv_option and asked.pool.role in chosen.kv_option.pools:
        yield from chosen.kv_option.settings.env
    if chosen.kv_store and chosen.kv_store.pools:
        yield from chosen.kv_store.settings.env
    yield from parallel.pool_env(asked.pool)
    yield from chosen.override.env
    yield from asked.override.env
    for block in (*groups.hardware(chosen), exact):
        yield from block.env


def _moved(env: tuple[EnvEntry, ...], role: str, rank: int) -> tuple[EnvEntry, ...]:
    """Point a node of a data-parallel pool at itself where the recipe names the pool's first node."""
    first, own = parallel.node(role, 0), parallel.node(role, rank)
    return tuple(dataclasses.replace(entry, value=own) if entry.value == first else entry for entry in env)


def _router(chosen: Selected, pools: tuple[_Asked, ...]) -> tuple[str, ...]:
    endpoints = [
        (f"--{role}", f"http://{parallel.node(role, rank)}:{groups.PORTS[Role(role)]}")
        for asked in pools
        for role in (asked.pool.role,)
        for rank in range(asked.pool.members if asked.mode == "dep" else 1)
    ]
    local = max((asked.pool.local for asked in pools if asked.mode == "dep"), default=1)
    pinned = chosen.override.router_dp
    return (
        *("vllm-router", "--policy", chosen.strategy.router_policy, "--vllm-pd-disaggregation"),
        *(word for pair in endpoints for word in pair),
        *("--host", "$ROUTER_HOST", "--port", "$ROUTER_PORT"),
        *("--intra-node-data-parallel-size", str(local if pinned is None else pinned)),
    )
