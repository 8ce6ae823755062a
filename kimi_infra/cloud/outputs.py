"""The outputs of a stage: its inputs, what was found, and for serving ranks where they answer."""

from __future__ import annotations

from collections.abc import Mapping

from kimi_infra.cloud import wire
from kimi_infra.cloud.outcome import RunResult
from kimi_infra.cloud.stages import SERVE, Stage
from kimi_infra.deploy import layout, site
from kimi_infra.deploy import plan as planner
from kimi_infra.domain.endpoint import Endpoint
from kimi_infra.domain.facts import HostFacts
from kimi_infra.domain.inventory import Deployment
from kimi_infra.errors import KimiInfraError
from kimi_infra.observe import probe

FOUND = ("inSync", "drift", "applied", "endpoints", "imageIds", "planHashes", "restartRequired")
"""Every output that is no input."""


def after(
    stage: Stage, inputs: Mapping[str, object], result: RunResult, found: site.Site, applied: int
) -> dict[str, object]:
    """Return the outputs after an apply, a failed one included."""
    drift = [] if result.successful else [{**one} for one in result.drift() if "failure" in one]
    return {
        **inputs,
        "inSync": result.successful,
        "drift": drift,
        "applied": applied,
        **(_serving(inputs, result, found) if stage is SERVE else {}),
    }


def refreshed(
    stage: Stage, inputs: Mapping[str, object], old: Mapping[str, object], result: RunResult, found: site.Site
) -> dict[str, object]:
    """Return the outputs after a look at the hosts."""
    drift = result.drift()
    return {
        **inputs,
        "inSync": result.successful and not drift,
        "drift": drift,
        "applied": old.get("applied", 0),
        **(_serving(inputs, result, found) if stage is SERVE else {}),
    }


def previewed(stage: Stage, inputs: Mapping[str, object], found: site.Site | None) -> dict[str, object]:
    """Return the outputs that an apply is going to have, as far as they are known before it."""
    unknown = dict.fromkeys(("applied", "imageIds", "planHashes", "restartRequired"), wire.UNKNOWN)
    serving = {**unknown, "endpoints": _endpoints(inputs, found) if found else wire.UNKNOWN}
    return {
        **inputs,
        "inSync": True,
        "drift": [],
        **(serving if stage is SERVE else {"applied": wire.UNKNOWN}),
    }


def _endpoints(inputs: Mapping[str, object], found: site.Site) -> object:
    """Return where each deployment answers; an address may be a secret of the program's."""
    urls = {each.name: _endpoint(each).url for each in found.inventory.deployments}
    return wire.marked(urls, inputs.get("hosts"))


def _endpoint(each: Deployment) -> Endpoint:
    head = each.head
    return Endpoint(host=head.name, address=head.address, port=each.api.port, model=each.choice.model)


def _serving(inputs: Mapping[str, object], result: RunResult, found: site.Site) -> dict[str, object]:
    facts = _facts(result)
    return {
        "endpoints": _endpoints(inputs, found),
        "imageIds": {each.name: _images(each, facts) for each in found.inventory.deployments},
        "planHashes": _plan_hashes(found, facts),
        "restartRequired": dict(result.restarts),
    }


def _facts(result: RunResult) -> dict[str, HostFacts]:
    facts = {}
    for host, answer in result.answers.items():
        try:
            facts[host] = probe.parse(host, answer)
        except KimiInfraError:
            # The run has failed for it already, in the host's own words.
            continue
    return facts


def _images(each: Deployment, facts: Mapping[str, HostFacts]) -> dict[str, str]:
    """Return the image ID on each host; hosts without the image are left out."""
    reference = each.image.reference
    return {
        host.name: facts[host.name].images[reference]
        for host in each.hosts
        if host.name in facts and reference in facts[host.name].images
    }


def _plan_hashes(found: site.Site, facts: Mapping[str, HostFacts]) -> dict[str, str]:
    """Return what each whole group is to run; empty before all hosts are known, or while one contradicts."""
    if any(host.name not in facts for host in found.hosts):
        return {}
    try:
        plans = planner.plan(found.inventory, found.catalogue, facts)
    except KimiInfraError:
        # The run has planned from the same facts and failed, in words of its own that must be kept.
        return {}
    return {each.deployment.name: layout.plan_hash(each) for each in plans}
