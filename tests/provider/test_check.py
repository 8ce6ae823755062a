"""Check: every fault with the property that holds it, and what a stage is computed to depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kimi_infra.cloud import check, context, inputs, sources, stages, wire
from tests.provider import tree

pytestmark = pytest.mark.fast

KEY = "s3cr3t-key-1234"
HOSTS = stages.STAGES[0]


@pytest.fixture
def surroundings(tmp_path: Path) -> context.Context:
    """A project with an inventory whose secret the operator exports."""
    tree.write_inventory(tmp_path / "inv", tmp_path / "out")
    folder = tree.write_tree(tmp_path / "tree")
    return context.Context(tree=folder, project=tmp_path, environ={"KIMI_API_KEY": KEY})


def faults(surroundings: context.Context, **given: object) -> list[tuple[str, str]]:
    """Property and reason of each failure of a serve stage."""
    done = check.check(stages.SERVE, {"inventory": "inv", **given}, surroundings)
    return [(one.property, one.reason) for one in done.failures]


def edit(surroundings: context.Context, file: str, old: str, new: str) -> None:
    """Change a file of the inventory."""
    path = surroundings.project / "inv" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_good_inputs_are_completed(surroundings: context.Context) -> None:
    """What the stage depends on is added, and nothing of it is secret."""
    done = check.check(stages.SERVE, {"inventory": "inv", "hosts": None}, surroundings)
    assert done.failures == ()
    found: Any = done.inputs
    assert set(found) == {"inventory", "onDelete", *inputs.COMPUTED}
    assert found["targets"] == {"tray-a": "ops@127.0.0.2:22", "tray-b": "ops@127.0.0.3:22"}
    assert found["allowed"] == {"kimi": []}
    assert found["plan"]["kimi"]["tray-b"]["role"] == "worker"
    assert "--headless" in found["plan"]["kimi"]["tray-b"]["command"]
    assert KEY not in repr(found)
    assert not any(path.endswith("secret.env") for path in found["plan"]["kimi"]["tray-a"]["files"])


@pytest.mark.parametrize(
    ("given", "property_", "reason"),
    [
        ({"inventory": None}, "inventory", "required"),
        ({"inventory": "nowhere"}, "inventory", "no such directory (got nowhere)"),
        ({"inventry": "x"}, "inventry", "did you mean inventory?"),
        ({"consent": "reboot"}, "consent", "'' or 'restart' is expected (got 'reboot')"),
        ({"onDelete": "destroy"}, "onDelete", "'retain' or 'teardown' is expected"),
        ({"secrets": "x"}, "secrets", "a map is expected"),
        ({"secrets": wire.Secret({"KIMI_API_KEY": 1})}, "secrets.KIMI_API_KEY", "a text is expected"),
        ({"secrets": {"KIMI_API_KY": "x"}}, "secrets.KIMI_API_KY", "did you mean KIMI_API_KEY?"),
        ({"hosts": {"tray-a": "192.0.2.1"}}, 'hosts["tray-a"]', "a map of variables is expected"),
        ({"hosts": {"tray-c": {}}}, 'hosts["tray-c"]', "no deployment has this host; did you mean"),
        (
            {"hosts": {"tray-a": {"engine_address": "300.1.1.1"}}},
            'hosts["tray-a"].engine_address',
            "300.1.1.1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_fault_is_at_its_property(
    surroundings: context.Context, given: dict[str, object], property_: str, reason: str
) -> None:
    """Each wrong input is refused where it stands, with a reason that helps."""
    [(where, why)] = faults(surroundings, **given)
    assert where == property_
    assert reason in why


def test_all_faults_come_at_once(surroundings: context.Context) -> None:
    """Faults of the inputs, and faults of both files, are each reported together."""
    assert [where for where, _ in faults(surroundings, consent="x", onDelete="y", foo=1)] == [
        "foo",
        "consent",
        "onDelete",
    ]
    edit(surroundings, "hosts.yml", "node_rank: 1", "node_rank: 7")
    edit(surroundings, "deployment.yml", "gb300", "gb400")
    found = faults(surroundings)
    assert len(found) > 1
    assert {where for where, _ in found} == {"inventory"}
    assert any("did you mean gb300?" in why for _, why in found)


def test_values_still_to_be_given_are_refused(surroundings: context.Context) -> None:
    """An inventory that can only be planned is not applied, and each missing value is named."""
    edit(surroundings, "deployment.yml", tree.DIGEST, '"<fill in: pin it>"')
    [(where, why)] = faults(surroundings)
    assert where == "inventory"
    assert why.startswith("needed before applying: deployment.yml: deployments[0].image.digest")


def test_a_missing_secret_names_both_ways_to_give_it(surroundings: context.Context) -> None:
    """A secret that leads nowhere is refused before any host is contacted."""
    bare = context.Context(tree=surroundings.tree, project=surroundings.project, environ={})
    [(where, why)] = faults(bare)
    assert where == "secrets"
    assert "export KIMI_API_KEY" in why
    assert "pulumi config set --secret --path 'secrets[\"KIMI_API_KEY\"]'" in why
    assert faults(bare, secrets=wire.Secret({"KIMI_API_KEY": "x" * 8})) == []


@pytest.mark.parametrize(("passphrase", "bad"), [("", True), ("password", True), ("kF9-long-own", False)])
def test_a_passphrase_that_protects_nothing_is_refused(
    surroundings: context.Context, passphrase: str, *, bad: bool
) -> None:
    """A stack with secrets needs a passphrase of its own; one without secrets does not."""
    environ = {"PULUMI_CONFIG_PASSPHRASE": passphrase, "KIMI_API_KEY": KEY, "PULUMI_ACCESS_TOKEN": "t"}
    made = context.Context.take(environ, surroundings.tree)
    made = context.Context(
        tree=made.tree,
        project=surroundings.project,
        environ=made.environ,
        passphrase_fault=made.passphrase_fault,
    )
    assert environ == {"KIMI_API_KEY": KEY}
    found = faults(made, secrets=wire.Secret({"KIMI_API_KEY": KEY}))
    assert bool(found) == bad
    assert all(where == "secrets" and "passphrase" in why for where, why in found)
    assert faults(made) == []


def test_given_values_win(surroundings: context.Context) -> None:
    """A host's address may come from another resource, and then it is the one that counts."""
    done: Any = check.check(
        HOSTS, {"inventory": "inv", "hosts": {"tray-b": {"ansible_host": "127.0.0.9"}}}, surroundings
    )
    assert done.failures == ()
    assert done.inputs["targets"]["tray-b"] == "ops@127.0.0.9:22"
    assert done.inputs["targets"]["tray-a"] == "ops@127.0.0.2:22"


