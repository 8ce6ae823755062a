"""The inputs of a stage. The first five are the program's, the others are computed by Check.

They live in state and are all that a Delete gets, so nothing here may change its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kimi_infra.cloud import wire

GIVEN = ("inventory", "hosts", "secrets", "consent", "onDelete", "after")
"""What a program gives."""
COMPUTED = ("targets", "sources", "plan", "allowed")
"""What Check adds, so that whatever a stage depends on is an ordinary difference of inputs."""
CONSENTS = ("", "restart")
ON_DELETE = ("retain", "teardown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A stage's inputs, all known, secrets in clear."""

    inventory: str
    """Inventory directory, relative to the Pulumi project."""
    hosts: Mapping[str, Mapping[str, object]] = field(default_factory=dict, repr=False)
    """Host name -> values that win over those in hosts.yml."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variable that the inventory refers to -> its value."""
    consent: str = ""
    """``restart``: this stack may disturb what serves."""
    on_delete: str = "retain"
    targets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Host name -> ``user@address:port`` at the time of the Check."""
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Every text that the program marked as secret."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Inputs:
        """Return the inputs in a resource's properties.

        Raises:
            ValueError: something is not known yet, or this is no resource of ours.
        """
        if wire.has_unknown(dict(values)):
            raise ValueError("the inputs are not all known")
        plain: Any = wire.reveal(dict(values))
        if "inventory" not in plain:
            raise ValueError("the resource has no inventory")
        return cls(
            inventory=plain["inventory"],
            hosts=plain.get("hosts") or {},
            secrets=plain.get("secrets") or {},
            consent=plain.get("consent") or "",
            on_delete=plain.get("onDelete") or "retain",
            targets=plain.get("targets") or {},
            hidden=secret_texts(values),
        )


def secret_texts(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return every text that the program marked as secret.

    What Check computes is marked as a whole, harmless words among it, and holds no other secret.
    """
    given = {name: value for name, value in values.items() if name in GIVEN}
    return tuple(dict.fromkeys(wire.secret_texts(given)))
