"""A preset laid over a choice."""

from __future__ import annotations

import dataclasses

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Catalogue, Preset


def chosen(catalogue: Catalogue, choice: Choice) -> Preset | None:
    """Return the preset that a choice names, None when it names none that is known."""
    if choice.preset is None or choice.model not in catalogue.recipes:
        return None
    return catalogue.recipe(choice.model).presets.get(choice.preset)


def expanded(catalogue: Catalogue, choice: Choice) -> Choice:
    """Return the choice with what its preset adds: features, context parallelism and KV offload.

    Hardware, strategy and nodes stay the operator's; where they are not the preset's, that is refused.
    """
    preset = chosen(catalogue, choice)
    if preset is None:
        return choice
    recipe = catalogue.recipe(choice.model)
    own = choice.features
    if own is None:
        own = recipe.default_features(choice.strategy, choice.hardware, choice.variant)
    return dataclasses.replace(
        choice,
        features=(*own, *(name for name in preset.features if name not in own)),
        dcp=preset.dcp if choice.dcp is None else choice.dcp,
        kv_offload=preset.kv_offload if choice.kv_offload is None else choice.kv_offload,
    )
