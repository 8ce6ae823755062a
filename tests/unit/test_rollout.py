"""Consent: when ranks start, restart or are left alone."""

from __future__ import annotations

import pytest

from kimi_infra.deploy.rollout import Action, RankStatus, decide
from tests import examples

pytestmark = pytest.mark.fast

SERVING = RankStatus(running=True, ready=True, stale=False)
LOADING = RankStatus(running=True, ready=False, stale=False)
STALE = RankStatus(running=True, ready=True, stale=True)
STALE_LOADING = RankStatus(running=True, ready=False, stale=True)
DOWN = RankStatus(running=False, ready=False, stale=False)


@pytest.mark.parametrize(
    ("head", "worker", "allow", "consent", "action", "required"),
    [
        (SERVING, SERVING, (), False, Action.NONE, False),
        (LOADING, LOADING, (), False, Action.NONE, False),
        (DOWN, DOWN, (), False, Action.START, False),
        (LOADING, DOWN, (), False, Action.START, False),
        (STALE, SERVING, (), False, Action.NONE, True),
        (SERVING, STALE, (), False, Action.NONE, True),
        (SERVING, STALE, ("restart",), False, Action.RESTART, False),
        (SERVING, STALE, (), True, Action.RESTART, False),
        (
            SERVING,
            STALE,
            ("reboot",),
            False,
            Action.NONE,
            True,
        ),  # consent to reboot is not consent to restart
        (STALE_LOADING, STALE_LOADING, (), False, Action.RESTART, False),  # nothing is serving
        (DOWN, STALE, (), False, Action.RESTART, False),
    ],
)
def test_decision(
    head: RankStatus,
    worker: RankStatus,
    allow: tuple[str, ...],
    consent: bool,
    action: Action,
    required: bool,
) -> None:
    """A serving group is never disturbed without consent, and one that does not serve is."""
    deployment = examples.deployment(allow=frozenset(allow))
    found = decide(deployment, {"tray-a": head, "tray-b": worker}, consent=consent)
    assert (found.action, found.restart_required) == (action, required)


def test_reason_names_the_host_and_the_way_out() -> None:
    """Without consent the reason names the host that differs and how to consent."""
    found = decide(examples.deployment(), {"tray-a": SERVING, "tray-b": STALE}, consent=False)
    assert "tray-b" in found.reason
    assert "tray-a" not in found.reason
    assert "playbooks/restart.yml" in found.reason


def test_a_rank_whose_state_was_lost_is_not_restarted_without_consent() -> None:
    """Active for systemd and from unknown files, as ``kimi-rank status`` tells it, is serving and stale."""
    lost = RankStatus.parse({"running": True, "ready": True, "stale": True, "phase": None, "plan": None})
    found = decide(examples.deployment(), {"tray-a": lost, "tray-b": lost}, consent=False)
    assert (found.action, found.restart_required) == (Action.NONE, True)


def test_status_of_an_untouched_host() -> None:
    """A host without a supervisor is one whose rank does not run."""
    assert RankStatus.parse({}) == DOWN
