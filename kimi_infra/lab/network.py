"""The bridge between the hosts: names and addresses that nobody else uses."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kimi_infra.errors import LabError
from kimi_infra.lab import layout, run

_POOL = ipaddress.IPv4Network("10.188.0.0/16")
_FIRST_HOST = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One lab's /24 on one bridge."""

    bridge: str
    subnet: ipaddress.IPv4Network
    registry_port: int
    apt_port: int

    @property
    def gateway(self) -> str:
        """The controller's own address on the bridge."""
        return str(self.subnet[1])

    @property
    def registry(self) -> str:
        """Host and port of the registry as image names carry it."""
        return f"{self.gateway}:{self.registry_port}"

    def address(self, name: str) -> str:
        """One host's address."""
        return str(self.subnet[_FIRST_HOST + layout.HOST_NAMES.index(name)])


def machine(lab: layout.Layout, name: str) -> str:
    """A host's name on the controller: unlike its hostname, different in each checkout."""
    return f"kl{lab.key}{name.removeprefix('lab-')}"


def link(lab: layout.Layout, name: str) -> str:
    """The controller's end of a host's link, named by systemd-nspawn (15 characters at most)."""
    return f"vb-{machine(lab, name)}"


def chosen(lab: layout.Layout) -> Network | None:
    """What an earlier `up` has chosen, None before the first."""
    try:
        data = json.loads((lab.state / "network.json").read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    return Network(
        bridge=data["bridge"],
        subnet=ipaddress.IPv4Network(data["subnet"]),
        registry_port=data["registry_port"],
        apt_port=data["apt_port"],
    )


def choose(lab: layout.Layout) -> Network:
    """Keep the earlier choice, else take a subnet that no route and no other lab uses, and store it."""
    earlier = chosen(lab)
    if earlier is not None:
        return earlier
    routes = json.loads(run.output(["ip", "-j", "-4", "route", "show", "table", "all"]))
    others = (other.parent for other in lab.state.parent.glob("*/network.json"))
    used = [*destinations(routes), *(_subnet_of(other) for other in others)]
    subnet = free_subnet(used, int(lab.key, 16) % 256)
    network = Network(
        bridge=f"kl{lab.key}br",
        subnet=subnet,
        registry_port=_free_port(5000),
        apt_port=_free_port(3142),
    )
    (lab.state / "network.json").write_text(
        json.dumps(
            {
                "bridge": network.bridge,
                "subnet": str(network.subnet),
                "registry_port": network.registry_port,
                "apt_port": network.apt_port,
            }
        ),
        encoding="ascii",
    )
    return network


def free_subnet(used: Sequence[ipaddress.IPv4Network], first: int) -> ipaddress.IPv4Network:
    """A /24 of our pool that overlaps nothing, looked for from the given one on."""
    subnets = list(_POOL.subnets(new_prefix=24))
    for candidate in subnets[first:] + subnets[:first]:
        if not any(candidate.overlaps(other) for other in used):
            return candidate
    raise LabError(f"{_POOL}: every part of it has a route on this machine; free a /24 of it for the lab")


def destinations(routes: Iterable[dict[str, Any]]) -> tuple[ipaddress.IPv4Network, ...]:
    """Networks of a route table as `ip -j` prints it; the default route covers everything and counts not."""
    found = (route["dst"] for route in routes if route.get("dst", "default") != "default")
    return tuple(ipaddress.IPv4Network(dst, strict=False) for dst in found)


def ensure_bridge(network: Network) -> None:
    """Make the bridge with the controller's address on it, or leave it as it is."""
    if run.attempt(["ip", "link", "show", network.bridge]).returncode != 0:
        run.output(["ip", "link", "add", network.bridge, "type", "bridge"])
    run.output(
        ["ip", "address", "replace", f"{network.gateway}/{network.subnet.prefixlen}", "dev", network.bridge]
    )
    run.output(["ip", "link", "set", network.bridge, "up"])


def exists(name: str) -> bool:
    """Whether the controller has a link of this name."""
    return Path("/sys/class/net", name).exists()


def remove(name: str) -> None:
    """Delete the link if there is one; it may go by itself at the same moment."""
    if exists(name):
        done = run.attempt(["ip", "link", "delete", name])
        if done.returncode != 0 and exists(name):
            raise LabError(f"{name}: the link cannot be deleted: {run.tail(done.stderr)}")


def _subnet_of(folder: Path) -> ipaddress.IPv4Network:
    data = json.loads((folder / "network.json").read_text(encoding="ascii"))
    return ipaddress.IPv4Network(data["subnet"])


def _free_port(first: int) -> int:
    # A packaged daemon may listen on all addresses, ours on the bridge included.
    for port in range(first, first + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))  # noqa: S104 - a test for a free port; nothing listens
            except OSError:
                continue
        return port
    raise LabError(f"ports {first} to {first + 99}: all taken on this machine; free one for the lab")
