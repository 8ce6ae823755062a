"""Claims: which resources' hosts a teardown must leave alone."""

from __future__ import annotations

import pytest

from kimi_infra.cloud import claims
from tests.provider import engine

pytestmark = pytest.mark.fast

OLD = engine.urn("VllmServe", "prod-serve")
TARGETS = ("ops@192.0.2.1:22", "ops@192.0.2.2:22")


@pytest.mark.parametrize(
    ("kind", "name", "targets", "held"),
    [
        ("VllmServe", "site-serve", TARGETS, True),
        ("HostBase", "site-hosts", TARGETS[1:], True),
        ("VllmServe", "site-serve", ("root@192.0.2.1:22",), True),
        ("VllmServe", "site-serve", ("ops@192.0.2.1:2222", "ops@192.0.2.9:22"), False),
        ("HostBase", "prod-hosts", TARGETS, False),
        ("VllmServe", "prod-serve", TARGETS, False),
    ],
    ids=["renamed", "another stage, one host", "another user", "other hosts", "the same site", "itself"],
)
def test_another_site_on_the_same_hosts_holds_them(
    kind: str, name: str, targets: tuple[str, ...], *, held: bool
) -> None:
    """One shared host of another site is enough, whoever logs in there; a site's own stages hold nothing."""
    made = claims.Claims()
    made.asked(engine.urn(kind, name), targets)
    assert made.holders(OLD, TARGETS) == ([name] if held else [])


def test_a_replacement_holds_the_hosts_of_what_it_replaces() -> None:
    """Created and deleted in one operation is a replacement; once deleted, nothing is held."""
    made = claims.Claims()
    made.asked(OLD, TARGETS)
    made.created(OLD)
    assert made.holders(OLD, TARGETS) == ["prod-serve"]
    made.deleted(OLD)
    assert made.holders(OLD, TARGETS) == []


def test_the_same_name_under_another_component_is_another_site() -> None:
    """A site that moved below a component of the program has a new identity, and keeps its hosts."""
    made = claims.Claims()
    made.asked(OLD.replace("kimi:index:Site$", "my:index:Cell$kimi:index:Site$"), TARGETS)
    assert made.holders(OLD, TARGETS) == ["prod-serve"]
