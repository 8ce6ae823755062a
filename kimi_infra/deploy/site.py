"""From an inventory directory to what every front end needs of it.

A front end brings what it alone has: the facts of the hosts, its environment, a vault reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kimi_infra.config import recipes
from kimi_infra.deploy import check, layout, roles, secrets
from kimi_infra.deploy import plan as planner
from kimi_infra.domain import names
from kimi_infra.domain.endpoint import Endpoint
from kimi_infra.domain.inventory import Deployment, Host, Inventory, SecretRef
from kimi_infra.domain.plan import DeploymentPlan, HostLayout
from kimi_infra.domain.recipe import Catalogue
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning.host import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A checked inventory and the recipes that it was checked against."""

    inventory: Inventory
    catalogue: Catalogue

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts of all deployments, each once, in the order of the inventory."""
        found = {host.name: host for d in self.inventory.deployments for host in d.hosts}
        return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretStore:
    """What references are resolved against; made by :func:`kimi_infra.converge.vault.secret_store`."""

    environ: Mapping[str, str]
    vault: secrets.VaultReader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Converge:
    """Everything that is applied, per host."""

    plans: tuple[DeploymentPlan, ...]
    layouts: tuple[HostLayout, ...]

    def role_data(self, host: str) -> Mapping[str, roles.Data]:
        """Return what each role gets on ``host``; nothing in it is secret."""
        return roles.host_data(host, self.plans, self.layouts)

    def secret_files(self, host: str) -> Mapping[str, list[roles.Data]]:
        """Return the secret files of ``host`` by deployment."""
        return roles.secret_files(host, self.layouts)


def read(path: Path) -> Site:
    """Read and check an inventory directory; no host is contacted.

    Raises:
        SpecError: holds every fault of both files.
    """
    catalogue = recipes.load_catalogue()
    return Site(inventory=check.check(path, catalogue), catalogue=catalogue)


def read_ready(path: Path) -> Site:
    """Read an inventory that is about to be applied.

    Raises:
        SpecError: holds every fault of both files, or what this version cannot apply.
        NotReadyError: holds every value still to be given.
    """
    site = read(path)
    planner.require_supported(site.inventory, site.catalogue)
    planner.require_ready(site.inventory)
    return site


def offline(site: Site) -> tuple[DeploymentPlan, ...]:
    """Plan without any host; what only a host knows is a placeholder."""
    return planner.plan(site.inventory, site.catalogue, {})


def converge(site: Site, facts: Facts, store: SecretStore) -> Converge:
    """Plan with the facts of all hosts and render every file.

    Raises:
        SpecError: a host contradicts the inventory, or this version cannot apply it.
        NotReadyError: holds every value still to be given.
        MissingFactsError: not all hosts of a deployment were probed.
        SecretError: a secret reference leads nowhere.
    """
    planner.require_supported(site.inventory, site.catalogue)
    planner.require_ready(site.inventory)
    planner.require_facts(site.inventory, facts)
    plans = planner.plan(site.inventory, site.catalogue, facts)
    resolve = resolver(site.inventory, store)
    rendered = tuple(one for plan in plans for one in layout.layouts(plan, resolve))
    return Converge(plans=plans, layouts=rendered)


def resolver(inventory: Inventory, store: SecretStore) -> layout.Resolver:
    """Return the function that turns an inventory's secret references into secrets."""

    def resolve(reference: SecretRef) -> str:
        return secrets.resolve(reference, base=Path(inventory.path), environ=store.environ, vault=store.vault)

    return resolve


def require_secrets(site: Site, store: SecretStore) -> None:
    """Refuse a reference that leads nowhere before any host is contacted.

    Raises:
        SecretError: of the first such reference.
    """
    resolve = resolver(site.inventory, store)
    for found in site.inventory.deployments:
        for reference in (found.api.key, found.hub_token):
            if reference:
                resolve(reference)


def endpoint(inventory: Inventory, deployment: Deployment, store: SecretStore) -> Endpoint:
    """Return where a deployment answers, with its API key.

    Raises:
        SecretError: the key's reference leads nowhere.
    """
    reference = deployment.api.key
    return Endpoint(
        host=deployment.head.name,
        address=deployment.head.address,
        port=deployment.api.port,
        model=deployment.choice.model,
        key=resolver(inventory, store)(reference) if reference else None,
    )


def deployment(site: Site, name: str | None) -> Deployment:
    """Return a deployment by its name, or the first one.

    Raises:
        SpecError: no deployment has this name.
    """
    found = {one.name: one for one in site.inventory.deployments}
    if name is None:
        return site.inventory.deployments[0]
    if name not in found:
        fault = Fault(
            where="deployment", what="no such deployment", got=name, remedy=names.closest(name, found)
        )
        raise SpecError((fault,))
    return found[name]
