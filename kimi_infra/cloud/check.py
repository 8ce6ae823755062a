"""Check: refuse inputs that cannot be applied, all faults at once, and compute what a stage depends on."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kimi_infra.cloud import desired, inputs, propertypath, sources, wire
from kimi_infra.cloud.context import Context
from kimi_infra.cloud.stages import Stage
from kimi_infra.converge import overlay, redaction, worker
from kimi_infra.deploy import site
from kimi_infra.domain import names
from kimi_infra.domain.inventory import SecretSource
from kimi_infra.errors import KimiInfraError, NotReadyError, SecretError, SpecError

_GIVEN = re.compile(rf"hosts\.yml: {overlay.GROUP}\.hosts(\..*)?")
"""Place of a fault in a value that came in by the input ``hosts``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One thing that is wrong with a resource's inputs."""

    property: str
    """Property path."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What Check answers."""

    inputs: Mapping[str, object]
    failures: tuple[Failure, ...]


def check(stage: Stage, news: Mapping[str, object], context: Context) -> Checked:
    """Check a stage's inputs; contacts no host, and no reason holds a secret."""
    done = _checked(stage, news, context)
    redactor = redaction.Redactor(inputs.secret_texts(news))
    failures = tuple(
        Failure(property=one.property, reason=redactor.text(one.reason)) for one in done.failures
    )
    return Checked(inputs=done.inputs, failures=failures)


def _checked(stage: Stage, news: Mapping[str, object], context: Context) -> Checked:
    given = {name: value for name, value in news.items() if value is not None and name not in inputs.COMPUTED}
    failures = tuple(_shape(given))
    if failures:
        return Checked(inputs=given, failures=failures)
    completed = {"onDelete": "retain", **given}
    if isinstance(given["inventory"], wire.Unknown):
        return Checked(inputs={**completed, **_unknown(*inputs.COMPUTED)}, failures=())
    inventory = context.resolve(str(wire.reveal(given["inventory"])))
    if not inventory.is_dir():
        reason = f"no such directory (got {given['inventory']}); it is relative to the Pulumi project"
        return Checked(inputs=completed, failures=(Failure(property="inventory", reason=reason),))
    computed, faults = _inventory(stage, given, inventory, context)
    return Checked(inputs={**completed, **computed}, failures=tuple(faults))


def _inventory(
    stage: Stage, given: Mapping[str, object], inventory: Path, context: Context
) -> tuple[dict[str, object], list[Failure]]:
    computed: dict[str, object] = {"sources": sources.hashes(stage, context.tree, inventory)}
    hosts: Any = given.get("hosts") or {}
    if wire.has_unknown(hosts):
        # Which hosts these are, another resource has still to say.
        return {**computed, **_unknown("targets", "plan", "allowed")}, []
    try:
        plain: Any = wire.reveal(hosts)
        found = read(inventory, plain)
        failures = [*_strangers(plain, found), *_secrets(given, found, context)]
        computed |= {
            "targets": wire.marked(desired.targets(found), hosts),
            "plan": wire.marked(desired.plan(stage, found), hosts),
            "allowed": desired.allowed(found),
        }
    except (SpecError, NotReadyError) as error:
        return computed, list(_faults(error))
    except KimiInfraError as error:
        return computed, [Failure(property="inventory", reason=str(error))]
    return computed, failures


def read(inventory: Path, hosts: object) -> site.Site:
    """Read an inventory with the values given for its hosts.

    Raises:
        SpecError: holds every fault.
        NotReadyError: values are still to be given.
    """
    if not hosts or not isinstance(hosts, dict):
        return site.read_ready(inventory)
    with tempfile.TemporaryDirectory(prefix="kimi-check-", dir=worker.memory_folder({})) as folder:
        return site.read_ready(overlay.write(inventory, hosts, Path(folder)))


