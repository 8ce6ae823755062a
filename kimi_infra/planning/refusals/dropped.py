"""What was asked for and stands in no command: values that nothing uses, flags that a later one ousts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Flag, Launch, Resolution
from kimi_infra.domain.recipe import Feature, Words
from kimi_infra.errors import Fault
from kimi_infra.planning import compose, presets
from kimi_infra.planning.refusals import checks, settings, wording
from kimi_infra.planning.refusals.asked import Asked


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Giver:
    """The part of a choice that gave a flag."""

    where: str
    name: str
    own: bool = False
    """Whether the operator wrote the flag himself."""


def values(asked: Asked, resolution: Resolution) -> Iterator[Fault]:
    """Yield the values that are given and that no command asked for."""
    known = {*asked.recipe.values, *asked.catalogue.values}
    for name, given in asked.choice.values.items():
        if name in known and name not in resolution.used:
            yield _unused(asked, name, given)


def flags(asked: Asked, launch: Launch) -> Iterator[Fault]:
    """Yield the flags of the operator's that another ousts, and JSON of one part ousted by another's."""
    for old in launch.replaced_flags:
        new = next((flag for flag in launch.flags if flag.name == old.name), old)
        if new.tokens != old.tokens:
            yield from _ousted(asked, old, new)


def _unused(asked: Asked, name: str, given: str | tuple[str, ...]) -> Fault:
    users = tuple(it for it in _users(asked, f"<value:{name}>") if it[1] != asked.choice)
    works = [user for user, other in users if _uses(asked, other, name)]
    what = "nothing in this choice uses it"
    if users and not works:
        what += f", only {wording.any_of(user for user, _ in users[: wording.SHOWN])} would"
    instead = f"choose {wording.any_of(works[: wording.SHOWN])}, or " if works else ""
    got = given if isinstance(given, str) else " ".join(given)
    return wording.fault(f"values.{name}", what, got, f"{instead}leave it out")


def _uses(asked: Asked, other: Choice, name: str) -> bool:
    """Tell whether another choice is allowed and does use a value."""
    if checks.faults(asked.catalogue, other):
        return False
    return name in compose.compose(asked.catalogue, other, strict=True).used


def _users(asked: Asked, mark: str) -> Iterator[tuple[str, Choice]]:
    """Yield what would use a value: its name, and the choice with it."""
    recipe, catalogue, choice = asked.recipe, asked.catalogue, asked.choice
    for field, parts in (
        ("feature", recipe.features),
        ("preset", recipe.presets),
        ("kv_offload", {**catalogue.kv_options, **catalogue.kv_stores}),
        ("variant", recipe.variants),
        ("hardware", {**recipe.hardware_overrides, **_by_hardware(asked)}),
        ("strategy", {**catalogue.strategies, **recipe.strategy_overrides}),
    ):
        for name, part in parts.items():
            if mark in repr(part):
                yield f"{field} {name}", _with(asked, field, name)
    for size in recipe.dcp.sizes if recipe.dcp and mark in repr(recipe.dcp) else ():
        yield f"dcp {size}", dataclasses.replace(choice, dcp=size)


def _by_hardware(asked: Asked) -> Mapping[str, object]:
    return asked.variant.hardware_overrides if asked.variant else {}


def _with(asked: Asked, field: str, name: str) -> Choice:
    choice = asked.choice
    if field == "feature":
        features = asked.features if name in asked.features else (*asked.features, name)
        return dataclasses.replace(choice, features=features)
    changes: dict[str, str] = {field: name}
    return presets.expanded(asked.catalogue, dataclasses.replace(choice, **changes))  # type: ignore[arg-type]


def _ousted(asked: Asked, old: Flag, new: Flag) -> Iterator[Fault]:
    """Yield the fault of a flag that another one ousts, where that is not the recipe's own order."""
    # Values are filled in only in what stays.
    loser, winner = _giver(asked, old, old.tokens), _giver(asked, new, (new.name,))
    if loser is not None and loser.own:
        yield _own(old, new, loser, winner)
    elif winner is not None and loser != winner and _lost(old, new):
        if winner.own:
            yield _by_own(old, new, loser, winner)
        elif loser is not None:
            remedy = f"leave {loser.name} or {winner.name} out"
            yield wording.fault(winner.where, _dropped(old, new, loser, winner), _text(new), remedy)


