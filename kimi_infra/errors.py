"""The one hierarchy of errors.

A message says where the fault is, what is wrong, which value was found and what to do about it.
The same facts are fields, so that a caller never has to parse a message.
"""

from __future__ import annotations

from dataclasses import dataclass


class KimiInfraError(Exception):
    """Root of everything that kimi_infra raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with an input."""

    where: str
    """File and path inside it, for example ``hosts.yml: kimi.hosts.tray-a.node_rank``."""
    what: str
    """What is wrong, as a clause without a full stop."""
    got: str | None = None
    """The value found, as the operator wrote it; None where there is none to show (or it is secret)."""
    remedy: str
    """What to do, as an imperative clause without a full stop."""

    def __str__(self) -> str:
        got = "" if self.got is None else f" (got {self.got})"
        return f"{self.where}: {self.what}{got}; {self.remedy}"


class SpecError(KimiInfraError, ValueError):
    """An input cannot be accepted; holds every fault found, never just the first."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        noun = "fault" if len(faults) == 1 else "faults"
        lines = "\n".join(f"  {fault}" for fault in faults)
        super().__init__(f"{len(faults)} {noun}:\n{lines}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A value that planning can do without and applying cannot."""

    where: str
    """File and path inside it."""
    what: str
    """What is needed and how to get it."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class NotReadyError(KimiInfraError):
    """The inventory may be planned, but not applied: some values are still to be given."""

    def __init__(self, needs: tuple[Need, ...]) -> None:
        self.needs = needs
        lines = "\n".join(f"  {need}" for need in needs)
        super().__init__(f"needed before applying:\n{lines}")


class UnsafeTextError(KimiInfraError, ValueError):
    """A value cannot be written in the target's syntax without changing it."""


class SecretError(KimiInfraError, LookupError):
    """A secret reference leads nowhere; the message never holds the secret."""


class HostError(KimiInfraError, OSError):
    """A host could not be reached or its answer could not be understood."""

    def __init__(self, host: str, what: str, remedy: str) -> None:
        self.host, self.what, self.remedy = host, what, remedy
        super().__init__(f"{host}: {what}; {remedy}")


class LabError(KimiInfraError, RuntimeError):
    """The lab could not do what was asked."""
