"""What an engine's memory holds: weights, what the engine itself takes, and the rest as cache.

Where a number is missing the answer is what is missing, never an estimate.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from kimi_infra.domain.capacity import Assumption, Basis, Capacity, Figure, Sharding
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import Flag, Launch, Role
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import CacheFacts
from kimi_infra.errors import Fault, Need, SpecError
from kimi_infra.planning.footprint import GB, MODEL, PUBLISHED, UTILISATION, Footprint

T = TypeVar("T")


_DEFAULT = Provenance(origin=Origin.VLLM, source="config/cache.py, gpu_memory_utilization")

_TENSOR, _PIPELINE, _DATA = "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"
_CONTEXT, _EXPERT, _SHARE = (
    "--decode-context-parallel-size",
    "--enable-expert-parallel",
    "--gpu-memory-utilization",
)
_FORMAT, _DRAFT, _LENGTH = "--kv-cache-dtype", "--speculative-config", "--max-model-len"
_SHORT = {"-tp": _TENSOR, "-pp": _PIPELINE, "-dp": _DATA, "-dcp": _CONTEXT, "-ep": _EXPERT, "-sc": _DRAFT}
_OPEN = "<"
"""How a placeholder begins."""
_BY_HAND = ("--kv-cache-memory-bytes", "--num-gpu-blocks-override")
"""Flags that take the size of the cache out of the engine's own reckoning."""
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""Of ``--max-model-len`` (vllm: utils/argparse_utils.py)."""

_SEEN = {
    "810e": "reports name 96 GB a PPU: a node of 16, 1.5 TB, is less than K3's weights alone, two are more",
}
"""Hardware whose memory is not published -> what is told of it elsewhere; never a number of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """What one command says of its engine's memory."""

    flags: Mapping[str, Flag]
    """By full name; of a repeated one the last, as vLLM takes it."""
    values: Mapping[str, str]
    """The first value of each flag, empty where it takes none."""
    features: tuple[str, ...]
    open: bool
    """Whether a word that may change the memory is still to be given."""

    @property
    def sharding(self) -> Sharding:
        return Sharding(
            tensor=self._ranks(_TENSOR),
            pipeline=self._ranks(_PIPELINE),
            data=self._ranks(_DATA),
            context=self._ranks(_CONTEXT),
            expert=_EXPERT in self.flags,
        )

    @property
    def utilisation(self) -> Fraction:
        text = self.values.get(_SHARE)
        if text is None:
            return UTILISATION
        if not re.fullmatch(r"\d*\.?\d+", text) or not 0 < Fraction(text) <= 1:
            raise _refused(_SHARE, "not a part of the memory", text, "give a number above 0 and up to 1")
        return Fraction(text)

    def context(self, facts: CacheFacts) -> int:
        """Return the tokens of a full context: the model's, or fewer where the command says so."""
        # The public rules take the value -1 for a flag of its own, which leaves none here.
        text = self.values.get(_LENGTH) or "auto"
        if text.lower() in {"auto", "-1"}:
            return facts.context
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", text)
        tokens = int(Fraction(match[1]) * _SUFFIXES[match[2]]) if match else 0
        if tokens < 1:
            raise _refused(_LENGTH, "not a number of tokens", text, "give a whole number, or auto")
        return tokens

    def formats(self, facts: CacheFacts) -> tuple[str, str]:
        """Return the formats of latent and index keys: a feature's, else the flag's, else the model's own."""
        found = dict(facts.formats[name] for name in self.features if name in facts.formats)
        latent = self.stated_latent(facts) or next(iter(facts.latent_bytes))
        return latent, found.get("index", next(iter(facts.index_bytes)))

    def stated_latent(self, facts: CacheFacts) -> str | None:
        """Return the latent's format where a feature or the flag says it."""
        found = dict(facts.formats[name] for name in self.features if name in facts.formats)
        # Both spellings of FP8 take one byte; other variants of a name have a layout of their own.
        stated = re.sub(r"_e[45]m[23]$", "", self.values.get(_FORMAT, "auto"))
        return found.get("latent", None if stated == "auto" else stated)

    def _ranks(self, name: str) -> int:
        text = self.values.get(name, "1")
        if not re.fullmatch(r"[1-9]\d*", text):
            raise _refused(name, "not a number of ranks", text, "give a whole number above 0")
        return int(text)


