"""Whether ranks start, restart or are left alone: consent first.

A changed file may always be written. A rank restarts only when what it runs differs from what
the host now holds, and only with consent or while nothing is serving. Ranks of one engine cannot
rejoin it, so the answer is one for the whole group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kimi_infra.domain.inventory import Deployment


class Action(Enum):
    """What to do with each rank's unit of one group."""

    NONE = "none"
    START = "start"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """One rank supervisor as found."""

    running: bool
    ready: bool
    stale: bool
    """What runs differs from the files on the host, or is unknown."""

    @classmethod
    def parse(cls, answer: Mapping[str, object]) -> RankStatus:
        """Read what ``kimi-rank status`` printed; an empty answer is a host without a supervisor."""
        return cls(
            running=answer.get("running") is True,
            ready=answer.get("ready") is True,
            stale=answer.get("stale") is True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The decision for one group."""

    action: Action
    restart_required: bool
    """A restart is needed and consent is missing."""
    reason: str


def decide(deployment: Deployment, statuses: Mapping[str, RankStatus], *, consent: bool) -> Rollout:
    """Decide for one deployment.

    Args:
        deployment: Holds the standing consent in ``allow``.
        statuses: Host name -> its rank's supervisor.
        consent: Consent given for this run only.
    """
    stopped = _names(deployment, statuses, lambda status: not status.running)
    stale = _names(deployment, statuses, lambda status: status.running and status.stale)
    serving = statuses[deployment.head.name].ready
    if not stale and not stopped:
        return Rollout(action=Action.NONE, restart_required=False, reason="every rank runs what is planned")
    if not stale:
        return Rollout(action=Action.START, restart_required=False, reason=f"not running on {_and(stopped)}")
    changed = f"what runs differs from the plan on {_and(stale)}"
    if consent or "restart" in deployment.allow:
        return Rollout(action=Action.RESTART, restart_required=False, reason=f"{changed}; restart is allowed")
    if not serving:
        return Rollout(action=Action.RESTART, restart_required=False, reason=f"{changed}; nothing is serving")
    return Rollout(
        action=Action.NONE,
        restart_required=True,
        reason=f"{changed}; give consent: allow: [restart] in deployment {deployment.name}, "
        "or run playbooks/restart.yml",
    )


def _names(
    deployment: Deployment, statuses: Mapping[str, RankStatus], test: Callable[[RankStatus], bool]
) -> Sequence[str]:
    return [host.name for host in deployment.hosts if test(statuses[host.name])]


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)
