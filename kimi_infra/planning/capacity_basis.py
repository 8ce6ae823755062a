"""What an answer on capacity rests on, in words, each with who vouches for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from fractions import Fraction

from kimi_infra.domain.capacity import Assumption, Capacity
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import CacheFacts
from kimi_infra.planning.capacity_command import SHARE, Command
from kimi_infra.planning.footprint import GB, Footprint

_DEFAULT = Provenance(origin=Origin.VLLM, source="config/cache.py, gpu_memory_utilization")

_SEEN: Mapping[str, str] = {
    "810e": "reports name 96 GB a PPU: a node of 16, 1.5 TB, is less than K3's weights alone, two are more",
    "m890": "reports name 147456 MiB a PPU: a node of 8, 1.2 TB, is less than K3's weights, two are more",
}
"""Hardware whose memory is not published -> what is told of it elsewhere; never a number of ours."""


def assumptions(
    answer: Capacity, model: Footprint, command: Command, profile: HardwareProfile
) -> Iterator[Assumption]:
    """Yield what the numbers of an answer rest on."""
    if profile.vram_gb is not None:
        yield _assumption(
            f"{profile.vram_gb} GB a node, split evenly over {profile.gpus_per_node}; a GB is 10^9 bytes",
            Origin.SIBLING,
            f"taxonomy, hardware_profiles.{profile.key}.vram_gb",
        )
    share = command.flags.get(SHARE)
    yield Assumption(
        text=f"{float(answer.utilisation):g} of it is the engine's",
        provenance=share.provenance if share else _DEFAULT,
    )
    yield from _weights_assumptions(answer, model)
    if answer.beside is not None:
        yield _assumption(
            f"{size(answer.beside)} a rank for activations, graphs and communication, on all hardware alike",
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
        text=f"{size(facts.weights_bytes)} of weights, {over} split evenly over {split}{dealt}",
        provenance=_origin(facts, "weights_bytes"),
    )
    if sharding.data > 1 and model.published is not None:
        yield _assumption(
            f"{size(2 * model.published.common)} of them are no routed expert's",
            Origin.DERIVED,
            "from the seed's 2.8T parameters, 104B of them active with 16 of 896 experts",
        )


def _token_assumption(answer: Capacity, facts: CacheFacts, command: Command) -> Assumption:
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
    each = f"{size(answer.state or 0)} a rank for each sequence"
    if facts.state_layers == 0 or facts.state_bytes is not None:
        return Assumption(
            text=f"{each}: state of {facts.state_layers} layers, split over TP and not over DCP",
            provenance=_origin(facts, "state_bytes"),
        )
    return _assumption(
        f"{each}, taken for state that TP splits and DCP does not; the state's own size is not known",
        Origin.DERIVED,
        "from the seed's 18.5M tokens with DCP8",
    )


def remarks(answer: Capacity, command: Command, profile: HardwareProfile) -> Iterator[str]:
    """Yield what is worth knowing beside the numbers."""
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


def size(taken: Fraction | int) -> str:
    """Return bytes for people."""
    value = float(taken)
    return f"{value / GB:,.1f} GB" if value >= GB else f"{value / 10**6:,.0f} MB"
