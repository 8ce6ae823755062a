"""What the probe found on one host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One host's answer to one probe."""

    boot_id: str
    """The kernel's random id of this boot; the only proof of a reboot."""
    architecture: str
    """``x86_64`` or ``aarch64``, as ``uname -m`` says."""
    devices: Mapping[str, str]
    """Address of this host -> device that carries it, links that are down left out."""
    routes: Mapping[str, str]
    """Asked address -> device of the route to it; addresses without a route are left out."""
    images: Mapping[str, str]
    """Asked image reference -> image ID (``sha256:...``); absent images are left out."""
    paths: Mapping[str, str]
    """Asked path -> ``file``, ``directory`` or ``missing``."""
    docker: str | None
    """Version of the docker daemon, None when there is none."""
    memory_total: int
    """Bytes of all NUMA nodes that have CPUs."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Path whose content was asked for -> content hash (see :mod:`kimi_infra.hostside.probe`)."""
    os_release: str = ""
    """Distribution and version, for example ``debian 13``."""
    errors: tuple[str, ...] = ()
    """Facts that could not be found, each with its reason."""
