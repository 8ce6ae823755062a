"""From the recipe page's form to what hosts run."""

from __future__ import annotations

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Deployment, Mount, Ports, Timeouts
from kimi_infra.domain.plan import DeploymentPlan
from kimi_infra.errors import SpecError
from kimi_infra.planning import host, resolve
from kimi_infra.rendering import docker
from tests import examples

pytestmark = pytest.mark.fast


def plan(deployment: Deployment | None = None, facts: host.Facts | None = None) -> DeploymentPlan:
    """Plan a deployment on the hardware that it names."""
    wanted = deployment or examples.deployment()
    catalogue = recipes.load_catalogue()
    launches = resolve.resolve(catalogue, wanted.choice)
    return host.plan(wanted, catalogue.hardware(wanted.choice.hardware), launches, facts or {})


def environment(found: DeploymentPlan, rank: int) -> dict[str, str]:
    """Return a rank's environment."""
    return {entry.name: entry.value for entry in found.ranks[rank].env}


def test_placeholders_of_the_page_are_resolved_per_host() -> None:
    """Each host gets its own device and address, and all get the head's address."""
    found = plan(facts=examples.all_facts())
    for rank, device in enumerate(("enP0p1", "enP1p1")):
        env = environment(found, rank)
        assert env["GLOO_SOCKET_IFNAME"] == env["NCCL_SOCKET_IFNAME"] == device
        assert env["VLLM_HOST_IP"] == f"198.51.100.{11 + rank}"
        args = found.ranks[rank].serve_args
        assert args[args.index("--master-addr") + 1] == "198.51.100.11"
        assert not any("$" in arg for arg in args)


def test_what_only_a_host_knows_is_a_placeholder_offline() -> None:
    """Without facts, the device and the image ID are shown as unknown and never guessed."""
    found = plan()
    assert environment(found, 1)["NCCL_SOCKET_IFNAME"] == "<device that carries 198.51.100.12>"
    assert found.ranks[0].container.image_id == f"<image ID of vllm/vllm-openai@{examples.DIGEST}>"


def test_the_image_runs_by_its_id_and_is_never_pulled() -> None:
    """The command names the image ID found on the host and switches pulling off."""
    argv = docker.run_argv(plan(facts=examples.all_facts()).ranks[0])
    assert argv[argv.index("--pull") + 1] == "never"
    assert argv[argv.index("--entrypoint") + 1 :][:3] == ("vllm", examples.IMAGE_ID, "serve")
    assert examples.DIGEST not in argv


def test_only_the_head_gets_an_api_port() -> None:
    """A headless rank has no API; vLLM would refuse its flags."""
    head, worker = plan().ranks
    assert "--port" in head.serve_args
    assert "--headless" not in head.serve_args
    assert "--port" not in worker.serve_args
    assert "--headless" in worker.serve_args


def test_weights_are_mounted_read_only_at_their_own_path() -> None:
    """Inside the container the weights have the same path as on the host, read-only."""
    volumes = [docker.run_argv(plan().ranks[0])[i + 1] for i in _places("--volume")]
    assert "/srv/models/Kimi-K3.1-Pro:/srv/models/Kimi-K3.1-Pro:ro" in volumes


def test_weights_inside_another_mount_are_not_mounted_twice() -> None:
    """A mount that already covers the weights is enough."""
    found = plan(examples.deployment(mounts=(Mount(path="/srv/models"),)))
    sources = [volume.source for volume in found.ranks[0].container.volumes]
    assert sources == ["/srv/models", "/var/lib/kimi-infra/kimi/cache"]


def test_a_mount_with_the_same_beginning_does_not_cover_the_weights() -> None:
    """/srv/model is no parent of /srv/models."""
    found = plan(examples.deployment(mounts=(Mount(path="/srv/model"),)))
    assert [volume.source for volume in found.ranks[0].container.volumes][1] == "/srv/models/Kimi-K3.1-Pro"


def test_an_engine_address_that_no_interface_has() -> None:
    """The fault names the host, the address and the addresses that the host does have."""
    facts = {"tray-a": examples.facts(0), "tray-b": examples.facts(1, devices={"192.0.2.12": "eth0"})}
    with pytest.raises(SpecError) as caught:
        plan(facts=facts)
    (fault,) = caught.value.faults
    assert fault.where == "hosts.yml: kimi.hosts.tray-b.engine_address"
    assert fault.got == "198.51.100.12"
    assert "192.0.2.12" in fault.remedy


def test_deadlines_grow_outward_from_the_seed() -> None:
    """The engine gets the seed's hour; whatever waits for it waits longer."""
    budget = plan().budget
    assert budget.engine_ready == 3600
    assert budget.unit_start > budget.joined + budget.engine_ready + budget.first_answer
    assert budget.shutdown < budget.container_stop < budget.unit_stop


def test_the_operator_only_lengthens_deadlines() -> None:
    """A shorter wish than the seed's has no effect, a longer one has."""
    shorter = plan(examples.deployment(timeouts=Timeouts(engine_ready=60)))
    longer = plan(examples.deployment(timeouts=Timeouts(engine_ready=7200)))
    assert (shorter.budget.engine_ready, longer.budget.engine_ready) == (3600, 7200)
    # vLLM's own limit must not end a start that the plan still waits for.
    for found, seconds in ((shorter, "3600"), (longer, "7200")):
        assert {environment(found, rank)["VLLM_ENGINE_READY_TIMEOUT_S"] for rank in (0, 1)} == {seconds}


def test_ports_are_the_operators() -> None:
    """Moved ports arrive in the command and in the port plan."""
    found = plan(examples.deployment(ports=Ports(master=31000, supervisor=31001)))
    args = found.ranks[1].serve_args
    assert args[args.index("--master-port") + 1] == "31000"
    assert [port.number for port in found.ports] == [8000, 31000, 31001]


def test_gpus_are_given_by_name_and_the_container_is_not_privileged() -> None:
    """CDI names all GPUs and the one IMEX channel, which CDI's `all` does not include."""
    argv = docker.run_argv(plan().ranks[0])
    devices = [argv[i + 1] for i in _places("--device")]
    assert devices == ["nvidia.com/gpu=all", "/dev/nvidia-caps-imex-channels/channel0"]
    assert "--privileged" not in argv


def _places(option: str) -> list[int]:
    argv = docker.run_argv(plan().ranks[0])
    return [place for place, word in enumerate(argv) if word == option]
