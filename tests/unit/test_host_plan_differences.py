"""Hosts against the recipe page: whatever differs is listed, with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Api, Deployment, ImageChoice, Mount, Ports, Timeouts
from kimi_infra.domain.launch import Flag, Launch
from kimi_infra.domain.plan import DeploymentPlan, RankPlan
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.planning import host, resolve
from kimi_infra.rendering import docker, docker_page
from tests import examples

pytestmark = pytest.mark.fast


def plan(wanted: Deployment) -> DeploymentPlan:
    """Plan a deployment on the hardware that it names."""
    catalogue = recipes.load_catalogue()
    resolution = resolve.resolve(catalogue, wanted.choice)
    return host.plan(wanted, catalogue.hardware(wanted.choice.hardware), resolution, {})


ALL = {
    "gb300": examples.deployment(),
    "gb300-mirror": examples.deployment(
        image=ImageChoice(name="reg.example/vllm/vllm-openai:kimi-k31", digest=examples.DIGEST)
    ),
    "gb300-moved": examples.deployment(
        ports=Ports(master=31000), api=Api(port=8443, key=None), timeouts=Timeouts(engine_ready=7200)
    ),
    "gb300-mounts": examples.deployment(mounts=(Mount(path="/srv/more"),)),
    "b300": examples.engine("b300", "single_node_tp", 1),
    "mi355x": examples.engine("mi355x", "single_node_tp", 1),
    "vr200": examples.engine("vr200", "multi_node_tp", 2, accept_preview=True),
    "810e": examples.engine("810e", "multi_node_tep", 2),
    "m890": examples.engine("m890", "multi_node_tep", 4),
    "cluster": examples.cluster(),
    "gb300-ipv6": examples.deployment(hosts=(examples.host(0, address="fd00::1"), examples.host(1))),
    "lab": examples.engine("lab-cpu", "multi_node_tp", 2, model="kimi-infra/lab-tiny", features=()),
}


def options(words: Sequence[str]) -> set[str]:
    """Return options with their values; a blank and an equals sign between the two are one."""
    found: list[str] = []
    for word in words:
        if word.startswith("-") or not found:
            found.append(word.replace("=", " ", 1) if word.startswith("--") else word)
        else:
            found[-1] = f"{found[-1]} {word}"
    return set(found)


def sides(found: DeploymentPlan) -> Iterator[tuple[Launch, RankPlan]]:
    """Yield each node as the page has it, beside its rank."""
    resolution = resolve.resolve(recipes.load_catalogue(), found.deployment.choice)
    return zip(resolution.launches, found.ranks, strict=True)


@pytest.mark.parametrize("name", ALL)
def test_whatever_differs_from_the_page_is_listed_and_nothing_else(name: str) -> None:
    """Both commands are compared word by word: each option on one side only is in the list."""
    found = plan(ALL[name])
    text = "\n".join(found.differences)
    for page, rank in sides(found):
        theirs = docker_page.argv(replace(page, image="IMAGE", env=(), flags=())) or ()
        ours = docker.run_argv(replace(rank, serve_args=()))[1:]
        for option in (options(theirs[1:]) & options(ours)) - {"run", "--ipc host"}:
            assert option not in text
        for option in options(theirs[1:]) ^ options(ours):
            name_, _, value = option.partition(" ")
            if name_ in {"-v", "--volume"}:  # compared by their places below
                continue
            assert name_ in text, option
            assert name_ not in {"--device", "--ulimit", "--cap-add"} or value in text
        for flag in rank.flags:
            assert (flag not in page.flags and not placed(page, flag)) == (f"{flag.name} " in text), flag
        for entry in rank.env:
            held = [it.value for it in page.env if it.name == entry.name]
            differs = not held or ("$" not in held[0] and held[0] != entry.value) or "$IFACE" in held[0]
            assert differs == (entry.name in text), entry
        for volume in rank.container.volumes:
            assert volume.source in text
        for secret in rank.secret_names:
            assert secret in text
        assert (page.image != found.deployment.image.name) == ("\nimage " in f"\n{text}")


def placed(page: Launch, flag: Flag) -> bool:
    """Tell whether a flag is the page's with its placeholder filled in."""
    own = [it for it in page.flags if it.name == flag.name]
    return any("$" in word for it in own for word in it.tokens)


def test_each_difference_has_a_reason_and_stands_once() -> None:
    """Before the colon is what differs, behind it why."""
    for deployment in ALL.values():
        found = plan(deployment).differences
        assert len(set(found)) == len(found)
        assert all(line.partition(": ")[2] for line in found)


def test_a_value_of_the_recipe_that_a_host_has_otherwise_is_shown_with_it() -> None:
    """The longer deadline stands beside the recipe's."""
    (line,) = [it for it in plan(ALL["gb300-moved"]).differences if "ENGINE_READY" in it]
    assert line == (
        "VLLM_ENGINE_READY_TIMEOUT_S=7200 instead of 3600: operator: deployment.yml timeouts.engine_ready"
    )


def test_a_flag_of_the_recipe_that_the_plan_writes_otherwise_is_shown_with_it() -> None:
    """The engine takes the later one of the two; equal ones are no difference."""
    wanted, catalogue = examples.engine("b300", "single_node_tp", 1), recipes.load_catalogue()
    resolution = resolve.resolve(catalogue, wanted.choice)
    said = Provenance(origin=Origin.SEED, source="recipe")
    told = {}
    for port in ("8000", "9000"):
        (launch,) = resolution.launches
        with_port = replace(launch, flags=(*launch.flags, Flag(tokens=("--port", port), provenance=said)))
        found = host.plan(wanted, catalogue.hardware("b300"), replace(resolution, launches=(with_port,)), {})
        told[port] = [line.partition(": ")[0] for line in found.differences if line.startswith("--port")]
    assert told == {"8000": [], "9000": ["--port 8000 instead of --port 9000"]}
