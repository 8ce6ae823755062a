"""One engine over one or more nodes, alone or as an instance behind a KV store's router."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from kimi_infra.domain.launch import EnvEntry, Launch, Role
from kimi_infra.domain.recipe import KvStore
from kimi_infra.planning import groups, merge, parallel
from kimi_infra.planning.selection import Selected


def engine(chosen: Selected) -> tuple[tuple[Launch, ...], tuple[str, ...] | None]:
    """Return the commands of all nodes, and the router's where several engines share a KV store."""
    choice, store = chosen.choice, chosen.kv_store
    count, current = chosen.instances
    shape = parallel.engine(chosen.recipe, chosen.variant, chosen.strategy, chosen.profile, choice.nodes)
    if store and count > 1:
        shape = dataclasses.replace(shape, head=_instance(current))
    env = merge.env(groups.filled_env(chosen, _engine_env(chosen)))
    before = (*groups.front(chosen), *chosen.strategy.settings.args)
    after = (
        *chosen.override.extra_args,
        *chosen.override.vllm_args,
        *groups.hardware_args(chosen),
        *groups.tail(chosen),
        *(chosen.kv_option.settings.args if chosen.kv_option else ()),
        *(store.settings.args if store else ()),
    )
    launches = tuple(
        groups.launch(
            chosen,
            role=Role.WORKER if rank else Role.HEAD,
            rank=rank,
            words=(*before, *parallel.engine_words(shape, rank), *after),
            env=env,
        )
        for rank in range(choice.nodes if shape.multi else 1)
    )
    return launches, _store_router(store, count) if store and count > 1 else None


def _engine_env(chosen: Selected) -> Iterator[EnvEntry]:
    yield from groups.front_env(chosen)
    yield from chosen.strategy.settings.env
    yield from chosen.kv_option.settings.env if chosen.kv_option else ()
    yield from chosen.kv_store.settings.env if chosen.kv_store else ()
    yield from chosen.override.env
    yield from chosen.override.extra_env
    for block in groups.hardware(chosen):
        yield from block.env


def _instance(index: int) -> str:
    return f"$VLLM_INSTANCE_{index + 1}"


def _store_router(store: KvStore, count: int) -> tuple[str, ...]:
    backends = (("--backend-url", f"http://{_instance(index)}:{store.port}") for index in range(count))
    return (
        *("vllm-router", "--policy", store.router_policy),
        *(word for pair in backends for word in pair),
        *("--host", "$ROUTER_HOST", "--port", "$ROUTER_PORT"),
        *("--cache-threshold", "0.5", "--balance-abs-threshold", "4", "--balance-rel-threshold", "1.1"),
    )
