"""What differs between two states of a stage, and what that means for ranks that serve. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kimi_infra.cloud import propertypath, stages, wire

_STATE_ONLY = frozenset({"onDelete"})
"""Inputs that are to be remembered and concern no host."""
_OWN_FILES = ("/etc/",)
"""Configuration and units; a rank that runs with others is to restart."""


class Kind(Enum):
    """How one property differs; the values are those of the engine's PropertyDiff.Kind."""

    ADD = 0
    DELETE = 2
    UPDATE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What an update would be for."""

    inputs: Mapping[str, Kind]
    """Property path -> how it differs."""
    outputs: Mapping[str, Kind]
    """The same for what was found on hosts: drift."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to update."""
        return not self.inputs and not self.outputs

    @property
    def state_only(self) -> bool:
        """Whether an update has nothing to do on any host."""
        return not self.outputs and {propertypath.root(path) for path in self.inputs} <= _STATE_ONLY


def decide(
    stage: stages.Stage,
    old_inputs: Mapping[str, object],
    old_outputs: Mapping[str, object],
    news: Mapping[str, object],
) -> Difference:
    """Compare what was applied and found with what is asked for."""
    ignored = _ignored(stage)
    old = {name: value for name, value in old_inputs.items() if name not in ignored}
    new = {name: value for name, value in news.items() if name not in ignored}
    found = {} if old_outputs.get("inSync") is True else {"inSync": Kind.UPDATE}
    if old_outputs.get("restartRequired") and _consents(old_inputs) != _consents(news):
        found["restartRequired"] = Kind.UPDATE
    return Difference(inputs=compare(old, new), outputs=found)


def compare(old: object, new: object, path: str = "") -> dict[str, Kind]:
    """Return the paths of the smallest parts that differ; a value that is not known yet may differ."""
    if isinstance(old, wire.Secret) or isinstance(new, wire.Secret):
        # As a whole: a path inside a secret would tell about it.
        same = wire.reveal(old) == wire.reveal(new) and not wire.has_unknown(new)
        return {} if same else {path: Kind.UPDATE}
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _merged(old, new, path, sorted({*old, *new}))
    if isinstance(old, list) and isinstance(new, list):
        before: dict[object, object] = dict(enumerate(old))
        after: dict[object, object] = dict(enumerate(new))
        return _merged(before, after, path, range(max(len(old), len(new))))
    # Python's 1 == True is a difference here.
    same = type(old) is type(new) and old == new and not isinstance(new, wire.Unknown)
    return {} if same else {path: Kind.UPDATE}


def consequences(old_inputs: Mapping[str, object] | None, news: Mapping[str, object]) -> list[str]:
    """Say for each engine which ranks start, restart or go on, as far as the inputs tell."""
    plan, before = (_mapping(wire.reveal(each.get("plan"))) for each in (news, old_inputs or {}))
    lines = []
    for deployment, ranks in plan.items():
        old = _mapping(before.get(deployment))
        if not old:
            lines.append(f"{deployment}: ranks are started on {_listed(_by_rank(_mapping(ranks)))}")
            continue
        new = _mapping(ranks)
        stale = [host for host in _by_rank(new) if _restarts(_mapping(old.get(host)), new[host])]
        if stale:
            lines.append(
                f"{deployment}: what is to run changes on {_listed(stale)}; {_verdict(deployment, news)}"
            )
        elif ranks != old:
            lines.append(f"{deployment}: files are written; no rank restarts for them")
    lines += [
        f"{deployment}: is no longer in the inventory; its ranks go on until teardown.yml takes them off"
        for deployment in before
        if deployment not in plan
    ]
    return lines


def _ignored(stage: stages.Stage) -> set[str]:
    # Consent alone changes nothing, unless a restart waits for it.
    ignored = {"consent", "allowed"}
    if stage not in {stages.SERVE, stages.VERIFY}:
        # The other roles write no secret; they get them because all hosts are planned together.
        ignored.add("secrets")
    return ignored


def _consents(inputs: Mapping[str, object]) -> tuple[object, object]:
    return inputs.get("consent") or "", inputs.get("allowed")


def _merged(
    old: Mapping[object, object], new: Mapping[object, object], path: str, steps: Iterable[object]
) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for step in steps:
        here = propertypath.joined(path, step if isinstance(step, int) else str(step))
        if step not in old:
            found[here] = Kind.ADD
        elif step not in new:
            found[here] = Kind.DELETE
        else:
            found |= compare(old[step], new[step], here)
    return found


def _by_rank(ranks: Mapping[str, object]) -> list[str]:
    """Return hosts, the head first: the engine keeps no order of a map."""
    return sorted(ranks, key=lambda host: (_mapping(ranks[host]).get("role") != "head", host))


def _restarts(old: Mapping[str, object], rank: object) -> bool:
    return bool(old) and _running(old) != _running(_mapping(rank))


def _running(rank: Mapping[str, object]) -> tuple[object, ...]:
    files = {
        path: hash_ for path, hash_ in _mapping(rank.get("files")).items() if path.startswith(_OWN_FILES)
    }
    return rank.get("command"), rank.get("env"), files


def _verdict(deployment: str, news: Mapping[str, object]) -> str:
    standing = _mapping(news.get("allowed")).get(deployment)
    if news.get("consent") == "restart" or (isinstance(standing, list) and "restart" in standing):
        return "all its ranks restart, which is allowed"
    return (
        "ranks that serve go on with what they run until a restart is allowed "
        "(allow: [restart] in deployment.yml, or consent: restart); ranks that do not serve restart"
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
