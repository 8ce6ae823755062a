"""Each role's interface is said once and the same everywhere: specs, defaults, pages, playbooks, plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from kimi_infra.config import recipes
from kimi_infra.deploy import layout
from kimi_infra.deploy import roles as role_data
from kimi_infra.planning import host, resolve
from tests import examples
from tools import role_docs

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parents[2]
ROLES = role_docs.roles()


def defaults_text(role: str) -> str:
    """A role's defaults as written."""
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    return path.read_text() if path.exists() else ""


def options(role: str, entry: str = "main") -> Mapping[str, Any]:
    """The options of one entry point."""
    return role_docs.specs(role)[entry].get("options") or {}


@pytest.mark.parametrize("role", ROLES)
def test_specs_and_defaults_agree(role: str) -> None:
    """Ansible applies no default of a spec, so each one stands in defaults/main.yml too, and no other."""
    defaults = yaml.safe_load(defaults_text(role)) or {}
    assert {
        name: option["default"] for name, option in options(role).items() if "default" in option
    } == defaults


@pytest.mark.parametrize("role", ROLES)
def test_a_required_variable_stands_in_defaults_commented_out(role: str) -> None:
    """defaults/main.yml is the whole interface, a comment over each variable."""
    text = defaults_text(role)
    for name, option in options(role).items():
        mark = "# " if option.get("required") else ""
        assert re.search(rf"^# .+\n{mark}{name}:", text, re.MULTILINE), name


@pytest.mark.parametrize("role", ROLES)
def test_variables_carry_their_role(role: str) -> None:
    """No variable is shared between roles by accident."""
    for entry in role_docs.specs(role):
        assert all(name.startswith(f"{role}_") for name in options(role, entry))


@pytest.mark.parametrize("role", ROLES)
def test_every_entry_point_is_described(role: str) -> None:
    """A file that a playbook enters by tasks_from has its own entry in the specs."""
    entered = {"main"} | {entry for name, entry, _ in calls() if name == role}
    assert entered == set(role_docs.specs(role))


@pytest.mark.parametrize("role", ROLES)
def test_the_page_is_current(role: str) -> None:
    """docs/roles is made from the specs; run tools/role_docs.py."""
    assert (ROOT / "docs" / "roles" / f"{role}.md").read_text() == role_docs.render(role)


def calls() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Each call of a role in a playbook: role, entry point, variables."""
    for playbook in sorted((ROOT / "playbooks").glob("*.yml")):
        for play in yaml.safe_load(playbook.read_text()):
            for role in play.get("roles", ()):
                yield role["role"], "main", role.get("vars", {})
            for task in play.get("tasks", ()):
                if "ansible.builtin.import_role" in task:
                    called = task["ansible.builtin.import_role"]
                    yield called["name"], called["tasks_from"].removesuffix(".yml"), task.get("vars", {})


@pytest.mark.parametrize(
    ("role", "entry", "given"), list(calls()), ids=lambda part: part if isinstance(part, str) else ""
)
def test_playbooks_give_what_roles_ask(role: str, entry: str, given: Mapping[str, Any]) -> None:
    """Ansible accepts a misspelt variable silently; here it is refused."""
    known = options(role, entry)
    assert set(given) <= set(known)
    assert {name for name, option in known.items() if option.get("required")} <= set(given)


def test_the_plan_gives_what_roles_accept() -> None:
    """What the planning function returns passes the specs of the roles that get it."""
    deployment = examples.deployment()
    catalogue = recipes.load_catalogue()
    launches = resolve.resolve(catalogue, deployment.choice)
    plan = host.plan(deployment, catalogue.hardware("gb300"), launches, examples.all_facts())
    layouts = layout.layouts(plan, lambda _: "canary")
    for name in ("tray-a", "tray-b"):
        for role, data in role_data.host_data(name, [plan], layouts).items():
            given = {f"{role}_{key}": value for key, value in data.items()}
            spec = {key: dict(options(role)[key]) for key in given}
            assert ArgumentSpecValidator(_untitled(spec)).validate(given).error_messages == []


def _untitled(spec: Any) -> Any:
    """Drop what only documents."""
    if isinstance(spec, dict):
        return {key: _untitled(value) for key, value in spec.items() if key != "description"}
    return spec