def assess(
    facts: CacheFacts,
    profile: HardwareProfile,
    *,
    launches: Sequence[Launch],
    nodes: int,
    features: Sequence[str],
) -> Capacity:
    """Tell what one engine holds; of a prefill/decode cluster, ask once for each pool.

    Args:
        facts: the model's.
        profile: the kind of node.
        launches: commands of the engine's nodes, of which the first speaks for all.
        nodes: of the engine; 0 is a part of one.
        features: those switched on.

    Raises:
        SpecError: a size in the command is no number.
    """
    command = _command(launches[0], features)
    model = Footprint(facts=facts, published=PUBLISHED.get(launches[0].model_id))
    sharding = command.sharding
    split = sharding.tensor * sharding.pipeline
    token = model.token(*command.formats(facts))
    deepest = Fraction(-(-facts.layers // sharding.pipeline), facts.layers)
    answer = Capacity(
        hardware=profile.title,
        accelerators=max(1, nodes) * profile.gpus_per_node,
        sharding=sharding,
        memory=None if profile.vram_gb is None else Fraction(profile.vram_gb * GB, profile.gpus_per_node),
        utilisation=command.utilisation,
        weights=model.weights(sharding),
        beside=model.beside,
        token=None if token is None else deepest * token / sharding.context,
        state=None if model.state is None else model.state / split,
        context=command.context(facts),
        missing=(),
        uncounted=("weights and cache of the draft model, of which nothing is published",)
        if _DRAFT in command.flags
        else (),
        assumptions=(),
        remarks=(),
    )
    return dataclasses.replace(
        answer,
        missing=tuple(_missing(answer, model, command, profile)),
        assumptions=tuple(_assumptions(answer, model, command, profile)),
        remarks=tuple(_remarks(answer, command, profile)),
    )


def _command(launch: Launch, features: Sequence[str]) -> _Command:
    flags: dict[str, Flag] = {}
    values: dict[str, str] = {}
    still_open = False
    for flag in launch.flags:
        word, _, inline = flag.name.partition("=")
        name = _SHORT.get(word, word.replace("_", "-"))
        value = inline or "".join(flag.tokens[1:2])
        if word.startswith(_OPEN) or value.startswith(_OPEN):
            still_open = still_open or name != _FORMAT  # its feature says what it will be
            continue
        flags[name], values[name] = flag, value
    return _Command(flags=flags, values=values, features=tuple(features), open=still_open)


def _refused(flag: str, what: str, got: str, remedy: str) -> SpecError:
    return SpecError((Fault(where=flag, what=what, got=got, remedy=remedy),))


def _missing(
    answer: Capacity, model: Footprint, command: _Command, profile: HardwareProfile
) -> Iterator[Need]:
    if answer.memory is None:
        yield Need(
            where=f"taxonomy.yaml: hardware_profiles.{profile.key}.vram_gb",
            what=f"memory of one node of {profile.title}, which is not published; a host's own tool tells it",
        )
    if answer.token is None:
        formats = " and ".join(command.formats(model.facts))
        yield Need(where="x-cache", what=f"bytes of a token with latent and index keys in {formats}")
    if model.contradicted:
        yield Need(
            where="x-cache",
            what="bytes that go with the published tokens: a size derived from them is below zero",
        )
    if answer.beside is None:
        yield Need(
            where="x-cache",
            what="what a rank takes beside weights and cache: no figure of this model to derive it from",
        )
    if answer.state is None:
        yield Need(where="x-cache.state_bytes", what="bytes of a sequence's state")
    if answer.weights is None:
        yield Need(where="x-cache", what="share of the routed experts in the weights, which replicas split")
    yield from (
        Need(where=name, what="sets the size of the cache by hand, whatever there is room for")
        for name in _BY_HAND
        if name in command.flags
    )


def _assumptions(
    answer: Capacity, model: Footprint, command: _Command, profile: HardwareProfile
) -> Iterator[Assumption]:
    if profile.vram_gb is not None:
        yield _assumption(
            f"{profile.vram_gb} GB a node, split evenly over {profile.gpus_per_node}; a GB is 10^9 bytes",
            Origin.SIBLING,
            f"taxonomy, hardware_profiles.{profile.key}.vram_gb",
        )
    share = command.flags.get(_SHARE)
    yield Assumption(
        text=f"{float(answer.utilisation):g} of it is the engine's",
        provenance=share.provenance if share else _DEFAULT,
    )
    yield from _weights_assumptions(answer, model)
    if answer.beside is not None:
        yield _assumption(
            f"{_size(answer.beside)} a rank for activations, graphs and communication, on all hardware alike",
            Origin.DERIVED,
            "from the seed's 2.6M tokens",
        )
    if answer.token is not None:
        yield _token_assumption(answer, model.facts, command)
    if answer.state is not None:
        yield _state_assumption(answer, model.facts)


def _weights_assumptions(answer: Capacity, model: Footprint) -> Iterator[Assumption]:
    facts, sharding = model.facts, answer.sharding
    over = "all" if sharding.data == 1 else f"routed experts over all {sharding.ranks} ranks, all else"
    split = sharding.tensor * sharding.pipeline
    dealt = "; EP deals out whole experts" if sharding.expert else ""
    yield Assumption(
        text=f"{_size(facts.weights_bytes)} of weights, {over} split evenly over {split}{dealt}",
        provenance=_origin(facts, "weights_bytes"),
    )
    if sharding.data > 1 and model.published is not None:
        yield _assumption(
            f"{_size(2 * model.published.common)} of them are no routed expert's",
            Origin.DERIVED,
            "from the seed's 2.8T parameters, 104B of them active with 16 of 896 experts",
        )


def _token_assumption(answer: Capacity, facts: CacheFacts, command: _Command) -> Assumption:
    latent, index = command.formats(facts)
    origins = _origin(facts, f"latent_bytes.{latent}"), _origin(facts, f"index_bytes.{index}")
    dcp = answer.sharding.context
    each = "every TP rank holds all tokens" if dcp == 1 else f"every DCP rank holds 1/{dcp} of the tokens"
    default = "" if command.stated_latent(facts) else " by default"
    sizes = f"{facts.latent_bytes[latent]} {latent}{default} + {facts.index_bytes[index]} {index}"
    return Assumption(
        text=f"{facts.layers} layers x ({sizes}) bytes a token, latent and index key; {each}",
        provenance=origins[0]
        if origins[0] == origins[1]
        else dataclasses.replace(origins[0], source=f"{origins[0].source}; {origins[1]}"),
    )


def _state_assumption(answer: Capacity, facts: CacheFacts) -> Assumption:
    size = f"{_size(answer.state or 0)} a rank for each sequence"
    if facts.state_layers == 0 or facts.state_bytes is not None:
        return Assumption(
            text=f"{size}: state of {facts.state_layers} layers, split over TP and not over DCP",
            provenance=_origin(facts, "state_bytes"),
        )
    return _assumption(
        f"{size}, taken for state that TP splits and DCP does not; the state's own size is not known",
        Origin.DERIVED,
        "from the seed's 18.5M tokens with DCP8",
    )


def _remarks(answer: Capacity, command: _Command, profile: HardwareProfile) -> Iterator[str]:
    if answer.memory is None and profile.key in _SEEN:
        yield _SEEN[profile.key]
    idle = answer.accelerators - answer.sharding.ranks
    if idle > 0:
        yield f"{idle} of {answer.accelerators} accelerators are not used"
    if command.open:
        yield "flags that are still open are not reckoned with"


def _origin(facts: CacheFacts, name: str) -> Provenance:
    """Return who vouches for a field, or for the map that holds it."""
    return facts.provenance.get(name) or facts.provenance[name.partition(".")[0]]


def _assumption(text: str, origin: Origin, source: str) -> Assumption:
    return Assumption(text=text, provenance=Provenance(origin=origin, source=source))


def _size(size: Fraction | int) -> str:
    value = float(size)
    return f"{value / GB:,.1f} GB" if value >= GB else f"{value / 10**6:,.0f} MB"


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
        f"{_size(lacking)} an accelerator are neither weights nor cache of tokens",
        source,
    )
    yield _figure(
        "tokens, 8x B300, TP8, FP8",
        (said.tokens, _known(whole.tokens, whole), Basis.CALIBRATION),
        f"gives the {_size(beside)} a rank that are neither weights nor cache",
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
        f"gives the {_size(state)} a rank and sequence that DCP does not split,"
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
        f" {_size(extra)} more a rank beside weights and cache than on B300 would give it",
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
    sizes = {_TENSOR: 8, _CONTEXT: dcp}
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
