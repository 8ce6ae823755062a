"""What each rank supervisor says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kimi_infra.deploy.site import Site
from kimi_infra.domain import paths
from kimi_infra.domain.inventory import Deployment, Host
from kimi_infra.errors import HostError
from kimi_infra.observe import hosts, ssh

_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """One rank as its supervisor sees it."""

    deployment: str
    host: str
    rank: int
    answer: Mapping[str, object]
    """What ``kimi-rank status`` printed; empty where there is no supervisor."""
    trouble: str | None
    """Why there is no answer."""


def read(site: Site) -> tuple[RankReport, ...]:
    """Ask every rank's supervisor; a host that does not answer is reported, not raised."""
    reports: list[RankReport] = []
    for deployment in site.inventory.deployments:
        reports.extend(_of(deployment))
    return tuple(reports)


def _of(deployment: Deployment) -> Sequence[RankReport]:
    found = hosts.on_each(deployment.hosts, lambda host: _rank(deployment, host))
    return [found[host.name] for host in deployment.hosts]


def _rank(deployment: Deployment, host: Host) -> RankReport:
    command = (paths.RANK_PROGRAM, "status", "--config", paths.rank_config(deployment.name))
    answer: Mapping[str, object] = {}
    trouble = None
    try:
        answer = _object(json.loads(ssh.run(host, command, timeout=_SECONDS)))
    except (HostError, ValueError, RecursionError) as error:
        trouble = str(error)
    return RankReport(
        deployment=deployment.name, host=host.name, rank=host.rank, answer=answer, trouble=trouble
    )


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{paths.RANK_PROGRAM} printed {type(value).__name__}, not an object")  # noqa: TRY004 -- bad data
    return value
