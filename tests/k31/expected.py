"""Reads expected.yaml: what each cell of the product must come to. Knows nothing of recipes."""

from __future__ import annotations

import functools
import itertools
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

FILE = pathlib.Path(__file__).with_name("expected.yaml")
NONE = "none"
DEFAULT = ("tool_calling", "reasoning")
"""What the recipe page switches on when no features are asked for."""

Entry = Mapping[str, Any]
"""One entry of the file, as YAML reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration; ``none`` is what is not chosen."""

    hardware: str
    strategy: str
    features: str = "default"
    """Name of a subset."""
    dcp: str = NONE
    kv_offload: str = NONE
    preset: str = NONE

    @property
    def name(self) -> str:
        """Its coordinates in one word."""
        parts = (self.features, f"dcp{self.dcp}", self.kv_offload, self.preset)
        chosen = [part for part in parts if part not in (NONE, f"dcp{NONE}")]
        return "/".join((self.hardware, self.strategy, *chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """What a document says, in our words."""

    key: str
    source: str
    says: str
    words: tuple[str, ...]
    """A refusal that rests on it must hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a configuration is refused."""

    sentence: Sentence
    names: tuple[tuple[str, ...], ...]
    """The things that conflict, each with the words by which a refusal may name it."""
    works: tuple[str, ...]
    """Words of which the advice must hold one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a configuration must come to."""

    reasons: tuple[Reason, ...]
    unknown: frozenset[str]
    """Values that stay open in what renders."""
    note: Sentence | None
    """The publisher's reservation."""

    @property
    def renders(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A strategy on a kind of hardware."""

    pools: tuple[int, ...]
    """Nodes; two numbers are those of prefill and decode."""
    by: Sentence
    refused: bool
    note: Sentence | None
    unless_preset: str | None
    note_with: str | None
    """The KV offload with which alone the note holds."""

    def noted(self, cell: Cell) -> Sentence | None:
        """Return the reservation on a cell of this placement."""
        with_offload = self.note_with in {None, cell.kv_offload}
        return self.note if with_offload and self.unless_preset != cell.preset else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The whole file."""

    read: Entry
    subsets: Mapping[str, tuple[str, ...] | None]
    """Name of a subset of features -> what is asked for."""
    sentences: Mapping[str, Sentence]
    placements: Mapping[tuple[str, str], Placement]
    """By hardware and strategy."""

    def cells(self) -> tuple[Cell, ...]:
        """Return the whole product."""
        axes: Mapping[str, Any] = self.read["product"]
        return tuple(
            Cell(**{name: str(word) for name, word in zip(axes, words, strict=True)})
            for words in itertools.product(*axes.values())
        )

    def described(self) -> Iterator[tuple[Cell, Sentence, frozenset[str]]]:
        """Yield each configuration that the page describes, its sentence and what is unknown in it."""
        for entry in self.read["described"]:
            words = {name: str(word) for name, word in entry.items() if name not in ("by", "unknown")}
            yield Cell(**words), self.sentences[entry["by"]], frozenset(entry["unknown"])

    def beside(self) -> Iterator[tuple[Cell, Entry, Reason]]:
        """Yield refusals outside the product: the cell, what is changed in it, the reason."""
        for entry in self.read["beside"]:
            words = {name: entry[name] for name in ("hardware", "strategy", "features") if name in entry}
            cell = Cell(**words)
            yield cell, entry["change"], self._reason(entry, cell)

    def outcome(self, cell: Cell) -> Outcome:
        """Return what a cell must come to."""
        placement = self.placements[cell.hardware, cell.strategy]
        full = self._words(cell)
        asked = self._asked(cell)
        met = [entry for entry in self.read["refused"] if _meets(entry["when"], asked)]
        reasons = [self._reason(entry, cell) for entry in met]
        unknown = [entry["values"] for entry in self.read["unknown"] if _meets(entry["when"], full)]
        return Outcome(
            reasons=(*self._placement_reasons(cell, placement), *self._preset_reasons(cell), *reasons),
            unknown=frozenset(itertools.chain.from_iterable(unknown)),
            note=placement.noted(cell),
        )

    def commands(self, cell: Cell) -> Iterator[Entry]:
        """Yield what is said of a cell's commands."""
        words = self._words(cell)
        return (entry for entry in self.read["commands"] if _meets(entry["when"], words))

    def alone(self, cell: Cell) -> tuple[Cell, ...]:
        """Return a cell's parts: each of its options by itself on the same placement."""
        bare = Cell(hardware=cell.hardware, strategy=cell.strategy, features=NONE)
        features = [replace(bare, features=name) for name in self._features(cell)]
        rows = [replace(bare, dcp=cell.dcp), replace(bare, kv_offload=cell.kv_offload)]
        return (*features, *rows, replace(bare, preset=cell.preset))

    def _features(self, cell: Cell) -> tuple[str, ...]:
        asked = self.subsets[cell.features]
        return DEFAULT if asked is None else asked

    def _words(self, cell: Cell) -> Mapping[str, tuple[str, ...]]:
        """A cell's words by axis, with what its preset adds."""
        adds = self.read["presets"][cell.preset]["adds"] if cell.preset != NONE else {}
        return {
            "hardware": (cell.hardware,),
            "strategy": (cell.strategy,),
            "features": (*self._features(cell), *adds.get("features", ())),
            "dcp": (str(adds.get("dcp", cell.dcp)),),
            "kv_offload": (adds.get("kv_offload", cell.kv_offload),),
            "preset": (cell.preset,),
        }

    def _own(self, cell: Cell) -> Entry:
        """The placement of a cell's preset."""
        own: Entry = self.read["presets"][cell.preset]["own"]
        return own

    def _foreign(self, cell: Cell) -> bool:
        """Tell whether a cell's preset is another hardware's."""
        return cell.preset != NONE and cell.hardware != self._own(cell)["hardware"]

    def _asked(self, cell: Cell) -> Mapping[str, tuple[str, ...]]:
        """A cell's words by which it is judged: of a preset on other hardware without what that sets."""
        words = self._words(cell)
        if not self._foreign(cell):
            return words
        adds = self.read["presets"][cell.preset]["adds"]
        features = tuple(name for name in words["features"] if name not in adds["features"])
        return {**words, "features": features, "dcp": (NONE,), "kv_offload": (NONE,)}

    def _placement_reasons(self, cell: Cell, placement: Placement) -> Iterator[Reason]:
        if self._foreign(cell) and cell.strategy == self._own(cell)["strategy"]:
            return
        if placement.refused:
            rendered = [key for key, it in self.placements.items() if not it.refused]
            here = [strategy for hardware, strategy in rendered if hardware == cell.hardware]
            there = [hardware for hardware, strategy in rendered if strategy == cell.strategy]
            names = ((cell.hardware,), (cell.strategy,))
            preset = self._own(cell).values() if cell.preset != NONE else ()
            yield Reason(sentence=placement.by, names=names, works=tuple(preset) or (*here, *there))

    def _preset_reasons(self, cell: Cell) -> Iterator[Reason]:
        if cell.preset != NONE and (cell.hardware, cell.strategy) != tuple(self._own(cell).values()):
            entry = self.read["presets"][cell.preset]["elsewhere"]
            yield self._reason({**entry, "by": entry["refused"]}, cell)

    def _reason(self, entry: Entry, cell: Cell) -> Reason:
        names = (text.format(hardware=cell.hardware, strategy=cell.strategy) for text in entry["names"])
        works = tuple(entry["works"].split("|"))
        return Reason(
            sentence=self.sentences[entry["by"]],
            names=tuple(tuple(name.split("|")) for name in names),
            works=tuple(word for word in works if self._may_be_advised(word, cell.hardware)),
        )

    def _may_be_advised(self, word: str, hardware: str) -> bool:
        """Tell whether a word is none of a strategy that does not render on the hardware at all."""
        placement = self.placements.get((hardware, word))
        return placement is None or not placement.refused


@functools.cache
def table() -> Table:
    """Return the table."""
    read = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    sentences = {
        key: Sentence(key=key, source=it["from"], says=it["says"], words=tuple(it["words"]))
        for key, it in read["sentences"].items()
    }
    subsets = read["product"]["features"]
    return Table(
        read=read,
        subsets={key: None if names is None else tuple(names) for key, names in subsets.items()},
        sentences=sentences,
        placements={
            (hardware, strategy): _placement(it, sentences)
            for hardware, strategies in read["placements"].items()
            for strategy, it in strategies.items()
        },
    )


def _placement(read: Entry, sentences: Mapping[str, Sentence]) -> Placement:
    return Placement(
        pools=tuple(read["pools"]) if "pools" in read else (read["nodes"],),
        by=sentences[read.get("refused") or read["by"]],
        refused="refused" in read,
        note=sentences[read["note"]] if "note" in read else None,
        unless_preset=read.get("unless_preset"),
        note_with=read.get("note_with"),
    )


def _meets(when: Entry, words: Mapping[str, tuple[str, ...]]) -> bool:
    """Tell whether a cell has one of the words asked for on every axis."""
    for axis, asked in when.items():
        wanted = asked if isinstance(asked, list) else [asked]
        if not {str(word) for word in wanted} & set(words[axis]):
            return False
    return True
