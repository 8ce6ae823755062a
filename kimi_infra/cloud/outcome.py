"""What a run of a playbook came to, collected from its events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kimi_infra.converge.events import Change, Ended, Event, Outcome, Status, TaskEnded, TaskStarted

WANTED: Mapping[str, tuple[str, ...]] = {"kimi_probe": ("answer",), "kimi_rollout": ("hosts",)}
"""Results that the provider reads: what hosts answered, and what was decided for their ranks."""
_DIFF_MAX = 4000
"""Characters of one diff that are kept in state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that is over."""

    status: Status
    reason: str
    changed: tuple[TaskEnded, ...]
    failed: tuple[TaskEnded, ...]
    """Unreachable hosts among them."""
    reached: frozenset[str]
    """Roles of which at least one task began."""
    answers: Mapping[str, str]
    """Host -> what its probe printed."""
    restarts: Mapping[str, str] = field(default_factory=dict)
    """Deployment -> why it needs a restart that nobody has allowed."""

    @property
    def successful(self) -> bool:
        """Whether every task held on every host."""
        return self.status is Status.SUCCESSFUL

    @property
    def unreachable(self) -> tuple[TaskEnded, ...]:
        """The hosts that could not be reached."""
        return tuple(task for task in self.failed if task.outcome is Outcome.UNREACHABLE)

    def of_role(self, role: str) -> RunResult:
        """Return one role's part of a run over several.

        What fails before any role, or before the role was reached, is every later role's failure too.
        """
        own = tuple(task for task in self.failed if task.role == role)
        others = tuple(task for task in self.failed if task.role != role)
        blocked = own if role in self.reached else (*own, *others)
        clean = not blocked and (role in self.reached or self.successful)
        return dataclasses.replace(
            self,
            status=Status.SUCCESSFUL if clean and self.status is Status.FAILED else self.status,
            changed=tuple(task for task in self.changed if task.role == role),
            failed=blocked,
        )

    def reasons(self) -> list[str]:
        """Say why the run failed, each host's own words."""
        lines = [f"{task.host}: {task.title}: {task.message or task.outcome}" for task in self.failed]
        if self.status not in {Status.SUCCESSFUL, Status.FAILED}:
            lines.append(f"ansible-playbook: {self.status}{f': {self.reason}' if self.reason else ''}")
        return list(dict.fromkeys(lines)) or [self.reason or f"ansible-playbook: {self.status}"]

    def drift(self) -> list[dict[str, object]]:
        """Return what differs on hosts, by host and file, as it is kept in state."""
        found: list[dict[str, object]] = [
            {
                "host": task.host,
                "task": task.title,
                **({"path": change.path} if change.path else {}),
                **({"diff": change.diff[:_DIFF_MAX]} if change.diff else {}),
            }
            for task in self.changed
            for change in task.changes
        ]
        found += [{"host": t.host, "task": t.title, "failure": t.message} for t in self.failed]
        return found

    def described(self) -> str:
        """Return the changes for a reader with their diffs, once for all hosts on which they are the same."""
        hosts: dict[tuple[str, tuple[Change, ...]], list[str]] = {}
        for task in self.changed:
            hosts.setdefault((task.title, task.changes), []).append(task.host)
        return "\n".join(
            _described(f"{', '.join(names)}: {title}", changes) for (title, changes), names in hosts.items()
        )


def _described(title: str, changes: Iterable[Change]) -> str:
    lines = [title]
    for change in changes:
        lines += [f"  {change.path}"] if change.path else []
        lines += [f"    {line}" for line in change.diff.splitlines()]
    return "\n".join(lines)


class Collector:
    """Takes events one by one."""

    def __init__(self) -> None:
        self._tasks: list[TaskEnded] = []
        self._reached: set[str] = set()
        self._ended = Ended(status=Status.CRASHED)

    def add(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, TaskStarted):
            self._reached |= {event.role} if event.role else set()
        elif isinstance(event, TaskEnded):
            self._tasks.append(event)
        else:
            self._ended = event

    def result(self) -> RunResult:
        """Return what it all came to."""
        bad = {Outcome.FAILED, Outcome.UNREACHABLE}
        good = self._ended.status is Status.SUCCESSFUL
        changed = tuple(task for task in self._tasks if task.outcome is Outcome.CHANGED)
        probed = {t.host: str(t.data["answer"]) for t in self._tasks if "answer" in t.data}
        return RunResult(
            status=self._ended.status,
            reason=self._ended.reason,
            changed=self._sorted((*changed, *self._hidden())),
            # A failure that a rescue has mended is none.
            failed=() if good else self._sorted(task for task in self._tasks if task.outcome in bad),
            reached=frozenset(self._reached),
            answers=probed,
            restarts=self._restarts(),
        )

    def _sorted(self, tasks: Iterable[TaskEnded]) -> tuple[TaskEnded, ...]:
        """Return tasks in the playbook's order; hosts end theirs in any."""
        order = list(dict.fromkeys((task.role, task.task) for task in self._tasks))
        return tuple(sorted(tasks, key=lambda task: (order.index((task.role, task.task)), task.host)))

    def _hidden(self) -> Iterator[TaskEnded]:
        """Yield tasks that changed a host and keep back what."""
        for task in self._tasks:
            if (task.host, task.uuid) in self._ended.hidden:
                change = Change(path=None, diff="(not shown: secrets are among it)")
                yield dataclasses.replace(task, outcome=Outcome.CHANGED, changes=(change,))

    def _restarts(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for task in self._tasks:
            hosts = task.data.get("hosts")
            for decision in _decisions(hosts) if task.action.endswith("kimi_rollout") else ():
                # Decided in rounds: the last word counts.
                found.pop(str(decision["deployment"]), None)
                if decision.get("restart_required"):
                    found[str(decision["deployment"])] = str(decision["reason"])
        return found


def _decisions(hosts: object) -> list[Mapping[str, object]]:
    several = hosts.values() if isinstance(hosts, dict) else ()
    return [decision for decisions in several for decision in decisions]
