"""The inventories of the tree: each can be planned as it is, and its plan tells what is not known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kimi_infra.deploy import documents, site
from kimi_infra.domain.plan import DeploymentPlan
from kimi_infra.domain.provenance import Origin
from kimi_infra.errors import NotReadyError, SpecError
from kimi_infra.rendering import plan_text

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "plans"
UNKNOWN = {
    "gb300-2node": [],
    "b300-1node": [],
    "b300-1node-tep": [],
    "vr200-2node": [],
    "mi355x-agentx": [
        "values.draft_model",
        "values.draft_tokens",
        "values.mi355x_agentx_args",
        "offload.per_rank",
    ],
    "ppu-810e-2node": [],
    "ppu-m890-4node": [],
    "gb300-pd": [],
}
"""Shipped inventory -> places in deployment.yml of what nobody has published, apart from the image."""
NOT_APPLIED = {
    "gb300-pd": "prefill/decode clusters are planned and rendered, not applied yet: missing are the "
    "supervision of pools that have several APIs, the router's unit and its readiness",
    "ppu-m890-4node": "replicas on several nodes are planned and rendered, not applied yet",
}


def directory(name: str) -> Path:
    """Return where a shipped inventory lies."""
    return ROOT / "inventories" / name


def printed(name: str) -> str:
    """Return the plan as `kimi-infra plan` prints it."""
    found = site.read(directory(name))
    return plan_text.plans(site.offline(found), found.inventory.needs)


def only(name: str) -> DeploymentPlan:
    """Return the plan of the one deployment."""
    (plan,) = site.offline(site.read(directory(name)))
    return plan


def placeholders(plan: DeploymentPlan) -> Iterator[str]:
    """Yield each word of a command or variable in which something is still to be given."""
    for rank in plan.ranks:
        for text in (*rank.serve_args, *(entry.value for entry in rank.env)):
            if "<operator: " in text or "<measured: " in text:
                yield text


def test_every_shipped_inventory_is_looked_at() -> None:
    """The lab's own is written by `kimi-infra lab up` and not shipped."""
    shipped = {path.name for path in (ROOT / "inventories").iterdir()}
    assert shipped - {"lab-2node"} == set(UNKNOWN)


@pytest.mark.parametrize("name", UNKNOWN)
def test_each_has_its_pulumi_stack(name: str) -> None:
    """`pulumi up --stack NAME` reads the same directory."""
    settings = (ROOT / f"Pulumi.{name}.yaml").read_text()
    assert settings == f"config:\n  kimi_infra:inventory: inventories/{name}\n"


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_plan_shows_capacity_fit_and_origins(name: str) -> None:
    """The header says whether the model fits, or why that is not known, and who vouches for the values."""
    head = printed(name).partition("\n\n")[0]
    capacity = only(name).capacity
    assert head.count("    fits: ") == len(capacity) == (2 if name == "gb300-pd" else 1)
    for held in capacity.values():
        assert (held.fits is None) == bool(held.missing)
        assert all(need.what in head for need in held.missing)
    counts = ", ".join(f"{origin.value} {count}" for origin, count in only(name).origins.items())
    assert f"  origins of flags and variables: {counts}\n" in head + "\n"
    assert "seed " in counts


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_plan_lists_every_unknown_with_where_to_find_it(name: str) -> None:
    """What stands as a placeholder in a command is named in the header and needed before applying."""
    plan = only(name)
    needs = site.read(directory(name)).inventory.needs
    asked = [need.where.removeprefix("deployment.yml: deployments[0].") for need in needs]
    values = [where for where in asked if where.startswith(("values.", "offload"))]
    assert sorted(values) == sorted(UNKNOWN[name])
    assert len(plan.needs) == len(values)
    assert bool(values) == bool(list(placeholders(plan)))
    text = printed(name)
    head = text.partition("\n\n")[0]
    for need in plan.needs:
        assert f"    {need}\n" in head + "\n"
    for need in needs:
        assert f"  {need}\n" in text.partition("needed before applying\n")[2]


@pytest.mark.parametrize("name", UNKNOWN)
def test_nothing_can_be_applied_before_it_is_filled_in(name: str) -> None:
    """Host keys and the digest are the operator's alone; what cannot be applied at all says so first."""
    if name in NOT_APPLIED:
        with pytest.raises(SpecError) as refusal:
            site.read_ready(directory(name))
        (fault,) = refusal.value.faults
        assert fault.where == "deployment.yml: deployments[0].strategy"
        assert fault.what.startswith(NOT_APPLIED[name])
        return
    with pytest.raises(NotReadyError) as missing:
        site.read_ready(directory(name))
    places = [need.where for need in missing.value.needs]
    assert "deployment.yml: deployments[0].image.digest" in places
    assert sum(place.endswith(".host_key") for place in places) == len(only(name).ranks)


