"""``kimi-infra recipes``: what can be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kimi_infra.cli import common, options
from kimi_infra.domain.recipe import Catalogue, Recipe, Variant
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import defaults, images
from kimi_infra.rendering import recipe_json, recipe_text

app = typer.Typer(help="What can be asked for.", no_args_is_help=True, add_completion=False)

Catalog = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Recipes in the public layout. Default: the shipped.")
]


@app.command("list")
def list_(as_json: common.Json = False, catalog: Catalog = None) -> None:
    """List recipes with their strategies and hardware; exit code 2 when one of them cannot be read."""
    with common.refusals():
        known = options.catalogue(catalog)
        faults: list[Fault] = []
        found = [recipe for key in sorted(known.recipes) for recipe in _readable(known, key, faults)]
        hardware = {recipe.key: _hardware(known, recipe) for recipe in found}
        written = recipe_json.listed if as_json else recipe_text.listed
        common.say(written(found, hardware), nl=False)
        if faults:
            raise SpecError(tuple(faults))


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(metavar="ID", help="ORG/REPO.")],
    as_json: common.Json = False,
    catalog: Catalog = None,
) -> None:
    """Show a recipe: features, placements, presets, rules, images, and what nobody has published."""
    with common.refusals():
        known = options.catalogue(catalog)
        found = known.recipe(recipe)
        written = recipe_json.shown if as_json else recipe_text.shown
        hardware = _hardware(known, found)
        runs = _images(known, found, hardware)
        common.say(written(found, hardware, _kv_offload(known, found), runs), nl=False)


def _readable(known: Catalogue, key: str, faults: list[Fault]) -> Sequence[Recipe]:
    try:
        return (known.recipe(key),)
    except SpecError as error:
        faults.extend(error.faults)
        return ()


def _hardware(known: Catalogue, recipe: Recipe) -> list[str]:
    """Return the hardware of a recipe's placements, or all that its variants can be asked for on."""
    if recipe.layouts is not None:
        return list(dict.fromkeys(layout.hardware for layout in recipe.layouts))
    variants = list(recipe.variants.values()) or [Variant()]
    offered = {it.key for variant in variants for it in defaults.offered_hardware(known, recipe, variant)}
    return [key for key in known.profiles if key in offered]


def _images(known: Catalogue, recipe: Recipe, hardware: Sequence[str]) -> list[recipe_text.Image]:
    return [
        recipe_text.Image(hardware=profile.key, variant=name, image=images.image(recipe, variant, profile))
        for name, variant in (recipe.variants or {"default": Variant()}).items()
        for profile in defaults.offered_hardware(known, recipe, variant)
        if profile.key in hardware
    ]


def _kv_offload(known: Catalogue, recipe: Recipe) -> list[str]:
    support = recipe.kv_offload_support
    options_ = (
        name
        for name, it in known.kv_options.items()
        if (support.get(name) == "verified" if it.requires_opt_in else support.get(name) != "unsupported")
    )
    return [*options_, *known.kv_stores]
