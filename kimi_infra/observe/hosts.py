"""Ask hosts over ssh, all at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kimi_infra.deploy.site import Site
from kimi_infra.domain.facts import HostFacts
from kimi_infra.domain.inventory import Host
from kimi_infra.errors import HostError, KimiInfraError
from kimi_infra.observe import probe, ssh

PROBE_SECONDS = 60
"""For connection, sudo and the probe itself, which has a shorter limit of its own."""

T = TypeVar("T")


class HostsError(KimiInfraError, OSError):
    """Hosts gave no answer: holds the error of each, never just the first."""

    def __init__(self, errors: tuple[HostError, ...]) -> None:
        self.errors = errors
        super().__init__("\n".join(str(error) for error in errors))


def probe_all(site: Site) -> Mapping[str, HostFacts]:
    """Return the facts of every host of a site.

    Raises:
        HostsError: holds every host that did not answer, in the order of the inventory.
    """

    def one(host: Host) -> HostFacts:
        command = probe.command(probe.request(site.inventory, host.name))
        answer = ssh.run(host, command, stdin=probe.source(), timeout=PROBE_SECONDS)
        return probe.parse(host.name, answer)

    return on_each(site.hosts, one)


def on_each(hosts: Sequence[Host], call: Callable[[Host], T]) -> Mapping[str, T]:
    """Call a function for every host at the same time and return the results by name.

    Raises:
        HostsError: holds the :class:`HostError` of each host for which the function raised one.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        started = {host.name: pool.submit(call, host) for host in hosts}
    results: dict[str, T] = {}
    errors: list[HostError] = []
    for name, future in started.items():
        try:
            results[name] = future.result()
        except HostError as error:
            errors.append(error)
    if errors:
        raise HostsError(tuple(errors))
    return results
