"""The inventories of the tree: each can be planned as it is, and its plan tells what is not known."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kimi_infra import cli
from kimi_infra.deploy import documents, site
from kimi_infra.domain.plan import DeploymentPlan
from kimi_infra.domain.provenance import Origin
from kimi_infra.errors import NotReadyError, SpecError
from kimi_infra.rendering import docker, plan_text

pytestmark = pytest.mark.compiler

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
    "ppu-810e-2node": ["image.name"],
    "ppu-m890-4node": ["image.name"],
    "gb300-pd": [],
}
"""Shipped inventory -> places in deployment.yml of what nobody has published."""
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMqXgRLKG73K+sIxs5oj3E2nhu/4FHxOcrmAd4Wv7ki7"
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
        for text in (*docker.run_argv(rank), *(entry.value for entry in rank.env)):
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
    values = [where for where in asked if where.startswith(("values.", "offload", "image.name"))]
    assert sorted(values) == sorted(UNKNOWN[name])
    assert sorted(need.where for need in plan.needs) == sorted(values)
    assert bool(values) == bool(list(placeholders(plan)))
    text = printed(name)
    head = text.partition("\n\n")[0]
    assert "<fill in: " not in head
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


def test_what_is_shipped_for_agentx_can_be_applied_once_filled_in(tmp_path: Path) -> None:
    """Every fill-in of the files, and nothing else, is replaced: no need is left and no placeholder."""
    given = {
        "draft_model": "some/draft",
        "draft_tokens": "7",
        "mi355x_agentx_args": "[]",
        "per_rank": "128 GiB",
        "digest": f"sha256:{'d' * 64}",
        "host_key": HOST_KEY,
    }
    for file in ("hosts.yml", "deployment.yml"):
        text = (directory("mi355x-agentx") / file).read_text(encoding="utf-8")
        filled = re.sub(r'(\w+): "<fill in: .*>"', lambda match: f"{match[1]}: {given[match[1]]}", text)
        (tmp_path / file).write_text(filled, encoding="utf-8")
    ready = site.read_ready(tmp_path)
    (plan,) = site.offline(ready)
    assert (plan.needs, list(placeholders(plan))) == ((), [])
    (flag,) = [flag for flag in plan.ranks[0].flags if flag.name == "--kv-transfer-config"]
    assert str(128 << 30) in flag.tokens[1]


def test_a_tier_to_be_filled_in_is_asked_for_once(tmp_path: Path) -> None:
    """Without a preset, too: the connector stands in the command and its size is needed before applying."""
    tier = {"policy": "fixed", "per_rank": "<fill in: size of the tier>"}
    found = site.read(changed("b300-1node", tmp_path, offload=tier))
    (plan,) = site.offline(found)
    places = [need.where for need in found.inventory.needs if "offload" in need.where]
    assert places == ["deployment.yml: deployments[0].offload.per_rank"]
    assert [need.where for need in plan.needs] == ["offload.per_rank"]
    assert len(list(placeholders(plan))) == 1
    with pytest.raises(NotReadyError):
        site.read_ready(tmp_path)


def test_a_fill_in_beside_another_policy_is_a_fault(tmp_path: Path) -> None:
    """A size belongs to policy fixed alone, given or not."""
    tier = {"policy": "measured", "per_rank": "<fill in: size>"}
    with pytest.raises(SpecError, match=r"offload\.per_rank: policy measured takes no size"):
        site.read(changed("mi355x-agentx", tmp_path, offload=tier))


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


IMAGES = {
    ("ppu-810e-2node", "reg.example/ppu:1"): "the recipe's for 16x Zhenwu 810E is not published",
    ("gb300-2node", "reg.example/vllm/vllm-openai:kimi-k31"): "the same name and tag in another registry",
    ("vr200-2node", "vllm/vllm-openai:kimi-k31"): "instead of vllm/vllm-openai:kimi-k31-cu134",
}
"""Shipped inventory and another image -> what the plan says of the recipe's."""


