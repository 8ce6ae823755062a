"""Which hardware, strategies and variants a recipe offers."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.recipe import Catalogue, Recipe, Strategy, Variant
from kimi_infra.planning import defaults, images, merge

_DEFAULT = "default"


def objection(recipe: Recipe, name: str, variant: Variant | None, profile: HardwareProfile) -> str | None:
    """Return why a recipe's variant is not offered on a kind of hardware, None where it is."""
    key = profile.key
    if recipe.hardware_marks.get(key) == "unsupported":
        return f"{recipe.key} is not offered on {key}"
    if variant and variant.supported_hardware and key not in variant.supported_hardware:
        whose = recipe.key if name == _DEFAULT else f"variant {name} of {recipe.key}"
        return f"{whose} is not offered on {key}"
    if profile.restricted and key not in recipe.hardware_marks:
        return f"hardware {key} is offered only by recipes that name it, and {recipe.key} does not"
    needed = defaults.constraint(variant) if variant else None
    if needed and not needed.fits(profile):
        kind = " ".join(filter(None, (needed.brand, needed.generation)))
        precision = variant.precision if variant else ""
        return f"variant {name} ({precision}) needs {kind}, and {key} is {profile.brand} {profile.generation}"
    if not images.compiled(profile):
        return f"image and devices of {profile.brand} hardware such as {key} are not known"
    return None


def supported(recipe: Recipe, found: Strategy, profile: HardwareProfile) -> bool:
    """Tell whether an offered strategy works on a kind of hardware: a listed one unless it is opted out."""
    mark = merge.by_hardware(recipe.strategy_hardware.get(found.name, {}), profile)
    return mark != "unsupported" if found.name in recipe.strategies else mark == "supported"


def strategies(catalogue: Catalogue, recipe: Recipe, profile: HardwareProfile) -> Iterator[str]:
    """Yield the strategies that may be asked for on a kind of hardware, in the recipe's order."""
    described = {it.strategy for it in recipe.layouts or () if it.hardware == profile.key}
    for name in recipe.offered_strategies:
        found = catalogue.strategies.get(name)
        if found and supported(recipe, found, profile) and (recipe.layouts is None or name in described):
            yield name
