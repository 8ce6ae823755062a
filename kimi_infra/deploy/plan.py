"""The one planning function: the CLI, the Ansible action and the Pulumi provider call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from kimi_infra.deploy import check
from kimi_infra.domain.capacity import Capacity
from kimi_infra.domain.inventory import Deployment, Inventory
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.plan import DeploymentPlan
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import Fault, KimiInfraError, NotReadyError, SpecError
from kimi_infra.planning import capacity, host, placement, presets, resolve


class MissingFactsError(KimiInfraError):
    """A rank's host was not probed, and no host can be planned without its peers."""


_CLUSTER = (
    "prefill/decode clusters are planned and rendered, not applied yet: missing are the supervision of pools "
    "that have several APIs, the router's unit and its readiness"
)
_REPLICAS = (
    "replicas on several nodes are planned and rendered, not applied yet: missing are the proof that a "
    "node has joined, to which rank 0 need not connect here, and the check of its ranks"
)


def plan(inventory: Inventory, catalogue: Catalogue, facts: host.Facts) -> tuple[DeploymentPlan, ...]:
    """Plan every deployment of an inventory.

    Args:
        inventory: As :func:`kimi_infra.deploy.check.check` returned it.
        catalogue: The recipes.
        facts: By host name; empty for an offline plan, in which what only a host knows is a placeholder.

    Raises:
        SpecError: a choice does not fit its recipe, or a host contradicts the inventory.
    """
    faults: list[Fault] = []
    plans = []
    for deployment in inventory.deployments:
        try:
            plans.append(_plan(deployment, catalogue, facts))
        except SpecError as error:
            faults.extend(error.faults)
    if faults:
        raise SpecError(tuple(faults))
    return tuple(plans)


def require_supported(inventory: Inventory, catalogue: Catalogue) -> None:
    """Refuse to apply what no rank supervisor can watch.

    Raises:
        SpecError: names each such deployment and what is missing for it.
    """
    faults = tuple(_unsupported(inventory, catalogue))
    if faults:
        raise SpecError(faults)


def _unsupported(inventory: Inventory, catalogue: Catalogue) -> Iterator[Fault]:
    for index, deployment in enumerate(inventory.deployments):
        launches = resolve.resolve(catalogue, deployment.choice).launches
        replicas = any(engine.spread_replicas for engine in placement.engines(deployment, launches))
        if deployment.pools or replicas:
            yield Fault(
                where=f"deployment.yml: deployments[{index}].strategy",
                what=_CLUSTER if deployment.pools else _REPLICAS,
                got=deployment.choice.strategy,
                remedy="use a layout of one replica, or run the commands of kimi-infra render",
            )


def require_ready(inventory: Inventory) -> None:
    """Refuse to apply an inventory in which values are still to be given.

    Raises:
        NotReadyError: holds all of them.
    """
    if inventory.needs:
        raise NotReadyError(inventory.needs)


def require_facts(inventory: Inventory, facts: host.Facts) -> None:
    """Refuse to apply with the facts of only some of a deployment's hosts.

    Raises:
        MissingFactsError: names the hosts.
    """
    names = [rank.name for deployment in inventory.deployments for rank in deployment.hosts]
    missing = sorted({name for name in names if name not in facts})
    if missing:
        raise MissingFactsError(
            f"{', '.join(missing)}: not probed in this run; ranks are planned together, "
            "so run without --limit and mend or remove hosts that do not answer"
        )


def _plan(deployment: Deployment, catalogue: Catalogue, facts: host.Facts) -> DeploymentPlan:
    profile = catalogue.hardware(deployment.choice.hardware)
    resolution = resolve.resolve(catalogue, deployment.choice)
    needs = (*check.needs_of(resolution), *check.image_needs(resolution, deployment.image))
    compiled = dataclasses.replace(resolution, needs=needs)
    planned = host.plan(deployment, profile, compiled, facts)
    try:
        held = _capacity(deployment, catalogue, compiled)
    except SpecError as error:
        where = f"deployment.yml: command of {deployment.name}"
        faults = (dataclasses.replace(fault, where=f"{where}: {fault.where}") for fault in error.faults)
        raise SpecError(tuple(faults)) from error
    return dataclasses.replace(planned, capacity=held)


def _capacity(deployment: Deployment, catalogue: Catalogue, resolution: Resolution) -> Mapping[str, Capacity]:
    choice = presets.expanded(catalogue, deployment.choice)
    recipe = catalogue.recipe(choice.model)
    if recipe.cache is None:
        return {}
    features = choice.features
    if features is None:
        features = recipe.default_features(choice.strategy, choice.hardware, choice.variant)
    return {
        engine.pool or "engine": capacity.assess(
            recipe.cache,
            catalogue.hardware(choice.hardware),
            launches=[member.launch for member in engine.members],
            nodes=len(engine.members),
            features=features,
        )
        for engine in placement.engines(deployment, resolution.launches)
    }
