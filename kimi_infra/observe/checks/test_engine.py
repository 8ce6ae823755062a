"""All ranks are one engine, and it answers."""

from __future__ import annotations

from testinfra.host import Host as Machine

from kimi_infra.domain.endpoint import Endpoint
from kimi_infra.domain.launch import Role
from kimi_infra.domain.plan import DeploymentPlan, RankPlan
from kimi_infra.observe import answer

_ANSWER_SECONDS = 300


def test_ports(machines: dict[str, Machine], plan: DeploymentPlan) -> None:
    """Every planned port has its listener."""
    for port in plan.ports:
        listening = machines[port.host].check_output("ss -Hltn sport = :%s", str(port.number))
        assert listening, f"{port.host}: nobody listens on {port.number} ({port.purpose})"


def test_world(machines: dict[str, Machine], plan: DeploymentPlan) -> None:
    """Each rank's share of the world group runs on its host, all of it in one group."""
    local = plan.world_size // len(plan.ranks)
    for rank in plan.ranks:
        found = _local_ranks(machines[rank.host.name], rank)
        wanted = set(range(rank.rank * local, (rank.rank + 1) * local))
        assert found == wanted, (
            f"{rank.host.name}: tensor-parallel ranks {sorted(found)}, not {sorted(wanted)}"
        )


def test_connections(machines: dict[str, Machine], plan: DeploymentPlan) -> None:
    """Every worker's engine has taken a connection from the head's.

    A worker that waits at the rendezvous may have connections to the head, but accepts none.
    """
    head = plan.deployment.head.engine_address
    for rank in (rank for rank in plan.ranks if rank.role is Role.WORKER):
        machine = machines[rank.host.name]
        listening = {_port(line, 3) for line in machine.check_output("ss -Hltnp").splitlines() if _ours(line)}
        established = machine.check_output("ss -Htnp state established").splitlines()
        accepted = [line for line in established if _is(line, head) and _port(line, 2) in listening]
        assert accepted, f"{rank.host.name}: no connection from the engine on {head}; the rank has not joined"


def test_answer(plan: DeploymentPlan, endpoint: Endpoint) -> None:
    """The recipe page's own client call gets a completion, be it reasoning alone."""
    found = answer.ask(endpoint, answer.QUESTION, options=answer.SAMPLING, timeout=_ANSWER_SECONDS)
    assert found.tokens > 0, f"{plan.deployment.name}: {endpoint.url}: the completion has no token"


def _port(line: str, column: int) -> int:
    """Read the port in a column of ss; the local address is in 3, or in 2 where one state was asked for."""
    return int(line.split()[column].rpartition(":")[2])


def _ours(line: str) -> bool:
    """Tell whether a socket is held by a process of vLLM, by the titles that it gives its processes."""
    return '"VLLM' in line


def _is(line: str, address: str) -> bool:
    """Tell whether an established connection's peer is this address, IPv4-mapped or not."""
    peer = line.split()[3].rpartition(":")[0].strip("[]")
    return peer.removeprefix("::ffff:") == address


def _local_ranks(machine: Machine, rank: RankPlan) -> set[int]:
    """Read the ranks from the titles that vLLM gives its rank processes (``VLLM::Worker_TP0``)."""
    titles = machine.check_output("docker top %s -eo pid,args", rank.container.name).splitlines()
    return {int(title.split("_TP")[1].split()[0]) for title in titles if "Worker_TP" in title}
