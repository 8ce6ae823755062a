"""The expected table as a page for readers: ``python -m tests.k31.table`` prints docs/k31-matrix.md."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tests.k31.expected import NONE, Cell, Outcome, Sentence, Table, table

FRONT = """\
# Kimi-K3.1-Pro: what renders and what is refused

Printed by `python -m tests.k31.table` from `tests/k31/expected.yaml`,
which was written from the two seed documents and not from the recipe.
`tests/k31/test_matrix.py` holds this page to the table, and the compiler to every cell.
A refusal is named by its sentence, *in italics*; the sentences stand at the end, in our words.

The product is {product}: {cells} cells, of which {rendered} render.
"""
PLACEMENTS = """\
## Placements

Nodes of each placement (prefill + decode with pools), and how many of its {each} cells render.
"""
OPTIONS = """\
## Options

What each option comes to on the placements that render; hardware alone stands for all of its placements.
"Open" is what it leaves open beyond what is open without it.
A combination renders where each of its parts does, and leaves open what its parts leave open.
"""
RESERVATIONS = """\
## Reservations

These render with a note.
"""
DESCRIBED = """\
## What the documents describe

Each of these renders; open is only what the documents leave unsaid.
"""
SENTENCES = """\
## Sentences
"""
STRATEGIES = {
    "single_node_tp": "TP on one node",
    "single_node_tep": "TEP on one node",
    "multi_node_tp": "TP on several",
    "multi_node_tep": "TEP on several",
    "pd_cluster": "prefill and decode",
}


def page(read: Table) -> str:
    """Return the whole page."""
    return "\n".join(
        (*_front(read), *_placements(read), *_options(read), *_described(read), *_sentences(read))
    )


def _front(read: Table) -> Iterator[str]:
    axes = read.read["product"]
    product = " x ".join(f"{len(words)} {axis}" for axis, words in axes.items())
    rendered = sum(read.outcome(cell).renders for cell in read.cells())
    yield FRONT.format(product=product, cells=len(read.cells()), rendered=rendered)


def _placements(read: Table) -> Iterator[str]:
    counts = Counter((it.hardware, it.strategy) for it in read.cells() if read.outcome(it).renders)
    each = len(read.cells()) // len(read.placements)
    yield PLACEMENTS.format(each=each)
    yield _row("", *STRATEGIES.values())
    yield _row(*["---"] * (len(STRATEGIES) + 1))
    for hardware in read.read["product"]["hardware"]:
        cells = []
        for strategy in STRATEGIES:
            placement = read.placements[hardware, strategy]
            nodes = " + ".join(str(number) for number in placement.pools)
            count = counts[hardware, strategy]
            cells.append(f"refused: *{placement.by.key}*" if placement.refused else f"{nodes}; {count}")
        yield _row(hardware, *cells)
    yield ""


def _options(read: Table) -> Iterator[str]:
    bare = [
        Cell(hardware=hardware, strategy=strategy, features=NONE)
        for (hardware, strategy), placement in read.placements.items()
        if not placement.refused
    ]
    yield OPTIONS
    yield _row("Option", "On", "Comes to")
    yield _row(*["---"] * 3)
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, change in _single(read):
        lines = tuple(_option(read, bare, change))
        alike.setdefault(lines, []).append(name)
    for lines, options in alike.items():
        for index, line in enumerate(lines):
            yield _row("" if index else ", ".join(options), *line)
    yield ""
    yield RESERVATIONS
    for cell in bare:
        placement = read.placements[cell.hardware, cell.strategy]
        if placement.note:
            beside = f", with KV offload `{placement.note_with}`" if placement.note_with else ""
            yield f"- {_where(cell)}{beside}: *{placement.note.key}*{_unless(read, cell)}"
    yield ""


def _single(read: Table) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each option by itself, with the axis on which it is chosen."""
    yield "nothing", {}
    for name, asked in read.subsets.items():
        if asked is not None and len(asked) == 1:
            yield f"`{name}`", {"features": name}
    yield "DCP 8", {"dcp": "8"}
    yield "KV offload `simple`", {"kv_offload": "simple"}
    for name in read.read["presets"]:
        yield f"preset `{name}`", {"preset": name}


def _option(read: Table, bare: list[Cell], change: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a pair for each thing that an option comes to somewhere: the places, the outcome."""
    lines: dict[str, list[Cell]] = {}
    for cell in bare:
        outcome = read.outcome(replace(cell, **change))
        already = read.outcome(cell).unknown if change else frozenset()
        lines.setdefault(_comes_to(outcome, already), []).append(cell)
    for text, where in lines.items():
        yield "everywhere" if len(lines) == 1 else _places(where, bare), text


def _places(cells: list[Cell], bare: list[Cell]) -> str:
    """Name placements; a kind of hardware by itself stands for all that render on it."""
    places = []
    for hardware in dict.fromkeys(cell.hardware for cell in cells):
        here = [cell.strategy for cell in cells if cell.hardware == hardware]
        every = sum(cell.hardware == hardware for cell in bare)
        places.append(hardware if len(here) == every else f"{hardware} ({', '.join(here)})")
    return ", ".join(places)


def _comes_to(outcome: Outcome, already: frozenset[str]) -> str:
    if outcome.reasons:
        return "refused: " + ", ".join(f"*{reason.sentence.key}*" for reason in outcome.reasons)
    values = ", ".join(f"`{name}`" for name in sorted(outcome.unknown - already))
    return f"renders; open: {values}" if values else "renders"


def _unless(read: Table, cell: Cell) -> str:
    preset = read.placements[cell.hardware, cell.strategy].unless_preset
    return f", unless with preset `{preset}`" if preset else ""


def _described(read: Table) -> Iterator[str]:
    yield DESCRIBED
    yield _row("Configuration", "Sentence", "Open")
    yield _row(*["---"] * 3)
    for cell, sentence, unknown in read.described():
        open_values = ", ".join(f"`{name}`" for name in sorted(unknown)) or "-"
        yield _row(f"{_where(cell)}{_chosen(cell)}", f"*{sentence.key}*", open_values)
    yield ""


def _where(cell: Cell) -> str:
    return f"{cell.hardware} {cell.strategy}"


def _chosen(cell: Cell) -> str:
    words = (
        "" if cell.features == "default" else f"features {cell.features}",
        "" if cell.dcp == NONE else f"DCP {cell.dcp}",
        "" if cell.kv_offload == NONE else f"offload {cell.kv_offload}",
        "" if cell.preset == NONE else f"preset {cell.preset}",
    )
    return "".join(f", {word}" for word in words if word)


def _sentences(read: Table) -> Iterator[str]:
    yield SENTENCES
    for sentence in read.sentences.values():
        yield _line(sentence)
    yield ""


def _line(sentence: Sentence) -> str:
    return f"- *{sentence.key}* ({sentence.source}): {sentence.says}."


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(page(table()))
