"""The results of tasks, as modules and ansible-runner give them, to events."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kimi_infra.converge.events import Change, Event, Outcome, TaskEnded, TaskStarted

_DIFF_LINES_MAX = 200
"""Lines of one diff that are shown; beyond that nobody reads."""
_OUTPUT_LINES_MAX = 30
_STARTS = frozenset({"playbook_on_task_start", "playbook_on_handler_task_start"})
_ENDS = {
    "runner_on_ok": Outcome.OK,
    "runner_on_failed": Outcome.FAILED,
    "runner_on_unreachable": Outcome.UNREACHABLE,
}


def event(raw: Mapping[str, Any], wanted: Mapping[str, Sequence[str]]) -> Event | None:
    """Return the event of one of ansible-runner's, None for those that say nothing here."""
    name, data = raw["event"], raw.get("event_data") or {}
    if name in _STARTS:
        return TaskStarted(role=data.get("role"), task=str(data.get("task", "")))
    if name not in _ENDS or data.get("ignore_errors"):
        return None
    found = data.get("res")
    result: Mapping[str, Any] = found if isinstance(found, dict) else {}
    action = str(data.get("task_action", ""))
    outcome = _ENDS[name]
    if outcome is Outcome.OK and result.get("changed"):
        outcome = Outcome.CHANGED
    return TaskEnded(
        host=str(data.get("host", "")),
        role=data.get("role"),
        task=str(data.get("task", "")),
        action=action,
        outcome=outcome,
        message=message(result) if outcome in {Outcome.FAILED, Outcome.UNREACHABLE} else "",
        changes=tuple(changes(result)) if outcome is Outcome.CHANGED else (),
        data={key: result[key] for key in wanted.get(action, ()) if key in result},
        uuid=str(data.get("task_uuid", "")),
    )


def message(result: Mapping[str, Any]) -> str:
    """Return what a failed task says: its message, what its command printed, its failed items."""
    if "censored" in result:
        return "the details are hidden, because secrets are among them"
    lines = [str(result["msg"])] if result.get("msg") else []
    for stream in ("stderr", "module_stderr", "stdout", "module_stdout"):
        if result.get(stream):
            lines += str(result[stream]).strip().splitlines()[-_OUTPUT_LINES_MAX:]
    for item in result.get("results", ()):
        if isinstance(item, dict) and (item.get("failed") or item.get("unreachable")):
            lines.append(message(item))
    return "\n".join(line for line in lines if line)


def changes(result: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what a result changed, each item of a loop by itself."""
    items = result.get("results")
    if isinstance(items, list):
        for item in items:
            if isinstance(item, dict) and item.get("changed"):
                yield from changes(item)
        return
    path = result.get("path") or result.get("dest")
    found = result.get("diff")
    diffs = found if isinstance(found, list) else [found] if isinstance(found, dict) else []
    text = "\n".join(filter(None, map(_unified, diffs)))
    yield Change(path=str(path) if path else _header(diffs), diff=text)


def _header(diffs: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the path that a module without a ``path`` names in its diff."""
    headers = (str(diff.get("before_header") or diff.get("after_header") or "") for diff in diffs)
    # Behind the path there may be attributes in parentheses.
    return next((header.partition(" (")[0] for header in headers if header.startswith("/")), None)


def _unified(diff: Mapping[str, Any]) -> str:
    if "prepared" in diff:
        return _short(str(diff["prepared"]).rstrip().splitlines())
    if "before" not in diff or "after" not in diff:
        return ""
    before, after = _lines(diff["before"]), _lines(diff["after"])
    old, new = (str(diff.get(f"{side}_header") or "") for side in ("before", "after"))
    # Headers that tell of the file's attributes; copy names a temporary file in its second one.
    telling = old.startswith("/") and new.partition(" (")[0] == old.partition(" (")[0]
    sides = (old, new) if telling else ("before", "after")
    lines = list(difflib.unified_diff(before, after, *sides, lineterm="", n=2))
    return _short(lines or ([f"--- {old}", f"+++ {new}"] if telling and old != new else []))


def _lines(side: object) -> list[str]:
    """Return one side of a diff as lines; modules without a text give a mapping of attributes."""
    if isinstance(side, dict):
        return [f"{key}: {side[key]}" for key in sorted(side)]
    return str(side).splitlines()


def _short(lines: list[str]) -> str:
    left = len(lines) - _DIFF_LINES_MAX
    return "\n".join(lines if left <= 0 else [*lines[:_DIFF_LINES_MAX], f"… {left} more lines"])
