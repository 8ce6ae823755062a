"""The publisher's own statements on what goes together (key ``x-rules``), as refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import Launch
from kimi_infra.domain.recipe import Rule, Terms
from kimi_infra.errors import Fault
from kimi_infra.planning.refusals import nearest, settings, terms, wording
from kimi_infra.planning.refusals.asked import Asked
from kimi_infra.planning.refusals.settings import Setting
from kimi_infra.planning.refusals.terms import FLAGS, NONE, Facts

_PLACES = ("features", "dcp", "kv_offload", "preset", "variant", "strategy", "hardware", FLAGS)
"""Where a refusal stands: at the part that is the easiest to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The part of a choice at which a refusal stands."""

    where: str
    got: str
    leave: str
    """How to do without it."""


def faults(asked: Asked, facts: Facts) -> Iterator[Fault]:
    """Yield every rule that is broken; those on placement only where the placement is not refused anyway."""
    for rule in asked.recipe.rules:
        if terms.broken(rule, facts) and (asked.described or not terms.on_placement(rule)):
            yield _fault(asked, rule, facts)


def of_command(asked: Asked, launch: Launch) -> Iterator[Fault]:
    """Yield every rule on flags or variables that a node's command breaks; before it there are none."""
    facts = terms.facts(asked)
    rules = [rule for rule in asked.recipe.rules if terms.on_command(rule) and _may_hold(rule, facts)]
    found = settings.of(launch) if rules else {}
    for rule in rules:
        words = [word for side in terms.sides(rule) for word in side.meets.get(FLAGS, ())]
        met = {word: setting for word in words if (setting := settings.met(word, found))}
        for one in _one_by_one(rule, tuple(met)):
            judged = {**facts, FLAGS: one or (NONE,)}
            if terms.broken(rule, judged):
                yield _of_command(asked, rule, judged, met)


def _may_hold(rule: Rule, facts: Facts) -> bool:
    """Tell whether a choice meets the condition of a rule, flags aside."""
    sides = ((name, words) for name, words in rule.when.meets.items() if name != FLAGS)
    return all(set(words) & set(facts.get(name, ())) for name, words in sides)