@pytest.mark.parametrize(("name", "image"), IMAGES)
@pytest.mark.parametrize("digest", [None, f"sha256:{'d' * 64}"], ids=["by-tag", "pinned"])
def test_commands_of_an_inventory_are_run_in_the_operators_image(
    name: str, image: str, digest: str | None, tmp_path: Path
) -> None:
    """Whatever the recipe names: the page's forms, the plan and its differences have deployment.yml's."""
    found = site.read(changed(name, tmp_path, image={"name": image, "digest": digest}))
    reference = f"{image.rpartition(':')[0]}@{digest}" if digest else image
    (plan,) = site.offline(found)
    text = documents.rendered(found, "docker")
    run_in = re.findall(r"^  (\S+) moonshotai/Kimi-K3.1-Pro", text, re.MULTILINE)
    assert run_in == [reference] * len(plan.ranks)
    assert "<operator: image" not in text
    assert documents.rendered(found, "shell").startswith(f"# In image {reference}\n")
    (told,) = [line for line in plan.differences if line.startswith("image ")]
    assert told.startswith(f"image {image}")
    assert IMAGES[name, image] in told
    assert "image.name" not in [need.where for need in plan.needs]


def test_an_image_that_nobody_has_published_is_asked_for() -> None:
    """Plan, page's form and unit hold one placeholder for it, in the form of all others."""
    text = "<operator: image for 810E nodes, from the recipe page or the vendor of the PPUs>"
    assert f"  image {text} (not pinned yet)\n" in printed("ppu-810e-2node")
    found = site.read(directory("ppu-810e-2node"))
    assert documents.rendered(found, "docker").count(text) == 2
    assert [rank.container.image_id for rank in only("ppu-810e-2node").ranks] == [text] * 2
    assert not [line for line in only("ppu-810e-2node").differences if line.startswith("image ")]


@pytest.mark.parametrize("own", ["", "reg.example/", "reg.example:5000/mirror/"])
def test_another_image_on_a_preview_stands_out(own: str, tmp_path: Path) -> None:
    """The recipe names an image for this hardware alone: any other than it or its mirror is a note."""
    title, named = "4x VR200 (preview)", "vllm/vllm-openai:kimi-k31-cu134"
    right, wrong = f"{own}{named}", f"{own}vllm/vllm-openai:kimi-k31"
    notes = {}
    for image in (right, wrong):
        (plan,) = site.offline(site.read(changed("vr200-2node", tmp_path, image={"name": image})))
        notes[image] = [note for note in plan.notes if "image" in note]
    told = f"{title} is served by an image of its own, {named}; deployment.yml names {wrong}"
    assert notes == {right: [], wrong: [told]}


@pytest.mark.parametrize("name", ["gb300-2node", "gb300-pd"])
def test_the_text_of_a_plan(name: str) -> None:
    """One engine over two hosts, and two pools with a router: the whole text, to be read."""
    assert printed(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_the_units_of_two_trays_stay_as_they_are() -> None:
    """Byte for byte what was laid down before there was any other hardware."""
    rendered = documents.rendered(site.read(directory("gb300-2node")), "systemd")
    assert rendered == (GOLDEN / "gb300-2node.units.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(NOT_APPLIED))
@pytest.mark.parametrize("verb", ["verify", "status", "ask"])
def test_every_verb_that_would_reach_a_host_says_what_is_missing(
    name: str, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are the same, also with everything filled in, and neither ssh nor a connection is tried."""
    called = tmp_path / "called"
    programs, folder = tmp_path / "bin", tmp_path / name
    for made in (programs, folder):
        made.mkdir()
    (programs / "ssh").write_text(f"#!/bin/sh\ntouch {called}\nexit 255\n", encoding="utf-8")
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: called.touch())
    image = {"name": "reg.example/it:1", "digest": f"sha256:{'d' * 64}"}
    changed(name, folder, image=image)
    hosts = folder / "hosts.yml"
    text = re.sub(r'host_key: "<fill in: .*>"', f"host_key: {HOST_KEY}", hosts.read_text(encoding="utf-8"))
    hosts.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli.app, [verb, str(folder)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"deployment.yml: deployments[0].strategy: {NOT_APPLIED[name]}" in done.stderr
    assert "missing are" in done.stderr
    assert not called.exists()
