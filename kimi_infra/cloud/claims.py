"""Which hosts this operation of the engine keeps applied: what the guard before a teardown goes by.

One provider process serves one operation, and the engine checks every resource of the program before it
deletes what the program no longer has.
"""

from __future__ import annotations

from collections.abc import Iterable

from kimi_infra.cloud import stages


class Claims:
    """Hosts of the resources that the program asked for."""

    def __init__(self) -> None:
        self._places: dict[str, set[str]] = {}
        self._created: set[str] = set()

    def asked(self, urn: str, targets: Iterable[str]) -> None:
        """Note that the program has a resource on these hosts, each ``user@address:port``."""
        self._places[urn] = {_place(target) for target in targets}

    def created(self, urn: str) -> None:
        """Note that a resource was created: a Delete of the same URN is of the one that it replaces."""
        self._created.add(urn)

    def deleted(self, urn: str) -> None:
        """Forget a resource."""
        self._places.pop(urn, None)
        self._created.discard(urn)

    def holders(self, urn: str, targets: Iterable[str]) -> list[str]:
        """Return the resources for which these hosts must stay when ``urn`` is deleted, by name.

        The stages of one site share hosts and are taken off one by one: they hold nothing for each other.
        """
        places, own = {_place(target) for target in targets}, stages.site_of_urn(urn)
        return sorted(
            stages.name_of_urn(other)
            for other, held in self._places.items()
            if held & places
            and (other in self._created if other == urn else stages.site_of_urn(other) != own)
        )


def _place(target: str) -> str:
    """Return where a host is, whoever logs in there."""
    return target.rpartition("@")[2]
