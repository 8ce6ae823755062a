"""Ask hosts over ssh, all at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kimi_infra.deploy.site import Site
from kimi_infra.domain.facts import HostFacts
from kimi_infra.domain.inventory import Host
from kimi_infra.observe import probe, ssh

PROBE_SECONDS = 60
"""For connection, sudo and the probe itself, which has a shorter limit of its own."""

T = TypeVar("T")


def probe_all(site: Site) -> Mapping[str, HostFacts]:
    """Return the facts of every host of a site.

    Raises:
        HostError: of the first host, in inventory order, that did not answer.
    """

    def one(host: Host) -> HostFacts:
        command = probe.command(probe.request(site.inventory, host.name))
        answer = ssh.run(host, command, stdin=probe.source(), timeout=PROBE_SECONDS)
        return probe.parse(host.name, answer)

    return on_each(site.hosts, one)


def on_each(hosts: Sequence[Host], call: Callable[[Host], T]) -> Mapping[str, T]:
    """Call a function for every host at the same time and return the results by name."""
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        results = list(pool.map(call, hosts))
    return {host.name: result for host, result in zip(hosts, results, strict=True)}
