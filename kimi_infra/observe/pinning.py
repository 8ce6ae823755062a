"""Whether the ssh that Ansible will run believes the host keys of the inventory, and nothing else.

ssh itself is asked (``ssh -G`` contacts nobody): of several values it takes the first, wherever they come
from, and its rules are not told again here.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kimi_infra.errors import Fault

_SECONDS = 10
"""For ssh to read its configuration, which may run programs of the operator's (``Match exec``)."""
_ELSEWHERE = "ssh's own configuration files"
_ANYONES = "GSSAPIKeyExchange"
"""Only some builds of ssh know it (Debian's, Red Hat's): Kerberos then vouches for the host, not its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Words of one setting on ssh's command line."""

    source: str
    """Where the setting comes from, as the operator knows it."""
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One way in which one host is about to be reached."""

    host: str
    address: str
    host_key: str
    program: str
    """ssh, or what stands for it."""
    given: tuple[Given, ...]
    """In the order of the command line; the pins are in the last."""


def faults(clients: Iterable[Client]) -> tuple[Fault, ...]:
    """Find what decides about host keys in place of the pins; one fault for all hosts that share it."""
    found: dict[Fault, list[str]] = {}
    for client in clients:
        for fault in _faults(client):
            hosts = found.setdefault(fault, [])
            if client.host not in hosts:
                hosts.append(client.host)
    return tuple(replace(one, what=f"{one.what} of {', '.join(hosts)}") for one, hosts in found.items())


def _faults(client: Client) -> Iterator[Fault]:
    """Find the faults of one client; each ``what`` is still to be followed by the host."""
    try:
        holds = _effective(client)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        sources = ", ".join(dict.fromkeys(one.source for one in client.given))
        remedy = "mend the options, so that ssh -G takes them"
        what = f"{client.program} refuses the options"
        yield Fault(where=sources, what=what, got=" ".join(said.split()), remedy=remedy)
        return
    wrong = {
        option: value
        for option, value in _pinned(client.host_key).items()
        if holds.get(option.lower()) != value
    }
    if _ANYONES.lower() not in holds:
        wrong.pop(_ANYONES, None)
    for option, value in wrong.items():
        source = _source(client, option)
        if source is None and option != _ANYONES:
            # Nobody names an option that the pins end with.
            yield Fault(
                where=client.given[-1].source,
                what="this stands in place of the pinned host keys",
                got=shlex.join(client.given[-1].words),
                remedy="remove it; other options of ssh go to ansible_ssh_common_args",
            )
            return
        yield Fault(
            where=source or _ELSEWHERE,
            what=f"{option} would win over the pinned host keys",
            got=holds.get(option.lower(), "none"),
            remedy=f"take {option} out there; the keys come from host_key"
            if source
            else f"write ansible_ssh_common_args: -o {option}={value}",
        )


def _pinned(host_key: str) -> Mapping[str, str]:
    """Return what must hold, in the spelling of ``ssh -G``."""
    return {
        "KnownHostsCommand": f"/usr/bin/echo %H {' '.join(host_key.split())}",
        "StrictHostKeyChecking": "true",
        "UserKnownHostsFile": "/dev/null",
        "GlobalKnownHostsFile": "/dev/null",
        "VerifyHostKeyDNS": "false",
        "NoHostAuthenticationForLocalhost": "no",
        _ANYONES: "no",
    }


def _source(client: Client, option: str) -> str | None:
    """Return what names an option first, and so decides it."""
    for one in client.given:
        if any(option.lower() in word.lower() for word in one.words):
            return one.source
    return None


def _effective(client: Client) -> Mapping[str, str]:
    """Return the options that hold, names in lower case."""
    words = [word for one in client.given for word in one.words]
    done = subprocess.run(
        [client.program, "-G", *words, client.address],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_SECONDS,
        check=True,
    )
    pairs = (line.partition(" ") for line in done.stdout.splitlines())
    return {name: " ".join(value.split()) for name, _, value in pairs}
