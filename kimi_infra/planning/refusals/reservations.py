"""What the publisher says against a choice without ruling it out."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Recipe
from kimi_infra.planning.refusals import asked, terms


def notes(recipe: Recipe, choice: Choice, profile: HardwareProfile | None = None) -> tuple[str, ...]:
    """Return the reservations on a choice's placement, and on its hardware where the profile is given."""
    return tuple(dict.fromkeys(_notes(recipe, choice, profile)))


def _notes(recipe: Recipe, choice: Choice, profile: HardwareProfile | None) -> Iterator[str]:
    if profile is not None and profile.preview:
        yield f"hardware {profile.key} is a preview, published as neither tuned nor verified"
    for layout in recipe.layouts or ():
        ours = (layout.strategy, layout.hardware) == (choice.strategy, choice.hardware)
        if ours and layout.note and (layout.unless_preset is None or layout.unless_preset != choice.preset):
            yield layout.note
    if recipe.reservations:
        facts = terms.all_facts(choice, asked.features(recipe, choice), profile)
        yield from (it.note for it in recipe.reservations if terms.meets(it.when, facts))