def _own(old: Flag, new: Flag, loser: _Giver, winner: _Giver | None) -> Fault:
    """Build the fault of a flag that the operator wrote and that goes under."""
    remedy = f"leave {old.name} out of {loser.name}"
    if winner is not None and winner.where == loser.where:
        remedy = f"give {old.name} once"
    elif winner is not None and winner.own:
        remedy += f", or out of {winner.name}"
    elif winner is not None:
        keys = wording.all_of(tuple(_keys(new))) if _lost(old, new) else ""
        put = f"put {keys} into the {old.name} of {loser.name} and " if keys else ""
        remedy += f", or {put}leave {winner.name} out"
    return wording.fault(loser.where, _dropped(old, new, loser, winner), _text(old), remedy)


def _by_own(old: Flag, new: Flag, loser: _Giver | None, winner: _Giver) -> Fault:
    """Build the fault of a JSON value whose keys go under for what the operator wrote."""
    remedy = f"put {wording.all_of(_lost(old, new))} into it too, or leave {new.name} out of {winner.name}"
    return wording.fault(winner.where, _dropped(old, new, loser, winner), _text(new), remedy)


def _dropped(old: Flag, new: Flag, loser: _Giver | None, winner: _Giver | None) -> str:
    whose, by = (giver.name if giver else "the recipe" for giver in (loser, winner))
    return f"{_text(old)} of {whose} would be dropped for {_text(new)} of {by}"


def _text(flag: Flag) -> str:
    return " ".join(flag.tokens)


def _keys(flag: Flag) -> Mapping[str, object]:
    return settings.keys(settings.value(flag)) or {}


def _lost(old: Flag, new: Flag) -> tuple[str, ...]:
    """Return the keys of a JSON value that the later one does not have."""
    after = _keys(new)
    return tuple(key for key in _keys(old) if after and key not in after)


def _giver(asked: Asked, flag: Flag, tokens: tuple[str, ...]) -> _Giver | None:
    """Return the part of the choice that gave a flag, None for the recipe's own groups."""
    where = settings.place(flag.provenance)
    if where is not None:
        return _Giver(where=where, name=where, own=True)
    return next((giver for giver, words in _given(asked) if _holds(words, tokens)), None)


def _given(asked: Asked) -> Iterator[tuple[_Giver, Words]]:
    """Yield the words of each part of a choice, the last in a command first."""
    catalogue, name = asked.catalogue, asked.choice.kv_offload or ""
    offload = catalogue.kv_options.get(name) or catalogue.kv_stores.get(name)
    if offload is not None:
        yield _Giver(where="kv_offload", name=f"kv_offload {name}"), offload.settings.args
    for index, name in reversed(tuple(enumerate(asked.features))):
        feature = asked.recipe.features.get(name)
        for words in _of_feature(feature) if feature else ():
            yield _Giver(where=f"features[{index}]", name=f"feature {name}"), words
    if asked.preset is not None:
        yield _Giver(where="preset", name=f"preset {asked.preset.name}"), asked.preset.args


def _of_feature(feature: Feature) -> Iterator[Words]:
    yield feature.args
    yield from feature.hardware_overrides.values()
    for mode in feature.modes.values():
        yield mode.args
        yield from mode.hardware_overrides.values()


def _holds(words: Words, tokens: tuple[str, ...]) -> bool:
    texts = [word.text for word in words]
    return any(tuple(texts[at : at + len(tokens)]) == tokens for at in range(len(texts)))
