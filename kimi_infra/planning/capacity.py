"""What an engine's memory holds: weights, what the engine itself takes, and the rest as cache.

Where a number is missing the answer is what is missing, never an estimate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from fractions import Fraction

from kimi_infra.domain.capacity import Capacity
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import Launch
from kimi_infra.domain.recipe import CacheFacts
from kimi_infra.errors import Need
from kimi_infra.planning import capacity_basis, capacity_command
from kimi_infra.planning.capacity_command import BY_HAND, DRAFT, Command
from kimi_infra.planning.footprint import GB, PUBLISHED, Footprint


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
    command = capacity_command.read(launches[0], features)
    model = Footprint(facts=facts, published=PUBLISHED.get(launches[0].model_id))
    sharding = command.sharding
    split = sharding.tensor * sharding.pipeline
    token = model.token(*command.formats(facts))
    deepest = Fraction(-(-facts.layers // sharding.pipeline), facts.layers)
    answer = Capacity(
        hardware=profile.title,
        accelerators=max(1, nodes) * profile.gpus_per_node,
        sharding=sharding,
        memory=None if profile.vram_gb is None else Fraction(profile.vram_gb) * GB / profile.gpus_per_node,
        utilisation=command.utilisation,
        weights=model.weights(sharding),
        beside=model.beside,
        token=None if token is None else deepest * token / sharding.context,
        state=None if model.state is None else model.state / split,
        context=command.context(facts),
        missing=(),
        uncounted=("weights and cache of the draft model, of which nothing is published",)
        if DRAFT in command.flags
        else (),
        assumptions=(),
        remarks=(),
    )
    return dataclasses.replace(
        answer,
        missing=tuple(_missing(answer, model, command, profile)),
        assumptions=tuple(capacity_basis.assumptions(answer, model, command, profile)),
        remarks=tuple(capacity_basis.remarks(answer, command, profile)),
    )


def _missing(
    answer: Capacity, model: Footprint, command: Command, profile: HardwareProfile
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
        for name in BY_HAND
        if name in command.flags
    )
