"""The arithmetic of ranks: which parallel and rendezvous flags each strategy writes for each node."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import HEAD_IP, IFACE_NAME, EnvEntry
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import (
    PREFILL,
    DeployType,
    Recipe,
    Strategy,
    Variant,
    Word,
    Words,
)
from kimi_infra.planning import merge

DATA_PARALLEL = "--data-parallel-size"
TENSOR_PARALLEL = "--tensor-parallel-size"
_SINGLE = "single_node_tp"
"""The one strategy that may leave GPUs of its node alone."""
_REPLICAS = "replicas"
"""One replica a node as in the public ``tp_dp``, whose other nodes vLLM refuses beside a head that holds
the only API ("must use --headless"); they meet as the nodes of every other shape do."""

_Flags = Iterator[tuple[tuple[str, ...], str]]
"""Words of one flag, and why they are so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine over whole nodes."""

    strategy: str
    parallel_flag: str
    parallelism: str | None
    """``tp_pp``, ``tp_dp``, :data:`_REPLICAS` or None."""
    multi: bool
    """Whether the nodes meet at all; otherwise each command stands alone."""
    nodes: int
    gpus: int
    """Of one node."""
    size: int
    """Value of the parallel flag where the nodes do not meet."""
    head: str = HEAD_IP
    """Where the other nodes find rank 0."""
    step: int = 0
    """Data-parallel ranks of one node that the start ranks count by; 0 is one a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One pool of a prefill/decode cluster."""

    role: str
    mode: str
    """``tp``, ``tep`` or ``dep``."""
    nodes: int
    """0 is half of the one node that both pools share."""
    gpus: int
    """Of one node."""
    tp: int | None
    """Stated tensor-parallel size of a ``dep`` pool."""
    parallel_flag: str

    @property
    def members(self) -> int:
        """Commands of the pool."""
        return max(1, self.nodes)

    @property
    def local(self) -> int:
        """Data-parallel ranks of one node of a ``dep`` pool."""
        return max(1, self.gpus // (self.tp or 1))

    @property
    def first(self) -> str:
        """Placeholder of the pool's first node."""
        return node(self.role, 0)


def node(role: str, rank: int) -> str:
    """Return the page's placeholder of a pool's node; ranks count from 0, its names from 1."""
    return f"${role.upper()}_NODE_{rank + 1}"


@functools.lru_cache(4096)
def engine_words(engine: Engine, rank: int) -> Words:
    """Return the flags of one node of an engine, in the order of the public rules."""
    return _words(engine.strategy, _engine(engine, rank))


@functools.lru_cache(4096)
def pool_words(pool: Pool, rank: int) -> Words:
    """Return the flags of one node of a pool."""
    flags = _dep_pool(pool, rank) if pool.mode == "dep" else _tp_pool(pool, rank)
    return _words(f"pd_cluster, {pool.role}", flags)


@functools.lru_cache(512)
def pool_env(pool: Pool) -> tuple[EnvEntry, ...]:
    """Return the variables that follow from a pool's size: its GPUs, and devices between several nodes."""
    half = pool.gpus // 2
    shared = range(half) if pool.role == PREFILL else range(half, pool.gpus)
    gpus = range(pool.gpus) if pool.nodes else shared if half else range(0)
    found = [("CUDA_VISIBLE_DEVICES", ",".join(map(str, gpus)), "GPUs of the pool")] if gpus else []
    if pool.nodes > 1:
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        found += [(name, IFACE_NAME, "the pool has several nodes") for name in names]
    place = f"strategies/pd_cluster, {pool.role}"
    return tuple(
        EnvEntry(
            name=name, value=value, provenance=Provenance(origin=Origin.DERIVED, source=f"{place}: {why}")
        )
        for name, value, why in found
    )


def single_size(recipe: Recipe, variant: Variant, strategy: Strategy, profile: HardwareProfile) -> int:
    """Return the parallel size within one node: all GPUs, or fewer where ``single_node_tp`` may.

    A stated size is capped at the node's GPUs; without one a model that fits one GPU takes one.
    """
    gpus = profile.gpus_per_node
    if strategy.name != _SINGLE:
        return gpus
    override = recipe.strategy_overrides.get(_SINGLE)
    for stated in (variant.tp, override.tp if override else {}):
        size = merge.by_hardware(stated, profile)
        if size is not None and size > 0:
            return min(size, gpus)
    if not variant.vram_minimum_gb or not profile.vram_gb:
        return gpus
    return 1 if variant.vram_minimum_gb <= profile.vram_gb / gpus else gpus


def engine(
    recipe: Recipe, variant: Variant, strategy: Strategy, profile: HardwareProfile, nodes: int
) -> Engine:
    """Return the engine of a strategy that is not a prefill/decode cluster."""
    multi = strategy.deploy_type is DeployType.MULTI_NODE and nodes > 1
    return Engine(
        strategy=strategy.name,
        parallel_flag=strategy.parallel_flag,
        parallelism=_described(recipe, strategy.name, profile.key) or strategy.parallelism,
        multi=multi,
        nodes=nodes,
        gpus=profile.gpus_per_node,
        size=single_size(recipe, variant, strategy, profile),
        step=_stated_local(recipe, strategy, profile) if multi else 0,
    )


def _described(recipe: Recipe, strategy: str, hardware: str) -> str | None:
    """Return the shape that the publisher describes for a placement, where it is not the strategy's own."""
    for layout in recipe.layouts or ():
        if (layout.strategy, layout.hardware) == (strategy, hardware):
            return _REPLICAS if layout.parallelism == "tp_dp" else layout.parallelism
    return None