@pytest.mark.parametrize(
    "hosts",
    [
        wire.Secret({"tray-b": {"ansible_host": "secret-address", "ansible_user": "secret-user"}}),
        {
            "tray-b": {
                "ansible_host": wire.Secret("secret-address"),
                "ansible_user": wire.Secret("secret-user"),
            }
        },
    ],
    ids=["as a whole", "single values"],
)
@pytest.mark.parametrize("stage", stages.STAGES, ids=lambda stage: stage.word)
def test_secret_hosts_stay_secret(surroundings: context.Context, stage: stages.Stage, hosts: object) -> None:
    """What is computed from a secret address or user is secret too, and as right as without the mark."""
    done = check.check(stage, {"inventory": "inv", "hosts": hosts}, surroundings)
    plain = check.check(stage, {"inventory": "inv", "hosts": wire.reveal(hosts)}, surroundings)
    assert done.failures == ()
    assert "secret-" not in repr(done.inputs)
    assert wire.reveal(dict(done.inputs)) == plain.inputs
    assert "secret-user@secret-address:22" in repr(plain.inputs)


def test_computed_words_are_no_secrets() -> None:
    """A plan that is marked as a whole hides what the program marked, and none of its harmless words."""
    values = {"hosts": {"tray-a": wire.Secret({"ansible_host": "192.0.2.7"})}, "plan": wire.Secret(["head"])}
    assert inputs.secret_texts(values) == ("192.0.2.7",)


def test_a_fault_in_a_secret_does_not_tell_it(surroundings: context.Context) -> None:
    """A wrong value is refused at its property; when it is secret, it is not quoted."""
    [(where, why)] = faults(surroundings, hosts={"tray-a": {"engine_address": wire.Secret("300.1.1.1")}})
    assert where == 'hosts["tray-a"].engine_address'
    assert "300.1.1.1" not in why
    assert "[secret]" in why
    [(where, why)] = faults(surroundings, hosts=wire.Secret({"tray-c": {}}))
    assert (where, why[:27]) == ('hosts["tray-c"]', "no deployment has this host")


def test_unknown_hosts_leave_the_plan_unknown(surroundings: context.Context) -> None:
    """While another resource has still to name the hosts, nothing is planned for them."""
    given = {"inventory": "inv", "hosts": {"tray-b": {"ansible_host": wire.UNKNOWN}}}
    done = check.check(HOSTS, given, surroundings)
    assert done.failures == ()
    assert [name for name, value in done.inputs.items() if value is wire.UNKNOWN] == [
        "targets",
        "plan",
        "allowed",
    ]


def test_an_edit_touches_the_stages_that_it_concerns(surroundings: context.Context) -> None:
    """A new port changes what serves, not what every host needs; a comment changes nothing."""

    def now(stage: stages.Stage) -> object:
        return check.check(stage, {"inventory": "inv"}, surroundings).inputs

    before = {stage: now(stage) for stage in stages.STAGES}
    edit(surroundings, "deployment.yml", "deployments:", "# a remark\ndeployments:")
    assert {stage: now(stage) for stage in stages.STAGES} == before
    edit(surroundings, "deployment.yml", "port: 8000", "port: 8001")
    assert [stage.word for stage in stages.STAGES if now(stage) != before[stage]] == ["serve", "verify"]


def test_a_changed_role_is_seen_by_its_stage(surroundings: context.Context) -> None:
    """The content of roles and playbooks is hashed, byte-compiled files left out."""
    folder, inventory = surroundings.tree, surroundings.project / "inv"
    before = {stage.word: sources.hashes(stage, folder, inventory) for stage in stages.STAGES}
    cache = folder / "plugins/action/__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"x")
    (folder / "roles/model_store/tasks/more.yml").write_text("[]")
    after = {stage.word: sources.hashes(stage, folder, inventory) for stage in stages.STAGES}
    assert [word for word in before if before[word] != after[word]] == ["model"]


def test_the_products_own_tree_is_complete() -> None:
    """Each stage's playbook and role exist, so that a renamed role cannot drop out of the hash unseen."""
    root = sources.root()
    for stage in stages.STAGES:
        assert (root / "playbooks" / stage.playbook).is_file(), stage
        assert (root / "roles" / stage.role / "tasks/main.yml").is_file(), stage
        assert (root / "roles" / stage.role / "tasks/teardown.yml").is_file() == stage.teardown, stage
