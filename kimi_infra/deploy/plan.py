"""The one planning function: the CLI, the Ansible action and the Pulumi provider call it."""

from __future__ import annotations

from kimi_infra.domain.inventory import Deployment, Inventory
from kimi_infra.domain.plan import DeploymentPlan
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import Fault, KimiInfraError, NotReadyError, SpecError
from kimi_infra.planning import host, resolve


class MissingFactsError(KimiInfraError):
    """A rank's host was not probed, and no host can be planned without its peers."""


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
    launches = resolve.resolve(catalogue, deployment.choice)
    return host.plan(deployment, profile, launches, facts)