def _shape(given: Mapping[str, object]) -> Iterator[Failure]:
    """Yield what is wrong without a look into the inventory."""
    for name in given:
        if name not in inputs.GIVEN:
            yield Failure(
                property=propertypath.joined("", name),
                reason=f"no such input; {names.closest(name, inputs.GIVEN)}",
            )
    kinds = {"inventory": str, "hosts": dict, "secrets": dict, "consent": str, "onDelete": str, "after": dict}
    for name, kind in kinds.items():
        value = given.get(name)
        plain = value.value if isinstance(value, wire.Secret) else value
        if name == "inventory" and not plain:
            yield Failure(property=name, reason="required: the inventory directory")
        elif plain is not None and not isinstance(plain, (kind, wire.Unknown)):
            yield Failure(property=name, reason=f"{'a text' if kind is str else 'a map'} is expected")
    for name, valid in (("consent", inputs.CONSENTS), ("onDelete", inputs.ON_DELETE)):
        value = wire.reveal(given.get(name))
        if isinstance(value, str) and value not in valid:
            words = " or ".join(repr(word) for word in valid)
            yield Failure(property=name, reason=f"{words} is expected (got {value!r})")
    yield from _entries(given)


def _entries(given: Mapping[str, object]) -> Iterator[Failure]:
    """Yield what is wrong with single entries of the maps."""
    for name, kind, words in (("hosts", dict, "a map of variables"), ("secrets", str, "a text")):
        value = given.get(name)
        entries = value.value if isinstance(value, wire.Secret) else value
        for key, entry in entries.items() if isinstance(entries, dict) else ():
            plain = entry.value if isinstance(entry, wire.Secret) else entry
            if not isinstance(plain, (kind, wire.Unknown)):
                yield Failure(property=propertypath.joined(name, str(key)), reason=f"{words} is expected")


def _strangers(hosts: Mapping[str, object], found: site.Site) -> Iterator[Failure]:
    known = [host.name for host in found.hosts]
    for name in hosts:
        if name not in known:
            yield Failure(
                property=propertypath.joined("hosts", name),
                reason=f"no deployment has this host; {names.closest(name, known)}",
            )


def _secrets(given: Mapping[str, object], found: site.Site, context: Context) -> Iterator[Failure]:
    secrets: Any = given.get("secrets") or {}
    if wire.has_unknown(secrets):
        return
    plain: Any = wire.reveal(secrets)
    if plain and context.passphrase_fault:
        yield Failure(property="secrets", reason=context.passphrase_fault)
    references = desired.references(found.inventory)
    named = [ref.key for ref in references if ref.source is SecretSource.ENV]
    for name in plain:
        if name not in named:
            remedy = names.closest(name, named) if named else "remove it"
            yield Failure(
                property=propertypath.joined("secrets", name),
                reason=f"no {{env: …}} of deployment.yml asks for it; {remedy}",
            )
    resolve = site.resolver(found.inventory, context.store(plain, named))
    for reference in references:
        try:
            resolve(reference)
        except SecretError as error:
            remedy = "" if reference.source is not SecretSource.ENV else _in_pulumi(reference.key)
            yield Failure(property="secrets", reason=f"{error}{remedy}")


def _in_pulumi(name: str) -> str:
    return f", or give it to the stack: pulumi config set --secret --path 'secrets[\"{name}\"]'"


def _faults(error: SpecError | NotReadyError) -> Iterator[Failure]:
    if isinstance(error, SpecError):
        for fault in error.faults:
            yield Failure(property=_property(fault.where), reason=str(fault))
    else:
        for need in error.needs:
            yield Failure(property=_property(need.where), reason=f"needed before applying: {need}")


def _property(where: str) -> str:
    """Return the input that a place in an inventory belongs to."""
    given = _GIVEN.fullmatch(where)
    if given is None:
        return "inventory"
    path = "hosts"
    for step in re.findall(r"\.([\w-]+)|\[([^\]]+)\]", given[1] or ""):
        path = propertypath.joined(path, step[0] or step[1])
    return path


def _unknown(*properties: str) -> dict[str, object]:
    return dict.fromkeys(properties, wire.UNKNOWN)
