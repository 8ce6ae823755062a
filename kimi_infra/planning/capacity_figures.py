"""Published figures of whole engines beside what the model of capacity makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from kimi_infra.domain.capacity import Basis, Capacity, Figure
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import Flag, Launch, Role
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import CacheFacts
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning.capacity import assess
from kimi_infra.planning.capacity_basis import size
from kimi_infra.planning.capacity_command import CONTEXT, TENSOR
from kimi_infra.planning.footprint import GB, MODEL, PUBLISHED

T = TypeVar("T")

_PAGE, _NEWS = "recipe page", "announcement"


def figures(facts: CacheFacts, profiles: Mapping[str, HardwareProfile]) -> tuple[Figure, ...]:
    """Set every published figure of the model beside its computed one.

    Raises:
        SpecError: the facts or a profile leave one of them open.
    """
    return (*_token_figures(facts, profiles), *_format_figures(facts, profiles), *_weights_figures(facts))


def _token_figures(facts: CacheFacts, profiles: Mapping[str, HardwareProfile]) -> Iterator[Figure]:
    said = PUBLISHED[MODEL]
    whole, split = (_tp8(facts, profiles["b300"], dcp=dcp) for dcp in (1, said.context))
    bare = dataclasses.replace(whole, beside=Fraction(0), state=Fraction(0))
    lacking = _known(bare.cache, whole) - said.tokens * _known(whole.token, whole)
    ideal = dataclasses.replace(split, beside=lacking, state=Fraction(0))
    beside, state = _known(whole.beside, whole), _known(whole.state, whole)
    source = f"{_PAGE}, Long context"
    yield _figure(
        "tokens, 8x B300, TP8, FP8: memory less weights",
        (said.tokens, _known(bare.tokens, whole), Basis.BYTES),
        f"{size(lacking)} an accelerator are neither weights nor cache of tokens",
        source,
    )
    yield _figure(
        "tokens, 8x B300, TP8, FP8",
        (said.tokens, _known(whole.tokens, whole), Basis.CALIBRATION),
        f"gives the {size(beside)} a rank that are neither weights nor cache",
        source,
    )
    yield _figure(
        "tokens, the same with DCP8, were all of the cache split",
        (said.sharded_tokens, _known(ideal.tokens, whole), Basis.PREDICTION),
        "no more than 8x is possible; KDA state is whole on each DCP rank, so it is less",
        source,
    )
    yield _figure(
        "tokens, the same with DCP8",
        (said.sharded_tokens, _known(split.tokens, whole), Basis.CALIBRATION),
        f"gives the {size(state)} a rank and sequence that DCP does not split,"
        f" {float(state / _known(whole.sequence, whole)):.1%} of a full context at TP8",
        source,
    )
    yield _figure(
        "DCP8 against TP8",
        (7, _known(split.tokens, whole) / _known(whole.tokens, whole), Basis.CALIBRATION),
        "the ratio of the two; the page rounds it",
        source,
    )


def _format_figures(facts: CacheFacts, profiles: Mapping[str, HardwareProfile]) -> Iterator[Figure]:
    said = PUBLISHED[MODEL]
    latent, both = ("nvfp4_kv_cache",), ("nvfp4_kv_cache", "mxfp4_index_keys")
    b300, gb300 = (_tp8(facts, profiles[key]) for key in ("b300", "gb300"))
    smaller, smallest = _tp8(facts, profiles["b300"], latent), _tp8(facts, profiles["gb300"], both)
    split = _tp8(facts, profiles["gb300"], both, dcp=said.context)
    ideal = dataclasses.replace(split, state=Fraction(0))
    extra = _known(split.cache, split) - 36 * _known(split.sequence, split)
    held = float(_known(gb300.contexts, gb300))
    yield _figure(
        "NVFP4 latent against FP8",
        (1.5, _ratio(smaller, b300), Basis.PREDICTION),
        f"bytes alone give {_byte_ratio(smaller, b300):.2f}; what is not split does not shrink either",
        f"{_PAGE}, NVFP4 KV cache",
    )
    yield _figure(
        "NVFP4 latent and MXFP4 index keys against FP8",
        (1.7, _ratio(smallest, gb300), Basis.PREDICTION),
        f"bytes alone give {_byte_ratio(smallest, gb300):.2f}; an MXFP4 key is 64 bytes and 4 of scales",
        _NEWS,
    )
    yield _figure(
        "full contexts, 8x GB300, TP8, FP8",
        (3, _known(gb300.full_contexts, gb300), Basis.PREDICTION),
        f"{held:.2f} before rounding down",
        _NEWS,
    )
    yield _figure(
        "full contexts, 8x GB300, TP8 with DCP8, NVFP4 and MXFP4",
        (36, float(_known(split.contexts, split)), Basis.PREDICTION),
        f"36 is about 3 x 1.7 x 7.1, from 3 contexts at TP8 and not {held:.2f};"
        f" {size(extra)} more a rank beside weights and cache than on B300 would give it",
        _NEWS,
    )
    yield _figure(
        "full contexts, the same, were all of the cache split",
        (36, float(_known(ideal.contexts, ideal)), Basis.PREDICTION),
        "shows what the state costs: the smaller the cache of tokens, the more it counts",
        _NEWS,
    )


def _weights_figures(facts: CacheFacts) -> Iterator[Figure]:
    said = PUBLISHED[MODEL]
    routed = said.parameters - said.common
    yield _figure(
        "GB of weights on each of 8 ranks, of K3",
        (195, facts.weights_bytes / said.tensor / GB, Basis.BYTES),
        "K3.1's own size is not published; its layout is K3's with an indexer added",
        "InferenceX",
        Origin.SIBLING,
    )
    yield _figure(
        "TB of weights, of K3",
        (
            facts.weights_bytes / 10**12,
            float(2 * said.common + routed * Fraction(17, 32)) / 10**12,
            Basis.BYTES,
        ),
        f"{float(said.common) / GB:.0f}B parameters at 2 bytes, the routed experts' at 17/32 (MXFP4, a scale"
        " byte for 32): holds the share of routed experts that replicas split",
        "InferenceX",
        Origin.SIBLING,
    )


def _figure(
    name: str, sizes: tuple[float, float, Basis], because: str, source: str, origin: Origin = Origin.SEED
) -> Figure:
    published, computed, basis = sizes
    provenance = Provenance(origin=origin, source=source)
    return Figure(
        name=name,
        published=published,
        computed=computed,
        basis=basis,
        because=because,
        provenance=provenance,
    )


def _tp8(
    facts: CacheFacts, profile: HardwareProfile, features: Sequence[str] = (), *, dcp: int = 1
) -> Capacity:
    """Assess an engine of eight ranks."""
    sizes = {TENSOR: 8, CONTEXT: dcp}
    here = Provenance(origin=Origin.DERIVED, source="published figures")
    flags = tuple(Flag(tokens=(name, str(size)), provenance=here) for name, size in sizes.items())
    launch = Launch(rank=0, role=Role.HEAD, model_id=MODEL, flags=flags, env=(), image=None)
    return assess(facts, profile, launches=(launch,), nodes=8 // profile.gpus_per_node, features=features)


def _known(value: T | None, capacity: Capacity) -> T:
    if value is None:
        faults = (
            Fault(where=need.where, what=f"not known: {need.what}", remedy="give it")
            for need in capacity.missing
        )
        raise SpecError(tuple(faults))
    return value


def _ratio(one: Capacity, other: Capacity) -> float:
    return _known(one.tokens, one) / _known(other.tokens, other)


def _byte_ratio(one: Capacity, other: Capacity) -> float:
    return float(_known(other.token, other) / _known(one.token, one))
