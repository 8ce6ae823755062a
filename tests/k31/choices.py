"""A cell as the choice that asks for it."""

from __future__ import annotations

from dataclasses import replace

from kimi_infra.domain.inventory import Choice, PoolChoice
from tests.k31.expected import NONE, Cell, Entry, Table

POOLS = ("prefill", "decode")
GIVEN: dict[str, str | tuple[str, ...]] = {
    "draft_model": "org/draft",
    "draft_tokens": "7",
    "nvfp4_kv_dtype": "nvfp4_ds_mla",
    "low_latency_args": ("--additional-config", '{"decode_backend":"latency_specialized"}'),
    "kv_offload_bytes": "137438953472",
    "image_810e": "registry.example/ppu-810e:1",
    "image_m890": "registry.example/ppu-m890:1",
    "mi355x_agentx_args": (),
}
"""What an operator might give for each value that nobody has published."""


def choice(table: Table, cell: Cell, *, given: bool) -> Choice:
    """Return the choice of a cell, with the values that it needs or with none."""
    nodes = table.placements[cell.hardware, cell.strategy].pools
    pooled = len(nodes) > 1
    unknown = table.outcome(cell).unknown
    return Choice(
        model=table.read["model"],
        hardware=cell.hardware,
        strategy=cell.strategy,
        nodes=sum(nodes),
        features=table.subsets[cell.features],
        accept_preview=cell.hardware == "vr200",
        preset=None if cell.preset == NONE else cell.preset,
        dcp=None if cell.dcp == NONE else int(cell.dcp),
        kv_offload=None if cell.kv_offload == NONE else cell.kv_offload,
        pools={name: PoolChoice(nodes=size) for name, size in zip(POOLS, nodes, strict=True)}
        if pooled
        else None,
        values={name: value for name, value in GIVEN.items() if given and name in unknown},
    )


def changed(before: Choice, change: Entry) -> Choice:
    """Return a choice with fields changed as the table writes them."""
    fields = dict(change)
    if "pools" in fields:
        fields["pools"] = {name: PoolChoice(**pool) for name, pool in fields["pools"].items()}
        fields.setdefault("nodes", sum(pool.nodes or 0 for pool in fields["pools"].values()))
    if "advanced_args" in fields:
        fields["advanced_args"] = tuple(fields["advanced_args"])
    return replace(before, **fields)
