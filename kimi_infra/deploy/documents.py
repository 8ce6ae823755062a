"""Plans as documents: JSON for programs, rendered commands for people; no host is asked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import Enum
from fractions import Fraction

from kimi_infra import hostside
from kimi_infra.deploy import layout, site
from kimi_infra.domain import fill_in, paths
from kimi_infra.domain.capacity import Capacity
from kimi_infra.domain.inventory import SecretRef
from kimi_infra.domain.plan import DeploymentPlan
from kimi_infra.errors import Need
from kimi_infra.planning import resolve
from kimi_infra.rendering import docker, docker_page, plan_text, shell


def plan_json(plans: Sequence[DeploymentPlan], needs: Sequence[Need]) -> str:
    """Return plans as JSON: everything of the domain values, and each rank's whole command."""
    document = {
        "deployments": [_plan(plan) for plan in plans],
        "needed_before_applying": [asdict(need) for need in needs],
    }
    return json.dumps(document, indent=2, default=_plain)


def rendered(found: site.Site, form: str) -> str:
    """Return an inventory's commands as ``shell``, ``docker``, ``systemd`` or ``json``.

    The page's two forms are those of the choice with the operator's image; the shell form holds none, and
    names it in front where it is not the recipe's.
    Several deployments follow each other, each under its name.
    """
    plans = site.offline(found)
    if form == "json":
        return plan_json(plans, found.inventory.needs) + "\n"
    blocks = [_rendered(found, plan, form) for plan in plans]
    if len(blocks) == 1:
        return blocks[0]
    names = [plan.deployment.name for plan in plans]
    return "\n".join(f"# Deployment {name}\n{block}" for name, block in zip(names, blocks, strict=True))


def _rendered(found: site.Site, plan: DeploymentPlan, form: str) -> str:
    if form == "systemd":
        return "\n".join(_files(plan))
    resolution = resolve.resolve(found.catalogue, plan.deployment.choice)
    image = fill_in.image(plan.deployment.image)
    if form == "shell":
        other = any(launch.image != image for launch in resolution.launches)
        told = f"# In image {shell.quote(image)}\n" if other else ""
        return told + shell.resolution(resolution)
    launches = tuple(dataclasses.replace(launch, image=image) for launch in resolution.launches)
    return docker_page.resolution(dataclasses.replace(resolution, launches=launches))


def _files(plan: DeploymentPlan) -> Iterator[str]:
    """Yield every file that hosts get under its place; of secrets and of our own programs no content."""
    programs = hostside.rank_files()
    for found in layout.layouts(plan, _unread):
        yield f"# {found.host}: {paths.PROGRAM_ROOT} (not shown: the rank supervisor's own files)\n"
        for file in (file for file in found.files if file.path not in programs):
            head = f"# {found.host}: {file.path}"
            if file.secret:
                yield f"{head} (not shown: holds secrets)\n"
            else:
                yield f"{head}\n{file.content}"


def _unread(_: SecretRef) -> str:
    """Stand for a secret where none is looked up."""
    return "<secret>"


def _plan(plan: DeploymentPlan) -> dict[str, object]:
    return {
        **asdict(plan),
        "capacity": {name: _capacity(held) for name, held in plan.capacity.items()},
        "origins": {origin.value: count for origin, count in plan.origins.items()},
        "not_acted_on": plan_text.not_acted_on(plan),
        "hash": layout.plan_hash(plan),
        "commands": {rank.host.name: docker.run_argv(rank) for rank in plan.ranks},
    }


def _capacity(held: Capacity) -> dict[str, object]:
    answers = {"fits": held.fits, "tokens": held.tokens, "full_contexts": held.full_contexts}
    return {**answers, **asdict(held)}


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