def changed(name: str, folder: Path, **changes: object) -> Path:
    """Copy a shipped inventory and change keys of its one entry."""
    shutil.copy(directory(name) / "hosts.yml", folder)
    document = yaml.safe_load((directory(name) / "deployment.yml").read_text(encoding="utf-8"))
    document["deployments"][0].update(changes)
    (folder / "deployment.yml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return folder


def test_what_the_operator_gives_takes_the_place_of_the_unknown(tmp_path: Path) -> None:
    """Each value stands in the command as the operator's, and the recipe needs nothing more."""
    given = {"draft_model": "some/draft", "draft_tokens": 7, "mi355x_agentx_args": ["--max-num-seqs", 48]}
    tier = {"policy": "fixed", "per_rank": "128 GiB"}
    found = site.read(changed("mi355x-agentx", tmp_path, values=given, offload=tier))
    (plan,) = site.offline(found)
    assert plan.needs == ()
    assert [need.where.rpartition(".")[2] for need in found.inventory.needs] == ["host_key", "digest"]
    assert list(placeholders(plan)) == []
    flags = {flag.name: flag for flag in plan.ranks[0].flags}
    assert json.loads(flags["--speculative-config"].tokens[1]) == {
        "method": "dspark",
        "model": "some/draft",
        "num_speculative_tokens": 7,
    }
    transfer = json.loads(flags["--kv-transfer-config"].tokens[1])
    assert transfer["kv_connector_extra_config"]["cpu_bytes_to_use_per_rank"] == 137438953472
    assert flags["--max-num-seqs"].tokens == ("--max-num-seqs", "48")
    for name in ("--speculative-config", "--kv-transfer-config", "--max-num-seqs"):
        assert flags[name].token_provenances[1].origin is Origin.OPERATOR


def test_an_empty_list_says_that_there_are_no_further_words(tmp_path: Path) -> None:
    """Unlike a fill-in it is an answer: neither a placeholder nor a need is left."""
    values = {"draft_model": "some/draft", "draft_tokens": 7, "mi355x_agentx_args": []}
    (plan,) = site.offline(site.read(changed("mi355x-agentx", tmp_path, values=values)))
    assert [need.where for need in plan.needs] == ["offload.per_rank"]


@pytest.mark.parametrize(
    ("changes", "where", "got"),
    [
        ({"values": {"draft_tokens": "seven"}}, "deployments[0].values.draft_tokens", "seven"),
        ({"offload": {"policy": "fixed", "per_rank": "1 GiB"}, "strategy": "x"}, "[0].strategy", "x"),
        ({"advanced_args": ["--max-model-len", "long"]}, "command of kimi: --max-model-len", "long"),
    ],
    ids=["value", "strategy", "command"],
)
def test_a_fault_of_the_choice_is_told_at_its_place(
    changes: dict[str, object], where: str, got: str, tmp_path: Path
) -> None:
    """What only the recipe or the compiled command shows is anchored in deployment.yml all the same."""
    with pytest.raises(SpecError) as refusal:
        site.offline(site.read(changed("mi355x-agentx", tmp_path, **changes)))
    assert any(
        fault.where.startswith("deployment.yml: ") and fault.where.endswith(where) and fault.got == got
        for fault in refusal.value.faults
    )


@pytest.mark.parametrize("name", sorted(NOT_APPLIED))
def test_what_is_not_applied_yet_is_refused_with_facts_too(name: str) -> None:
    """No front end comes past the refusal: neither the check nor the converge."""
    found = site.read(directory(name))
    with pytest.raises(SpecError, match="not applied yet"):
        site.converge(found, {}, site.SecretStore(environ={}))


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("form", ["shell", "docker", "systemd", "json"])
def test_each_renders_in_every_form(name: str, form: str) -> None:
    """Also what is not applied yet: the commands can be read and run by hand."""
    text = documents.rendered(site.read(directory(name)), form)
    if form == "json":
        (deployment,) = json.loads(text)["deployments"]
        assert set(deployment["commands"]) == {rank.host.name for rank in only(name).ranks}
        assert set(deployment["capacity"]) == set(only(name).capacity)
        assert deployment["origins"] == {origin.value: count for origin, count in only(name).origins.items()}
        return
    ranks = len(only(name).ranks)
    begins = {"shell": "vllm serve ", "docker": "docker run ", "systemd": "ExecStart=/usr/local/lib/"}
    assert text.count(begins[form]) == ranks


@pytest.mark.parametrize("name", ["gb300-2node", "gb300-pd"])
def test_the_text_of_a_plan(name: str) -> None:
    """One engine over two hosts, and two pools with a router: the whole text, to be read."""
    assert printed(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_the_units_of_two_trays_stay_as_they_are() -> None:
    """Byte for byte what was laid down before there was any other hardware."""
    rendered = documents.rendered(site.read(directory("gb300-2node")), "systemd")
    assert rendered == (GOLDEN / "gb300-2node.units.txt").read_text(encoding="utf-8")
