"""The arithmetic of ranks: which parallel and rendezvous flags each strategy writes for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import HEAD_IP
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One node's place in an engine."""

    profile: HardwareProfile
    nodes: int
    rank: int
    vram_minimum_gb: int
    """What the variant needs in all; 0 fits everywhere."""


def words(strategy: str, shape: Shape) -> tuple[Word, ...]:
    """Return a node's parallel flags in the order of the public rules.

    Raises:
        KeyError: the strategy is none of :data:`STRATEGIES`.
    """
    return tuple(
        Word(text=text, provenance=Provenance(origin=Origin.DERIVED, source=f"strategies/{strategy}: {why}"))
        for flag, why in STRATEGIES[strategy](shape)
        for text in flag
    )


_Flags = Iterator[tuple[tuple[str, ...], str]]


def _single_node_tp(shape: Shape) -> _Flags:
    per_node, vram = shape.profile.gpus_per_node, shape.profile.vram_gb
    fits_one = vram is not None and shape.vram_minimum_gb <= vram / per_node
    size = 1 if fits_one else per_node
    why = "the variant fits one GPU" if fits_one else "every GPU of the node"
    yield ("--tensor-parallel-size", str(size)), why


def _multi_node_tp(shape: Shape) -> _Flags:
    nodes, per_node = shape.nodes, shape.profile.gpus_per_node
    yield ("--tensor-parallel-size", str(nodes * per_node)), f"{nodes} nodes x {per_node} GPUs"
    yield ("--nnodes", str(nodes)), "nodes of the engine"
    yield ("--node-rank", str(shape.rank)), "rank of this node"
    yield ("--master-addr", HEAD_IP), "address of rank 0"
    if shape.rank > 0:
        yield ("--headless",), "only rank 0 holds the API"


STRATEGIES: Mapping[str, Callable[[Shape], _Flags]] = {
    "single_node_tp": _single_node_tp,
    "multi_node_tp": _multi_node_tp,
}
"""Strategies that this version compiles."""
