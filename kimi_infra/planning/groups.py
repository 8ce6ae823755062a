"""The groups of a command that all strategies share, in the public order, and the launch made of them."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_infra.domain.launch import EnvEntry, Launch, Role
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Settings, Word, Words
from kimi_infra.planning import connectors, images, merge
from kimi_infra.planning.selection import Selected

NOTHING = Settings()
PORTS = {Role.PREFILL: 8001, Role.DECODE: 8002}
"""Ports that the public strategy file gives the pools; an engine's own is vLLM's default."""
_PORT = 8000
_CONTEXT_PARALLEL = Provenance(
    origin=Origin.VLLM, source="engine/arg_utils.py, and the public format's own row"
)
_CHOSEN = Provenance(origin=Origin.OPERATOR, source="advanced_args")


def launch(chosen: Selected, *, role: Role, rank: int, words: Words, env: merge.Merged[EnvEntry]) -> Launch:
    """Merge a node's words and fill in its values."""
    filling = chosen.filling
    if filling.known:
        words = tuple(filling.words(words))
    if chosen.strict or (chosen.kv_option and chosen.cluster):
        words = connectors.composed(words)
    flags = merge.flags(words)
    return Launch(
        rank=rank,
        role=role,
        model_id=chosen.variant.model_id or chosen.recipe.model_id,
        flags=tuple(map(filling.flag, flags.kept)) if filling.known else flags.kept,
        env=env.kept,
        image=filling.image(images.image(chosen.recipe, chosen.variant, chosen.profile)),
        device_flags=images.device_flags(chosen.profile),
        port=PORTS.get(role, _PORT),
        replaced_flags=flags.replaced,
        replaced_env=env.replaced,
    )


def front(chosen: Selected) -> Iterator[Word]:
    """Yield the groups before the strategy's."""
    yield from chosen.recipe.base.args
    yield from chosen.variant.settings.args
    exact = chosen.variant.hardware_overrides.get(chosen.profile.key)
    if exact:
        yield from exact.settings.args


def hardware(chosen: Selected) -> Iterator[Settings]:
    """Yield the hardware group; a strategy's block ousts recipe's and variant's, even when it is empty."""
    profile = chosen.profile
    strategy_block = merge.by_generation(chosen.override.hardware_overrides, profile)
    if strategy_block is not None:
        yield strategy_block
    else:
        yield merge.by_generation(chosen.recipe.hardware_overrides, profile) or NOTHING
        variant_block = merge.by_generation(chosen.variant.hardware_overrides, profile)
        yield variant_block.settings if variant_block else NOTHING
    yield chosen.override.hardware_overrides.get(profile.key, NOTHING)


def hardware_args(chosen: Selected) -> Words:
    """Return the words of the hardware group."""
    return tuple(word for block in hardware(chosen) for word in block.args)


def tail(chosen: Selected) -> Iterator[Word]:
    """Yield the groups behind the hardware's, up to the KV offload."""
    choice, row = chosen.choice, chosen.recipe.dcp
    if choice.dcp is not None and (chosen.recipe.supports_dcp or row):
        preset = chosen.preset
        own = preset.provenance if preset and preset.dcp == choice.dcp else None
        size = own or Provenance(origin=Origin.OPERATOR, source="dcp")
        yield Word(text="--decode-context-parallel-size", provenance=_CONTEXT_PARALLEL)
        yield Word(text=str(choice.dcp), provenance=size)
        yield from row.args if row else ()
    if chosen.preset:
        yield from chosen.preset.args
    for text in choice.advanced_args:
        yield Word(text=text, provenance=_CHOSEN)
    yield from chosen.feature_args


def front_env(chosen: Selected) -> Iterator[EnvEntry]:
    """Yield the variables before the strategy's."""
    yield from chosen.recipe.base.env
    yield from chosen.variant.settings.env
    exact = chosen.variant.hardware_overrides.get(chosen.profile.key)
    if exact:
        yield from exact.settings.env


def filled_env(chosen: Selected, entries: Iterator[EnvEntry]) -> Iterator[EnvEntry]:
    """Fill in the values of variables."""
    return map(chosen.filling.entry, entries) if chosen.filling.known else entries
