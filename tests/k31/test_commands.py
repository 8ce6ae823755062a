"""The commands of every cell that renders: what the documents say of them, and who vouches for what."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Mapping

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.launch import Launch, Resolution
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.planning import resolve
from tests.k31 import choices, expected
from tests.k31.expected import Cell, Entry

pytestmark = pytest.mark.compiler

TABLE = expected.table()
PAGE = pathlib.Path(__file__).parents[1] / "golden" / "render" / "seed"
"""The recipe page's own commands."""
SAID = frozenset({"VLLM_SSM_CONV_STATE_LAYOUT", "DS", "ppu_deep_gemm_w4a16"})
"""Words that the page's guide spells, beside its commands."""
ALONE = frozenset({Origin.UNKNOWN, Origin.MEASURED})


@functools.cache
def rendered() -> Mapping[Cell, Resolution]:
    """All cells that render, without any value given."""
    catalogue = recipes.load_catalogue()
    return {
        cell: resolve.resolve(catalogue, choices.choice(TABLE, cell, given=False))
        for cell in TABLE.cells()
        if TABLE.outcome(cell).renders
    }


def wrong(entry: Entry, launch: Launch) -> Iterator[str]:
    """What a command lacks of an entry, or holds against it."""
    if entry.get("pool", launch.role.value) != launch.role.value:
        return
    command = " ".join(launch.argv)
    env = {f"{it.name}={it.value}" for it in launch.env}
    yield from (f"lacks {text}" for text in entry.get("has", ()) if text not in command)
    yield from (f"has {text}" for text in entry.get("lacks", ()) if text in command)
    yield from (f"lacks {text}" for text in entry.get("env", ()) if text not in env)
    if launch.image != entry.get("image", launch.image):
        yield f"runs {launch.image}"


def test_commands_hold_what_the_documents_say() -> None:
    """Sizes, images, kernels, connectors and layouts are those of the sentences, on every node."""
    found = {
        (cell.name, launch.role.value, launch.rank): faults
        for cell, resolution in rendered().items()
        for launch in resolution.launches
        if (faults := [fault for it in TABLE.commands(cell) for fault in wrong(it, launch)])
    }
    assert found == {}


def test_every_entry_on_commands_is_put_to_use() -> None:
    """No entry of the table speaks of a cell that never renders."""
    used = {id(entry) for cell in rendered() for entry in TABLE.commands(cell)}
    assert [entry for entry in TABLE.read["commands"] if id(entry) not in used] == []


def test_each_cell_has_as_many_nodes_as_its_placement() -> None:
    """One command a node, ranks in order, prefill before decode; a router stands before pools only."""
    for cell, resolution in rendered().items():
        pools = TABLE.placements[cell.hardware, cell.strategy].pools
        ranks = [launch.rank for launch in resolution.launches]
        assert ranks == [rank for size in pools for rank in range(size)], cell.name
        assert (resolution.router is not None) == (len(pools) > 1), cell.name


def test_no_flag_and_no_variable_twice() -> None:
    """Above all one --kv-transfer-config: a second one would drop the first in silence."""
    for cell, resolution in rendered().items():
        for launch in resolution.launches:
            names = [flag.name for flag in launch.flags] + [entry.name for entry in launch.env]
            assert len(names) == len(set(names)), cell.name


def test_the_page_is_claimed_only_for_words_that_it_prints() -> None:
    """A flag or variable of origin seed is in the page's own commands, or spelled in its guide."""
    printed = set(SAID)
    for file in PAGE.glob("*.txt"):
        printed |= set(file.read_text().replace("=", " ").split())
    claimed = {
        word
        for word, provenance in tokens()
        if provenance.origin is Origin.SEED
        and "SimpleCPUOffloadConnector" not in word
        and word != "--kv-transfer-config"
    }
    assert claimed - printed == set()


def test_nobody_is_asked_to_vouch_for_the_recipe() -> None:
    """Without a given value, the operator vouches for what he chose only: the size of DCP."""
    asked = {words for words, provenance in vouched() if provenance.origin is Origin.OPERATOR}
    assert asked <= {("--decode-context-parallel-size", "8")}


def test_open_values_are_marked_as_such() -> None:
    """What holds a placeholder is unknown or measured, and what is unknown or measured holds one."""
    for words, provenance in vouched():
        holds = any("<operator:" in word or "<measured:" in word for word in words)
        assert holds == (provenance.origin in ALONE), words


def tokens() -> Iterator[tuple[str, Provenance]]:
    """Every word of every command and variable, with its own origin."""
    for resolution in rendered().values():
        for launch in resolution.launches:
            for flag in launch.flags:
                yield from zip(flag.tokens, flag.token_provenances, strict=True)
            for entry in launch.env:
                yield from ((text, entry.provenance) for text in (entry.name, entry.value))


@functools.cache
def vouched() -> frozenset[tuple[tuple[str, ...], Provenance]]:
    """Every flag and variable of every cell, with its origin."""
    launches = [launch for resolution in rendered().values() for launch in resolution.launches]
    flags = {
        (flag.tokens, flag.value_provenance or flag.provenance)
        for launch in launches
        for flag in launch.flags
    }
    return frozenset(flags | {((it.name, it.value), it.provenance) for one in launches for it in one.env})
