"""From what modules return to what is shown, and what must not be."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from kimi_infra.converge import environment, events, redaction, results, worker
from kimi_infra.converge import request as requests
from kimi_infra.converge.events import Change, Outcome, TaskEnded

pytestmark = pytest.mark.fast


def raw(kind: str, result: dict[str, Any], **data: object) -> dict[str, Any]:
    """An event as ansible-runner gives it."""
    base = {"host": "tray-a", "role": "r", "task": "t", "task_action": "copy", "res": result}
    return {"event": kind, "event_data": {**base, **data}}


def ended(kind: str, result: dict[str, Any], **data: object) -> TaskEnded:
    """The event that comes of it."""
    found = results.event(raw(kind, result, **data), {"kimi_probe": ("answer",)})
    assert isinstance(found, TaskEnded)
    return found


def test_a_changed_file_is_shown_as_a_unified_diff() -> None:
    """Path and lines, as diff -u writes them."""
    diff = {"before": "a\nb\n", "after": "a\nc\n", "before_header": "/x", "after_header": "/tmp/source"}
    found = ended("runner_on_ok", {"changed": True, "diff": [diff]})
    lines = "--- before\n+++ after\n@@ -1,2 +1,2 @@\n a\n-b\n+c"
    assert found.changes == (Change(path="/x", diff=lines),)
    assert found.outcome is Outcome.CHANGED


def test_attributes_in_headers_are_shown() -> None:
    """A module that tells a file's attributes in its headers shows a change of them alone, too."""
    headers = {"before_header": "/x (mode 0600)", "after_header": "/x (mode 0644)"}
    found = ended("runner_on_ok", {"changed": True, "diff": {"before": "a", "after": "a", **headers}})
    assert found.changes == (Change(path="/x", diff="--- /x (mode 0600)\n+++ /x (mode 0644)"),)


def test_attributes_are_shown_as_lines() -> None:
    """The file module's mappings become one line an attribute."""
    diff = {"before": {"mode": "0600", "path": "/x"}, "after": {"mode": "0644", "path": "/x"}}
    [change] = ended("runner_on_ok", {"changed": True, "path": "/x", "diff": diff}).changes
    assert "-mode: 0600" in change.diff.splitlines()
    assert "+mode: 0644" in change.diff.splitlines()


def test_each_changed_item_of_a_loop_is_a_change() -> None:
    """Items that were as they should be are not named."""
    items = [
        {"changed": True, "path": "/a"},
        {"changed": False, "path": "/b"},
        {"changed": True, "path": "/c"},
    ]
    found = ended("runner_on_ok", {"changed": True, "results": items})
    assert [change.path for change in found.changes] == ["/a", "/c"]


def test_a_long_diff_is_cut() -> None:
    """What nobody reads is counted instead."""
    diff = {"before": "", "after": "x\n" * 1000}
    [change] = ended("runner_on_ok", {"changed": True, "diff": diff}).changes
    assert change.diff.splitlines()[-1] == "… 803 more lines"


def test_a_failure_holds_what_the_command_said() -> None:
    """The task's message and the command's last lines, those of failed items too."""
    items = [{"failed": True, "msg": "no", "stderr": "disk full"}, {"changed": False}]
    assert ended("runner_on_failed", {"msg": "items failed", "results": items}).message == (
        "items failed\nno\ndisk full"
    )


def test_a_hidden_result_says_so() -> None:
    """no_log keeps its promise, and the failure is still one."""
    found = ended("runner_on_failed", {"censored": "the output has been hidden"})
    assert found.message == "the details are hidden, because secrets are among them"


def test_only_wanted_data_is_reported() -> None:
    """Of all results, only the fields that were asked for cross the border."""
    found = ended("runner_on_ok", {"answer": "{}", "stdout": "much"}, task_action="kimi_probe")
    assert found.data == {"answer": "{}"}
    assert ended("runner_on_ok", {"answer": "{}"}).data == {}


@pytest.mark.parametrize("kind", ["playbook_on_start", "runner_on_start", "runner_item_on_ok", "verbose"])
def test_other_events_say_nothing(kind: str) -> None:
    """Events without news, and those without data, are left out."""
    assert results.event({"event": kind}, {}) is None


