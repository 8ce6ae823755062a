"""What hosts run otherwise than the recipe page shows, and why; for people."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import Resolution

_DEVICES = {
    "NVIDIA": "CDI devices instead of --gpus all --privileged: "
    "they survive a daemon-reload and open nothing else",
    "AMD": "device nodes, SYS_PTRACE and no seccomp profile instead of --privileged: nothing else is opened; "
    "no group is added because the container's root opens the nodes",
}
"""By brand."""
_NODES = "device nodes, each by its name, instead of --privileged: nothing else is opened"
_NO_DEVICE = "no --privileged: this hardware needs no device"
_ROUTER = (
    "the router listens on the engine address of the first prefill host, at the port of deployment.yml's api",
    "/dev/infiniband in every container: NIXL moves the cache between the pools over RDMA",
)


def listed(profile: HardwareProfile, resolution: Resolution) -> tuple[str, ...]:
    """Return each difference with its reason."""
    return tuple(_listed(profile, resolution))


def _listed(profile: HardwareProfile, resolution: Resolution) -> Iterator[str]:
    yield "host network instead of -p 8000:8000: ranks also meet on ephemeral ports, in both directions"
    yield _DEVICES.get(profile.brand, _NODES) if profile.devices else _NO_DEVICE
    yield "the image by its ID with pulling switched off: what was verified is what runs"
    yield "weights read-only from one plain path, served under the model id: the page's client call works"
    yield "VLLM_HOST_IP per host: without it two hosts advertise the address of their default route"
    yield "the interface variables hold each host's own device: names differ between hosts"
    yield "secrets in a 0600 env file: a flag would show them in ps and in docker inspect"
    yield "--shutdown-timeout: without it a stop drops open requests without an answer"
    yield "--log-driver none: the journal has the engine's lines; docker's own copy grows without a bound"
    yield "compile and graph caches kept on the host: a restart does not compile again"
    if resolution.router:
        yield from _ROUTER
