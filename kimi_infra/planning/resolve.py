"""Recipe + choice → what each node runs, in the recipe page's own terms; or every reason why not."""

from __future__ import annotations

import dataclasses

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import SpecError
from kimi_infra.planning import compose, presets, refusals


def resolve(catalogue: Catalogue, choice: Choice) -> Resolution:
    """Compile a choice; nothing is dropped in silence.

    Raises:
        SpecError: every reason for which the choice is refused; a fault's place is a field of
            :class:`~kimi_infra.domain.inventory.Choice`, for example ``strategy`` or ``features[0]``.
    """
    laid = presets.expanded(catalogue, choice)
    faults = refusals.faults(catalogue, laid)
    if faults:
        raise SpecError(faults)
    found = compose.compose(catalogue, laid, strict=True)
    late = refusals.after(catalogue, laid, found)
    if late:
        raise SpecError(late)
    return dataclasses.replace(found, notes=_notes(catalogue, laid))


def as_published(catalogue: Catalogue, choice: Choice) -> Resolution:
    """Compile a choice in the manner of the public page, which leaves out what does not fit.

    The warnings of the result are what :func:`resolve` would have refused.

    Raises:
        SpecError: the recipe is unknown, cannot be read, or belongs to the page's other resolver (omni).
    """
    recipe = catalogue.recipe(choice.model)
    if recipe.omni:
        raise SpecError(refusals.faults(catalogue, choice))
    laid = presets.expanded(catalogue, choice)
    warnings = refusals.faults(catalogue, laid)
    found = compose.compose(catalogue, laid, strict=False)
    return dataclasses.replace(
        found,
        notes=_notes(catalogue, laid),
        warnings=(*warnings, *refusals.after(catalogue, laid, found)),
    )


def _notes(catalogue: Catalogue, choice: Choice) -> tuple[str, ...]:
    return refusals.notes(catalogue.recipe(choice.model), choice, catalogue.profiles.get(choice.hardware))
