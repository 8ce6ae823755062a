"""Whether hardware, strategy and variant are known and offered."""

from __future__ import annotations

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.errors import Fault
from kimi_infra.planning.refusals import nearest, offers, wording
from kimi_infra.planning.refusals.asked import Asked


def hardware(asked: Asked) -> Fault | None:
    """Return why the hardware cannot be had, None where it can."""
    choice, recipe, profile = asked.choice, asked.recipe, asked.profile
    if profile is None:
        return wording.unknown("hardware", "hardware", choice.hardware, asked.catalogue.profiles)
    what = offers.objection(recipe, choice.variant, asked.variant, profile)
    if what is None:
        return None
    variants = [
        f"variant {name}"
        for name, other in recipe.variants.items()
        if asked.variant and other is not asked.variant and not offers.objection(recipe, name, other, profile)
    ]
    works = nearest.hardware(asked)
    remedies = [*variants[:1], *([wording.any_of(works)] if works else [])]
    remedy = f"choose {', or hardware '.join(remedies)}" if remedies else "choose another model"
    return wording.fault("hardware", what, choice.hardware, remedy)


def strategy(asked: Asked, profile: HardwareProfile | None) -> Fault | None:
    """Return why the strategy cannot be had, None where it can; without hardware, whether it can anywhere."""
    name, recipe, found = asked.choice.strategy, asked.recipe, asked.strategy
    offered = recipe.offered_strategies
    if found is None and name not in offered:
        return wording.unknown("strategy", "strategy", name, offered)
    if name not in offered:
        what = f"{recipe.key} does not offer strategy {name}"
    elif found is None:
        what = f"{recipe.key} offers strategy {name}, and the catalogue has no file of it"
    elif profile is None or offers.supported(recipe, found, profile):
        return None
    else:
        what = f"strategy {name} is not supported on hardware {profile.key}"
    works = nearest.strategies(asked, profile)
    remedy = f"choose {wording.any_of(works)}" if works else nearest.remedy(asked)
    return wording.fault("strategy", what, name, remedy)
