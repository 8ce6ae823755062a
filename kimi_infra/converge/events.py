"""What a run of Ansible reports, as values and as the lines that carry them between two processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How one task ended on one host."""

    OK = "ok"
    CHANGED = "changed"
    """In check mode: would change."""
    FAILED = "failed"
    UNREACHABLE = "unreachable"


class Status(StrEnum):
    """How a run ended, in ansible-runner's words."""

    SUCCESSFUL = "successful"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    """A task begins on the hosts of its play."""

    role: str | None
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that a task changed, or in check mode would change."""

    path: str | None
    """The file or directory, None for anything else."""
    diff: str
    """Unified diff; empty where the task gives none or hides it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A task has ended on one host."""

    host: str
    role: str | None
    task: str
    action: str
    """The module or action plugin."""
    outcome: Outcome
    message: str = ""
    """The task's own words; for a failure with what the command printed."""
    changes: tuple[Change, ...] = ()
    data: Mapping[str, object] = field(default_factory=dict)
    """The result's fields that were asked for (:attr:`kimi_infra.converge.request.Request.wanted`)."""
    uuid: str = ""
    """Ansible's own name of the task in this run."""

    @property
    def title(self) -> str:
        """Role and task for a reader."""
        return f"{self.role} : {self.task}" if self.role else self.task


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over; always the last event."""

    status: Status
    reason: str = ""
    """Why, where no task says it: the text of Ansible's own error."""
    hidden: tuple[tuple[str, str], ...] = ()
    """Host and :attr:`TaskEnded.uuid` of what changed something and keeps back what (``no_log``)."""


Event = TaskStarted | TaskEnded | Ended
_KINDS: Mapping[str, type[TaskStarted | TaskEnded | Ended]] = {
    kind.__name__: kind for kind in (TaskStarted, TaskEnded, Ended)
}


def dump(event: Event) -> str:
    """Return an event as one line of JSON, without its end."""
    return json.dumps({"kind": type(event).__name__, **asdict(event)})


def load(line: str | bytes) -> Event:
    """Return the event of a line.

    Raises:
        ValueError: the line is no event.
    """
    fields = json.loads(line)
    kind = _KINDS[fields.pop("kind")]
    if kind is TaskStarted:
        return TaskStarted(**fields)
    if kind is Ended:
        hidden = tuple((host, uuid) for host, uuid in fields["hidden"])
        return Ended(status=Status(fields["status"]), reason=fields["reason"], hidden=hidden)
    changes = tuple(Change(**change) for change in fields.pop("changes"))
    return TaskEnded(**{**fields, "outcome": Outcome(fields["outcome"]), "changes": changes})
