"""Values that many tests start from; each test changes the one thing that it is about."""

from __future__ import annotations

from dataclasses import replace

from kimi_infra.domain.facts import HostFacts
from kimi_infra.domain.inventory import (
    Api,
    Choice,
    Deployment,
    Host,
    ImageChoice,
    PoolChoice,
    Ports,
    SecretRef,
    SecretSource,
)

DIGEST = "sha256:" + "d" * 64
IMAGE_ID = "sha256:" + "1" * 64


def host(rank: int, **changes: object) -> Host:
    """Return the host of a rank: tray-a, tray-b, ..."""
    name = f"tray-{chr(ord('a') + rank)}"
    example = Host(
        name=name,
        address=f"192.0.2.{11 + rank}",
        user="ops",
        port=22,
        host_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGU",
        engine_address=f"198.51.100.{11 + rank}",
        rank=rank,
    )
    return replace(example, **changes)  # type: ignore[arg-type]


def deployment(**changes: object) -> Deployment:
    """Return the two trays of the recipe page."""
    example = Deployment(
        name="kimi",
        group="kimi",
        hosts=(host(0), host(1)),
        choice=Choice(
            model="moonshotai/Kimi-K3.1-Pro",
            hardware="gb300",
            strategy="multi_node_tp",
            nodes=2,
            features=("tool_calling", "reasoning"),
        ),
        image=ImageChoice(name="vllm/vllm-openai:kimi-k31", digest=DIGEST),
        model_path="/srv/models/Kimi-K3.1-Pro",
        model_sha256=None,
        api=Api(port=8000, key=SecretRef(source=SecretSource.ENV, key="KIMI_API_KEY")),
        hub_token=None,
        ports=Ports(),
    )
    return replace(example, **changes)  # type: ignore[arg-type]


def engine(hardware: str, strategy: str, nodes: int, **changes: object) -> Deployment:
    """Return a deployment of one engine; changes are those of its choice."""
    choice = replace(
        deployment().choice,
        hardware=hardware,
        strategy=strategy,
        nodes=nodes,
        **changes,  # type: ignore[arg-type]
    )
    return deployment(choice=choice, hosts=tuple(host(rank) for rank in range(nodes)))


def cluster(**changes: object) -> Deployment:
    """Return six GB300 trays: tray-a and tray-b prefill, tray-c to tray-f decode."""
    pools = {"prefill": PoolChoice(nodes=2), "decode": PoolChoice(nodes=4)}
    choice = replace(deployment().choice, strategy="pd_cluster", nodes=6, pools=pools)
    hosts = [replace(host(number), rank=number if number < 2 else number - 2) for number in range(6)]
    api = replace(deployment().api, port=30000)
    return deployment(**{"choice": choice, "hosts": tuple(hosts), "api": api, **changes})


def facts(rank: int, **changes: object) -> HostFacts:
    """Return what the probe finds on the host of a rank; the devices differ between hosts on purpose."""
    own, device = f"198.51.100.{11 + rank}", f"enP{rank}p1"
    example = HostFacts(
        boot_id=f"boot-{rank}",
        architecture="aarch64",
        devices={own: device, f"192.0.2.{11 + rank}": "eth0", "127.0.0.1": "lo"},
        routes={},
        images={f"vllm/vllm-openai@{DIGEST}": IMAGE_ID},
        paths={"/srv/models/Kimi-K3.1-Pro": "directory"},
        docker="28.1.0",
        memory_total=840 * 2**30,
    )
    return replace(example, **changes)  # type: ignore[arg-type]


def all_facts() -> dict[str, HostFacts]:
    """Return the facts of both hosts of :func:`deployment`."""
    return {"tray-a": facts(0), "tray-b": facts(1)}