def _one_by_one(rule: Rule, met: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the words that a rule is judged with: each that it excludes by itself, so that each is told."""
    excluded = rule.excludes.meets.get(FLAGS, ()) if rule.excludes else ()
    others = tuple(word for word in met if word not in excluded)
    if len(others) == len(met):
        yield met
    for word in met:
        if word in excluded:
            yield (*others, word)


def _of_command(asked: Asked, rule: Rule, facts: Facts, met: Mapping[str, Setting]) -> Fault:
    """Build the fault of a rule on flags: at the operator's own word where there is one."""
    told = _fault(asked, rule, facts)
    against = [side for side in (rule.when, rule.excludes) if side is not None]
    blamed = [word for word in facts[FLAGS] if any(word in side.meets.get(FLAGS, ()) for side in against)]
    if not blamed:
        return told
    setting, (name, more, most) = met[blamed[-1]], blamed[-1].partition(">")
    alone = told.where == FLAGS
    where = settings.written(setting, asked.choice) or ("model" if alone else told.where)
    remedy = told.remedy
    if rule.excludes is not None:
        less = f"give at most {most}" if more else f"leave {name} out"
        remedy = less if alone else f"{less}, or {remedy}"
    got = setting.value if where.startswith("values.") else setting.text
    return wording.fault(where, told.what, got, remedy)


def _fault(asked: Asked, rule: Rule, facts: Facts) -> Fault:
    part, said = _part(asked, rule, facts), wording.said((rule.because,))
    subject = _named(asked, rule.when, facts)
    if rule.needs is None:
        excluded = _named(asked, rule.excludes, facts) if rule.excludes else ""
        what = f"{subject} does not go with {excluded}{said}"
        return wording.fault(part.where, what, part.got, part.leave)
    unmet = {name: words for name, words in rule.needs.meets.items() if not set(words) & set(facts[name])}
    wanted = wording.all_of([_wanted(asked, name, words, facts) for name, words in unmet.items()])
    got = ", ".join(facts[next(iter(unmet))])
    return wording.fault(part.where, f"{subject} needs {wanted}{said}", got, _remedy(asked, part, unmet))


def _part(asked: Asked, rule: Rule, facts: Facts) -> _Part:
    met: dict[str, list[str]] = {}
    for side in (rule.when, rule.excludes):
        for name, words in side.meets.items() if side else ():
            met.setdefault(name, []).extend(word for word in facts[name] if word in words)
    if terms.on_placement(rule):
        return _Part(where="strategy", got=asked.choice.strategy, leave=nearest.remedy(asked))
    named = ["hardware" if name == "brand" else name for name in met]
    field = next(name for name in _PLACES if name in named)
    if field == "features" and met[field] != [NONE]:
        index = max(asked.features.index(name) for name in met[field])
        name = asked.features[index]
        return _Part(where=f"features[{index}]", got=name, leave=f"leave {name} out")
    word = met[field][0] if field in met else asked.choice.hardware
    if field in ("variant", "strategy", "hardware"):
        return _Part(where=field, got=word, leave=f"choose another {field}")
    what = field if field == "dcp" else word if field == FLAGS else f"{field} {word}"
    return _Part(where=field, got=word, leave=f"choose {field}" if word == NONE else f"leave {what} out")


def _named(asked: Asked, side: Terms, facts: Facts) -> str:
    """Name the parts of a choice that meet terms, the hardware last."""
    found = []
    for name, words in side.meets.items():
        met = [word for word in facts[name] if word in words]
        noun = "feature" if name == "features" else name
        if name == FLAGS:
            found.extend(met)
        elif name not in ("hardware", "brand"):
            found.append(f"no {noun}" if met == [NONE] else f"{noun} {wording.all_of(met)}")
    if "hardware" in side.meets or "brand" in side.meets:
        found.append(_hardware(asked))
    return " with ".join(found)


def _wanted(asked: Asked, name: str, words: tuple[str, ...], facts: Facts) -> str:
    """Say what is needed of a part of a choice, and what is there."""
    if name == FLAGS:
        return f"{wording.any_of(words)}, and the command does without"
    noun = "feature" if name == "features" else name
    wish = wording.any_of(f"no {noun}" if word == NONE else f"{noun} {word}" for word in words[:1])
    wish = wording.any_of((wish, *words[1:]))
    there = _hardware(asked) if name == "brand" else wording.all_of(facts[name])
    return f"{wish}, and {there} was chosen"


def _hardware(asked: Asked) -> str:
    brand = asked.profile.brand if asked.profile else ""
    return f"hardware {asked.choice.hardware} ({brand})"


def _remedy(asked: Asked, part: _Part, unmet: Mapping[str, tuple[str, ...]]) -> str:
    """Say what to change: the unmet part if that works on the same hardware, else do without the other."""
    name, words = next(iter(unmet.items()))
    if part.where == "strategy" and name in ("hardware", "brand", "strategy"):
        return part.leave
    if name == "strategy" and asked.profile:
        return _another(asked, asked.profile, words) or part.leave
    if NONE in words:
        return f"leave {name} out"
    wanted = wording.any_of(words)
    if name == FLAGS:
        return f"add {words[0]} to advanced_args, or {part.leave}"
    if name in ("brand", "hardware"):
        return f"{part.leave}, or choose {f'{wanted} hardware' if name == 'brand' else f'hardware {wanted}'}"
    change = f"switch on feature {wanted}" if name == "features" else f"choose {name} {wanted}"
    return f"{change}, or {part.leave}"


def _another(asked: Asked, profile: HardwareProfile, strategies: tuple[str, ...]) -> str | None:
    """Say which one of some strategies to choose on the same hardware, with its nodes where they differ."""
    works = nearest.of_strategies(asked, profile, strategies)
    if works is None:
        return None
    same = works.nodes == asked.choice.nodes and not works.pools and not asked.pools
    return f"choose strategy {works.strategy}" if same else works.described(asked)