def pool_modes(recipe: Recipe, role: str) -> tuple[str, ...]:
    """Return a pool's modes: those of the offered strategies, narrowed; or as our extension states them."""
    override = recipe.strategy_overrides.get("pd_cluster")
    if override and role in override.own_pool_modes:
        return override.own_pool_modes[role]
    offered = {_family(name) for name in recipe.offered_strategies}
    modes = tuple(mode for mode in ("tp", "tep", "dep") if mode in offered) or ("tp",)
    narrowed = tuple(mode for mode in modes if override and mode in override.pool_modes)
    return narrowed or modes


def _family(strategy: str) -> str | None:
    if strategy == "pd_cluster":
        return None
    for suffix, mode in (("dep", "dep"), ("tep", "tep"), ("tp", "tp"), ("tp_pp", "tp"), ("tp_dp", "tp")):
        if strategy == suffix or strategy.endswith(f"_{suffix}"):
            return mode
    return None


def _stated_local(recipe: Recipe, strategy: Strategy, profile: HardwareProfile) -> int:
    """Return the last ``--data-parallel-size-local`` of a recipe's override for the strategy, else 0."""
    override = recipe.strategy_overrides.get(strategy.name)
    if override is None:
        return 0
    block = merge.by_generation(override.hardware_overrides, profile)
    exact = override.hardware_overrides.get(profile.key)
    words = (
        *override.vllm_args,
        *override.extra_args,
        *(block.args if block else ()),
        *(exact.args if exact else ()),
    )
    stated = [
        after.text for word, after in itertools.pairwise(words) if word.text == "--data-parallel-size-local"
    ]
    return int(stated[-1]) if stated and re.fullmatch(r"[0-9]{1,9}", stated[-1]) else 0


def _words(place: str, flags: _Flags) -> Words:
    return tuple(
        Word(text=text, provenance=Provenance(origin=Origin.DERIVED, source=f"strategies/{place}: {why}"))
        for flag, why in flags
        for text in flag
    )


def _engine(engine: Engine, rank: int) -> _Flags:
    if not engine.multi:
        why = "every GPU of the node" if engine.size == engine.gpus else "the GPUs that the variant takes"
        yield (engine.parallel_flag, str(engine.size)), why
    elif engine.parallel_flag == DATA_PARALLEL:
        yield from _data_parallel(engine, rank)
    elif engine.parallelism == "tp_pp":
        yield (TENSOR_PARALLEL, str(engine.gpus)), "GPUs of a node"
        yield ("--pipeline-parallel-size", str(engine.nodes)), "one stage a node"
        yield from _rendezvous(engine.nodes, rank, engine.head)
    elif engine.parallelism == _REPLICAS:
        yield (TENSOR_PARALLEL, str(engine.gpus)), "GPUs of a node"
        yield (DATA_PARALLEL, str(engine.nodes)), "one replica a node"
        yield from _rendezvous(engine.nodes, rank, engine.head)
    elif engine.parallelism == "tp_dp":
        yield (TENSOR_PARALLEL, str(engine.gpus)), "GPUs of a node"
        yield (DATA_PARALLEL, str(engine.nodes)), "one replica a node"
        yield ("--data-parallel-size-local", "1"), "one replica a node"
        yield from _data_parallel_ends(engine, rank, 1)
    else:
        size = engine.nodes * engine.gpus
        yield (TENSOR_PARALLEL, str(size)), f"{engine.nodes} nodes x {engine.gpus} GPUs"
        yield from _rendezvous(engine.nodes, rank, engine.head)


def _data_parallel(engine: Engine, rank: int) -> _Flags:
    size = engine.nodes * engine.gpus
    yield (DATA_PARALLEL, str(size)), f"{engine.nodes} nodes x {engine.gpus} GPUs"
    yield ("--data-parallel-size-local", str(engine.gpus)), "GPUs of a node"
    yield from _data_parallel_ends(engine, rank, engine.step or engine.gpus)


def _data_parallel_ends(engine: Engine, rank: int, step: int) -> _Flags:
    yield ("--data-parallel-address", engine.head), "address of rank 0"
    if rank > 0:
        yield ("--data-parallel-start-rank", str(rank * step)), f"rank of this node x {step}"


def _rendezvous(nodes: int, rank: int, head: str) -> _Flags:
    yield ("--nnodes", str(nodes)), "nodes of the engine"
    yield ("--node-rank", str(rank)), "rank of this node"
    yield ("--master-addr", head), "address of rank 0"
    if rank > 0:
        yield ("--headless",), "only rank 0 holds the API"


def _tp_pool(pool: Pool, rank: int) -> _Flags:
    size = pool.nodes * pool.gpus or pool.gpus // 2
    yield (pool.parallel_flag, str(max(1, size))), "GPUs of the pool"
    if pool.mode == "tep":
        yield ("--enable-expert-parallel",), "mode of the pool"
    if pool.nodes > 1:
        yield from _rendezvous(pool.nodes, rank, pool.first)


def _dep_pool(pool: Pool, rank: int) -> _Flags:
    if pool.tp is not None:
        yield (TENSOR_PARALLEL, str(pool.tp)), "stated for the pool"
    yield (DATA_PARALLEL, str(pool.members * pool.local)), f"{pool.members} nodes x {pool.local} ranks"
    yield ("--data-parallel-size-local", str(pool.local)), "data-parallel ranks of a node"
    yield ("--data-parallel-start-rank", str(rank * pool.local)), f"rank of this node x {pool.local}"
    yield ("--data-parallel-address", pool.first), "address of the pool's first node"
    yield ("--data-parallel-rpc-port", f"${pool.role.upper()}_DP_RPC_PORT"), "port plan"
    if pool.members > 1:
        yield ("--data-parallel-hybrid-lb",), "each node balances over its own ranks"
    yield ("--enable-expert-parallel",), "mode of the pool"
