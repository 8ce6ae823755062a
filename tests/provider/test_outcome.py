"""What a run came to: which stage a change or a failure belongs to, and what is kept of it."""

from __future__ import annotations

import pytest

from kimi_infra.cloud import outcome
from kimi_infra.converge.events import Change, Ended, Outcome, Status, TaskEnded, TaskStarted

pytestmark = pytest.mark.fast

FILE = Change(path="/etc/x", diff="-a\n+b")


def task(role: str | None, end: Outcome, host: str = "tray-a", **more: object) -> TaskEnded:
    """One task's end."""
    changes = (FILE,) if end is Outcome.CHANGED else ()
    fields = {"task": "t", "action": "copy", "message": "no", "changes": changes, "uuid": f"{role}", **more}
    return TaskEnded(host=host, role=role, outcome=end, **fields)  # type: ignore[arg-type] # a table of fields


def result(
    *events: TaskStarted | TaskEnded, status: Status = Status.SUCCESSFUL, **more: object
) -> outcome.RunResult:
    """What a run of these events came to; each task begins before it ends."""
    collector = outcome.Collector()
    for event in events:
        if isinstance(event, TaskEnded):
            collector.add(TaskStarted(role=event.role, task=event.task))
        collector.add(event)
    collector.add(Ended(status=status, **more))  # type: ignore[arg-type] # a table of fields
    return collector.result()


def test_a_change_belongs_to_its_role() -> None:
    """Of a run over several roles, each stage sees its own changes."""
    whole = result(task("a", Outcome.CHANGED), task("b", Outcome.OK))
    assert [one.role for one in whole.of_role("a").changed] == ["a"]
    assert whole.of_role("b").changed == ()
    assert whole.of_role("b").successful


def test_a_failure_belongs_to_its_role_and_those_behind_it() -> None:
    """What came before a failure is as it was found; what was not reached cannot be called in sync."""
    whole = result(task("a", Outcome.OK), task("b", Outcome.FAILED), status=Status.FAILED)
    assert whole.of_role("a").successful
    for role in ("b", "c"):
        assert not whole.of_role(role).successful
        assert whole.of_role(role).reasons() == ["tray-a: b : t: no"]


def test_a_failure_before_all_roles_is_everybodys() -> None:
    """A host that cannot be probed makes no stage successful."""
    whole = result(task(None, Outcome.UNREACHABLE), status=Status.FAILED)
    assert [one.host for one in whole.of_role("a").unreachable] == ["tray-a"]
    assert not whole.of_role("a").successful


@pytest.mark.parametrize("status", [Status.CANCELED, Status.TIMEOUT, Status.CRASHED])
def test_a_run_cut_short_is_nobodys_success(status: Status) -> None:
    """Even a role whose tasks all held is not called in sync by a run that did not end."""
    whole = result(task("a", Outcome.OK), status=status, reason="why")
    assert not whole.of_role("a").successful
    assert whole.of_role("a").reasons() == [f"ansible-playbook: {status}: why"]


def test_a_mended_failure_is_none() -> None:
    """A task that failed into a rescue leaves no reason behind."""
    assert result(task("a", Outcome.FAILED), task("a", Outcome.OK)).failed == ()


def test_a_hidden_change_is_seen() -> None:
    """A secret file that differs is drift, without a word of its content."""
    hidden = task("a", Outcome.OK, host="tray-b")
    whole = result(task("a", Outcome.OK), hidden, hidden=(("tray-b", "a"),))
    assert whole.drift() == [{"host": "tray-b", "task": "a : t", "diff": "(not shown: secrets are among it)"}]


def test_the_same_change_is_shown_once() -> None:
    """Hosts with the same diff share it, in an order that does not depend on who was first."""
    whole = result(task("a", Outcome.CHANGED, host="tray-b"), task("a", Outcome.CHANGED, host="tray-a"))
    assert whole.described() == "tray-a, tray-b: a : t\n  /etc/x\n    -a\n    +b"
    assert [one["host"] for one in whole.drift()] == ["tray-a", "tray-b"]


def test_the_last_decision_counts() -> None:
    """A restart that an earlier round asked for and a later one no longer does is not required."""

    def decided(*, required: bool) -> TaskEnded:
        one = {"deployment": "kimi", "restart_required": required, "reason": "it differs"}
        return task("a", Outcome.OK, action="kimi_rollout", data={"hosts": {"tray-a": [one]}})

    assert result(decided(required=True)).restarts == {"kimi": "it differs"}
    assert result(decided(required=True), decided(required=False)).restarts == {}
