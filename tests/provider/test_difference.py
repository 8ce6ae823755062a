"""What differs, property by property, and what is said of ranks that serve."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from kimi_infra.cloud import difference, stages, wire
from kimi_infra.cloud.difference import Kind

pytestmark = pytest.mark.fast

HOSTS = stages.STAGES[0]
FOUND: dict[str, object] = {"inSync": True, "restartRequired": {}}


def inputs() -> dict[str, Any]:
    """The inputs of a serve stage."""
    rank = {
        "role": "head",
        "command": ["docker", "run", "--port", "8000"],
        "env": {"A": "1"},
        "files": {"/etc/kimi-infra/kimi/rank.json": "aa", "/usr/local/lib/kimi-infra/kimi-rank": "bb"},
    }
    return {
        "inventory": "inventories/x",
        "onDelete": "retain",
        "secrets": wire.Secret({"KIMI_API_KEY": "first"}),
        "targets": {"tray-a": "ops@192.0.2.1:22"},
        "sources": {"roles/vllm_serve": "11"},
        "plan": {"kimi": {"tray-b": {**copy.deepcopy(rank), "role": "worker"}, "tray-a": rank}},
        "allowed": {"kimi": []},
    }


def decided(news: dict[str, Any], found: dict[str, object] | None = None) -> dict[str, Kind]:
    """All paths that differ from the untouched inputs."""
    made = difference.decide(stages.SERVE, inputs(), FOUND if found is None else found, news)
    return {**made.inputs, **made.outputs}


def test_nothing_differs_from_itself() -> None:
    """The same inputs on hosts in sync are no difference."""
    assert decided(inputs()) == {}


CASES: list[tuple[tuple[str | int, ...], object, str, Kind]] = [
    (("inventory",), "inventories/y", "inventory", Kind.UPDATE),
    (("onDelete",), "teardown", "onDelete", Kind.UPDATE),
    (("secrets",), wire.Secret({"KIMI_API_KEY": "second"}), "secrets", Kind.UPDATE),
    (("targets", "tray-a"), "ops@192.0.2.9:22", 'targets["tray-a"]', Kind.UPDATE),
    (("targets", "tray-b"), "ops@192.0.2.2:22", 'targets["tray-b"]', Kind.ADD),
    (("sources", "roles/vllm_serve"), "22", 'sources["roles/vllm_serve"]', Kind.UPDATE),
    (("plan", "kimi", "tray-a", "command", 3), "8001", 'plan.kimi["tray-a"].command[3]', Kind.UPDATE),
    (("plan", "kimi", "tray-a", "env", "B"), "2", 'plan.kimi["tray-a"].env.B', Kind.ADD),
    (("plan", "kimi", "tray-a", "role"), wire.UNKNOWN, 'plan.kimi["tray-a"].role', Kind.UPDATE),
    (("hosts",), {"tray-a": {}}, "hosts", Kind.ADD),
]


@pytest.mark.parametrize(("steps", "value", "path", "kind"), CASES, ids=[case[2] for case in CASES])
def test_each_property_is_named(steps: tuple[Any, ...], value: object, path: str, kind: Kind) -> None:
    """One changed value is one difference, at its own path."""
    news: Any = inputs()
    place = news
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    assert decided(news) == {path: kind}


def test_a_removed_word_is_a_deletion() -> None:
    """A shorter command is shown as the words that go."""
    news = inputs()
    news["plan"]["kimi"]["tray-a"]["command"].pop()
    assert decided(news) == {'plan.kimi["tray-a"].command[3]': Kind.DELETE}


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@hypothesis.given(JSON, JSON)
def test_no_paths_means_equal(old: object, new: object) -> None:
    """There are paths exactly when two values differ, and each value equals its own copy."""
    same_kind = repr(old) == repr(new) or (old == new and _kinds(old) == _kinds(new))
    assert (difference.compare(old, new) == {}) == same_kind
    assert difference.compare(old, copy.deepcopy(old)) == {}


def _kinds(value: object) -> object:
    if isinstance(value, dict):
        return {key: _kinds(item) for key, item in value.items()}
    return [_kinds(item) for item in value] if isinstance(value, list) else type(value)


def test_drift_is_a_difference() -> None:
    """Hosts that were found to differ are updated."""
    assert decided(inputs(), {"inSync": False}) == {"inSync": Kind.UPDATE}


@pytest.mark.parametrize("change", [{"consent": "restart"}, {"allowed": {"kimi": ["restart"]}}], ids=str)
def test_consent_counts_when_a_restart_waits(change: dict[str, object]) -> None:
    """Consent alone changes nothing; with a restart that waits for it, it is what an update is for."""
    assert decided({**inputs(), **change}) == {}
    waiting = {**FOUND, "restartRequired": {"kimi": "it differs"}}
    assert decided({**inputs(), **change}, waiting) == {"restartRequired": Kind.UPDATE}


def test_a_new_secret_concerns_only_who_writes_it() -> None:
    """A rotated key makes the serve stage differ, and no stage that never writes it."""
    news = {**inputs(), "secrets": wire.Secret({"KIMI_API_KEY": "second"})}
    assert difference.decide(HOSTS, inputs(), FOUND, news).empty
    assert not difference.decide(stages.SERVE, inputs(), FOUND, news).empty


def test_on_delete_alone_concerns_no_host() -> None:
    """What a later destroy does is remembered without a run."""
    assert difference.decide(stages.SERVE, inputs(), FOUND, {**inputs(), "onDelete": "teardown"}).state_only
    drifted = difference.decide(
        stages.SERVE, inputs(), {"inSync": False}, {**inputs(), "onDelete": "teardown"}
    )
    assert not drifted.state_only


def said(change: str, **more: object) -> list[str]:
    """What is said of a changed plan."""
    news = {**inputs(), **more}
    rank = news["plan"]["kimi"]["tray-b"]
    if change == "command":
        rank["command"][3] = "9"
    elif change:
        rank["files"][change] = "new"
    return difference.consequences(inputs(), news)


def test_a_changed_command_waits_for_consent() -> None:
    """It is said which host's rank differs, and that serving ranks go on."""
    [line] = said("command")
    assert line.startswith("kimi: what is to run changes on tray-b; ranks that serve go on")
    assert "allow: [restart]" in line


@pytest.mark.parametrize("consent", [{"consent": "restart"}, {"allowed": {"kimi": ["restart"]}}], ids=str)
def test_an_allowed_restart_is_announced(consent: dict[str, object]) -> None:
    """With consent, of the stack or of deployment.yml, the restart is said before it happens."""
    assert said("command", **consent) == [
        "kimi: what is to run changes on tray-b; all its ranks restart, which is allowed"
    ]


def test_a_program_file_restarts_nothing() -> None:
    """A new supervisor is written; a configuration file is what a rank runs with."""
    assert said("/usr/local/lib/kimi-infra/kimi-rank") == [
        "kimi: files are written; no rank restarts for them"
    ]
    assert "what is to run changes" in said("/etc/kimi-infra/kimi/rank.json")[0]
    assert said("") == []


def test_first_and_last_words() -> None:
    """A first start names its hosts, and a deployment that left the inventory is not forgotten."""
    news = inputs()
    assert difference.consequences(None, news) == ["kimi: ranks are started on tray-a and tray-b"]
    assert "ranks go on until" in difference.consequences(news, {**news, "plan": {}})[0]