TEXT = st.text(max_size=12)


@hypothesis.given(TEXT, TEXT, st.sampled_from(list(Outcome)), st.lists(st.tuples(st.none() | TEXT, TEXT)))
def test_events_survive_the_pipe(
    host: str, message: str, outcome: Outcome, changes: list[tuple[str | None, str]]
) -> None:
    """An event is the same on both sides, on one line whatever it holds."""
    event = TaskEnded(
        host=host,
        role=None,
        task="t",
        action="a",
        outcome=outcome,
        message=message,
        changes=tuple(Change(path=path, diff=diff) for path, diff in changes),
        data={"x": [message]},
    )
    line = events.dump(event)
    assert "\n" not in line
    assert events.load(line) == event


def test_the_last_event_survives_the_pipe() -> None:
    """The end of a run keeps its counts."""
    last = events.Ended(status=events.Status.FAILED, reason="why", hidden=(("tray-a", "u"),))
    assert events.load(events.dump(last)) == last


def test_a_request_survives_the_pipe() -> None:
    """A request is the same on both sides, and its repr holds no secret."""
    request = requests.Request(
        root="/r",
        playbook="p.yml",
        inventory="/i",
        check=True,
        tags=("a",),
        environ={"K": "s3cr3t"},
        secrets=("s3cr3t",),
        wanted={"x": ("y",)},
    )
    assert requests.load(request.dump()) == request
    assert "s3cr3t" not in repr(request)


@hypothesis.given(st.text(min_size=4, max_size=30), st.text(max_size=10), st.text(max_size=10))
def test_no_secret_gets_through(secret: str, before: str, after: str) -> None:
    """A known secret is in no text of what is shown, in keys or nested values, whole or by its lines."""
    hypothesis.assume(secret not in redaction.MARK)
    redactor = redaction.Redactor([secret])
    given: dict[str, list[Any]] = {before + secret: [{"x": before + secret + after}, 1, None]}
    shown = redactor.value(given)
    [(key, [inner, *rest])] = shown.items()
    assert secret not in key.replace(redaction.MARK, "")
    assert secret not in inner["x"].replace(redaction.MARK, "")
    assert rest == [1, None]
    assert json.dumps(shown)


def test_a_secret_that_is_a_common_word_takes_no_event_apart() -> None:
    """A user or password that is also a field, a host or an outcome hides free text alone."""
    words = (
        "host",
        "changes",
        "data",
        "path",
        "answer",
        "changed",
        "tray-a",
        "message",
        "copy",
        "uuid",
        "task",
    )
    event = TaskEnded(
        host="tray-a",
        role="host",
        task="Be changed",
        action="copy",
        outcome=Outcome.CHANGED,
        message="no message",
        changes=(Change(path="/x/data", diff="+answer"),),
        data={"answer": {"uuid": ["tray-a"]}},
        uuid="path",
    )
    request = requests.Request(root="r", playbook="p", inventory="i", check=False, secrets=words)
    stream = io.StringIO()
    worker.Reporter(stream, request).event(event)
    assert events.load(stream.getvalue()) == dataclasses.replace(
        event,
        task="Be [secret]",
        message="no [secret]",
        changes=(Change(path="/x/[secret]", diff="+[secret]"),),
        data={"answer": {"[secret]": ["[secret]"]}},
    )


def test_a_secret_of_several_lines_goes_line_by_line() -> None:
    """A diff shows a key file line by line."""
    assert redaction.Redactor(["alpha\nbravo"]).text("+alpha\n+bravo\n+c") == "+[secret]\n+[secret]\n+c"


def test_the_environment_is_built_from_nothing() -> None:
    """Passphrase and tokens of the caller are not inherited; agent and named secrets are."""
    given = {
        "PULUMI_CONFIG_PASSPHRASE": "p",
        "AWS_SECRET_ACCESS_KEY": "a",
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "SSH_AUTH_SOCK": "/agent",
        "PATH": "/usr/bin",
    }
    found = environment.scrubbed(given, {"KIMI_API_KEY": "k"})
    assert set(found) == {"SSH_AUTH_SOCK", "PATH", "LC_ALL", "KIMI_API_KEY"}
    assert found["PATH"].endswith(":/usr/bin")
