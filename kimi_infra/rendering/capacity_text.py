"""Capacity for people: lines of a plan, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from kimi_infra.domain.capacity import Capacity, Figure

_GB = 10**9


def lines(capacity: Capacity) -> tuple[str, ...]:
    """Return verdict, cache, memory and what they rest on; twelve lines at most."""
    found = [f"fits: {_verdict(capacity)}"]
    if capacity.fits:
        found.append(f"KV cache: {_cache(capacity)}")
    found.append(f"each accelerator: {_memory(capacity)}")
    found += [f"- {assumption}" for assumption in capacity.assumptions]
    found += [f"not counted: {'; '.join(capacity.uncounted)}"] if capacity.uncounted else []
    found += [f"note: {'; '.join(capacity.remarks)}"] if capacity.remarks else []
    return tuple(found)


def figures(found: Sequence[Figure]) -> str:
    """Return published figures beside computed ones as a table."""
    return _table(
        ("Figure", "Published", "Computed", "Deviation", "Kind", "Why"),
        (
            (
                figure.name,
                f"{_number(figure.published)} ({figure.provenance})",
                _number(figure.computed),
                f"{figure.deviation:+.1%}",
                figure.basis.value,
                figure.because,
            )
            for figure in found
        ),
    )


def placements(found: Sequence[tuple[str, Capacity]]) -> str:
    """Return engines, each with its name, as a table."""
    return _table(
        ("Engine", "Fits", "Weights", "Cache", "Tokens", "Full contexts"),
        (
            (
                name,
                _verdict(capacity),
                _gb(capacity.weights),
                _gb(None if capacity.missing else capacity.cache),
                *_held(capacity),
            )
            for name, capacity in found
        ),
    )


def _verdict(capacity: Capacity) -> str:
    ranks, accelerators = capacity.sharding.ranks, capacity.accelerators
    if ranks > accelerators:
        return f"no, {ranks} ranks for {accelerators} accelerators"
    if capacity.margin is None:
        return f"not known: {'; '.join(f'{need.what} ({need.where})' for need in capacity.missing)}"
    if capacity.margin < 0:
        return f"no, {_gb(-capacity.margin)} an accelerator short of one full context"
    unless = " before what is not counted" if capacity.uncounted else ""
    return f"yes, {_gb(capacity.margin)} an accelerator beyond one full context{unless}"


def _cache(capacity: Capacity) -> str:
    most = "at most " if capacity.uncounted else ""
    replicas = capacity.sharding.data
    over = f" over {replicas} replicas" if replicas > 1 else ""
    contexts = f"{capacity.full_contexts} full contexts of {capacity.context:,} ({_decimal(capacity)})"
    return f"{most}{capacity.tokens:,} tokens{over}, {contexts}"


def _held(capacity: Capacity) -> tuple[str, str]:
    if capacity.fits is None:
        return "not known", "not known"
    if not capacity.fits:
        return "none", "none"
    most = "at most " if capacity.uncounted else ""
    return f"{most}{capacity.tokens:,}", f"{most}{capacity.full_contexts} ({_decimal(capacity)})"


def _decimal(capacity: Capacity) -> str:
    return f"{float((capacity.contexts or 0) * capacity.sharding.data):.2f}"


def _memory(capacity: Capacity) -> str:
    if capacity.memory is None:
        return f"memory not known, weights {_gb(capacity.weights)}"
    usable = capacity.memory * capacity.utilisation
    share = f"{_gb(capacity.memory)} x {float(capacity.utilisation):g} = {_gb(usable)}"
    parts = {"weights": capacity.weights, "other": capacity.beside, "cache": capacity.cache}
    return f"{share}: {', '.join(f'{name} {_gb(size)}' for name, size in parts.items())}"


def _gb(size: Fraction | None) -> str:
    return "not known" if size is None else f"{float(size) / _GB:,.1f} GB"


def _number(value: float) -> str:
    if value >= 10**6:
        return f"{value / 10**6:,.2f}M"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(_row(cells) for cells in _cells(head, rows))


def _cells(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    yield head
    yield ("---",) * len(head)
    yield from rows


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |\n"
