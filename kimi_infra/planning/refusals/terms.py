"""Whether a choice meets the terms of the publisher's rules (key ``x-rules``), and what he says of it."""

from __future__ import annotations

from collections.abc import Mapping

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import BASELINE, Recipe, Rule, Terms
from kimi_infra.planning.refusals.asked import Asked

Facts = Mapping[str, tuple[str, ...]]
"""Dimension -> the words of the choice; a dimension whose value is refused by itself is absent."""

NONE = "none"
"""What a rule calls a part of a choice that is not chosen."""
FLAGS = "flags"
"""The dimension that only a compiled command has."""
_PLACEMENT = frozenset({"hardware", "brand", "strategy"})


def facts(asked: Asked) -> Facts:
    """Return the words of a choice."""
    choice = asked.choice
    found = _options(choice, asked.features, asked.profile)
    if asked.strategy is not None:
        found["strategy"] = (asked.strategy.name,)
    if asked.variant is not None:
        found["variant"] = (choice.variant,)
    return found


def all_facts(choice: Choice, features: tuple[str, ...], profile: HardwareProfile | None) -> Facts:
    """Return the words of a choice whose names are not in doubt."""
    named = {"strategy": (choice.strategy,), "variant": (choice.variant,)}
    return {**_options(choice, features, profile), **named}


def _options(
    choice: Choice, features: tuple[str, ...], profile: HardwareProfile | None
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {
        "features": features or (NONE,),
        "dcp": (NONE if choice.dcp is None else str(choice.dcp),),
        "kv_offload": (choice.kv_offload or NONE,),
        "preset": (NONE if choice.preset is None or choice.preset == BASELINE else choice.preset,),
    }
    if profile is not None:
        found["hardware"], found["brand"] = (profile.key,), (profile.brand,)
    return found


def broken(rule: Rule, facts: Facts) -> bool:
    """Tell whether a choice breaks a rule."""
    if not meets(rule.when, facts):
        return False
    if rule.needs is not None:
        return all(dimension in facts for dimension in rule.needs.meets) and not meets(rule.needs, facts)
    return rule.excludes is not None and meets(rule.excludes, facts)


def meets(terms: Terms, facts: Facts) -> bool:
    """Tell whether a choice meets all of the terms."""
    for dimension, words in terms.meets.items():
        for word in facts.get(dimension, ()):
            if word in words:
                break
        else:
            return False
    return True


def sides(rule: Rule) -> tuple[Terms, ...]:
    """Return the terms of a rule."""
    return tuple(side for side in (rule.when, rule.needs, rule.excludes) if side is not None)


def on(rule: Rule, dimension: str) -> bool:
    """Tell whether a rule speaks of a part of a choice."""
    return any(dimension in side.meets for side in sides(rule))


def on_placement(rule: Rule) -> bool:
    """Tell whether a rule says which strategy goes with which hardware, and nothing else."""
    return all(dimension in _PLACEMENT for side in sides(rule) for dimension in side.meets)


def on_command(rule: Rule) -> bool:
    """Tell whether a rule can be judged on a compiled command only."""
    return on(rule, FLAGS)


def allowed(recipe: Recipe, profile: HardwareProfile, strategy: str) -> bool:
    """Tell whether no rule speaks against a strategy on a kind of hardware."""
    placed = {"hardware": (profile.key,), "brand": (profile.brand,), "strategy": (strategy,)}
    return not any(broken(rule, placed) and on_placement(rule) for rule in recipe.rules)


def sentences(recipe: Recipe, facts: Facts) -> tuple[str, ...]:
    """Return what is said of a placement: what it breaks, else what holds for its strategy or hardware."""
    met = [rule for rule in recipe.rules if meets(rule.when, facts) and on_placement(rule)]
    against = [rule for rule in met if broken(rule, facts)]
    closer = [rule for rule in met if "strategy" in rule.when.meets]
    return tuple(rule.because for rule in against or closer or met)


def said_of(recipe: Recipe, dimension: str, facts: Facts) -> tuple[str, ...]:
    """Return the first statement on a part of a choice that holds for its other parts."""
    for rule in recipe.rules:
        for terms in (rule.when, rule.excludes):
            if terms and dimension in terms.meets:
                others = {name: words for name, words in rule.when.meets.items() if name != dimension}
                if meets(Terms(meets=others), facts):
                    return (rule.because,)
    return ()
