"""From the recipe page's form to what hosts run."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Api, Deployment, Mount, Offload, Ports, Timeouts
from kimi_infra.domain.launch import Flag
from kimi_infra.domain.plan import DeploymentPlan
from kimi_infra.domain.provenance import Origin
from kimi_infra.errors import SpecError
from kimi_infra.planning import host, resolve
from kimi_infra.rendering import docker
from tests import examples

pytestmark = pytest.mark.fast


def plan(deployment: Deployment | None = None, facts: host.Facts | None = None) -> DeploymentPlan:
    """Plan a deployment on the hardware that it names."""
    wanted = deployment or examples.deployment()
    catalogue = recipes.load_catalogue()
    resolution = resolve.resolve(catalogue, wanted.choice)
    return host.plan(wanted, catalogue.hardware(wanted.choice.hardware), resolution, facts or {})


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


def values(found: DeploymentPlan, rank: int, flag: str) -> list[str]:
    """Return the words behind each occurrence of a flag in a rank's command."""
    args = found.ranks[rank].serve_args
    return [after for word, after in itertools.pairwise(args) if word == flag]


def listening(found: DeploymentPlan, host_name: str) -> dict[str, list[int]]:
    """Return the ports of a host by their purpose."""
    ports = [port for port in found.ports if port.host == host_name]
    return {port.purpose: [it.number for it in ports if it.purpose == port.purpose] for port in ports}


def test_an_engine_of_one_node_meets_nobody() -> None:
    """No rendezvous and no supervisors' meeting: nobody would listen there."""
    found = plan(examples.engine("b300", "single_node_tp", 1))
    assert [port.purpose for port in found.ports] == ["API"]
    assert values(found, 0, "--master-port") == []
    assert values(found, 0, "--port") == ["8000"]


def test_replicas_meet_at_two_ports_of_the_head() -> None:
    """On M890 every node holds one replica: all ranks are one world, and their schedulers are one engine."""
    found = plan(examples.engine("m890", "multi_node_tep", 4))
    assert found.world_size == 32
    assert listening(found, "tray-a") == {
        "API": [8000],
        "rendezvous of the ranks": [29501],
        "data-parallel ranks": [29550],
        "rank supervisors": [29560],
    }
    assert [port for port in found.ports if port.host != "tray-a"] == []
    assert [values(found, rank, "--master-port") for rank in range(4)] == [["29501"]] * 4
    assert [rank.api_port for rank in found.ranks] == [8000, None, None, None]


def test_every_node_that_serves_has_the_apis_port() -> None:
    """A recipe may give each node of an engine an API of its own: each is told the operator's port."""
    wanted = examples.deployment()
    catalogue = recipes.load_catalogue()
    resolution = resolve.resolve(catalogue, wanted.choice)
    serving = [
        replace(launch, flags=tuple(flag for flag in launch.flags if flag.name != "--headless"))
        for launch in resolution.launches
    ]
    found = host.plan(wanted, catalogue.hardware("gb300"), replace(resolution, launches=tuple(serving)), {})
    assert [values(found, rank, "--port") for rank in (0, 1)] == [["8000"], ["8000"]]
    assert listening(found, "tray-b") == {"API": [8000]}


def test_the_seeds_hour_is_a_floor_on_every_accelerator() -> None:
    """Where the recipe sets no deadline an hour is added: the seed vouches for NVIDIA's alone."""
    for hardware, strategy, nodes in (("mi355x", "single_node_tp", 1), ("810e", "multi_node_tep", 2)):
        found = plan(examples.engine(hardware, strategy, nodes))
        (entry,) = [it for it in found.ranks[0].env if it.name == "VLLM_ENGINE_READY_TIMEOUT_S"]
        assert (entry.value, entry.provenance.origin) == ("3600", Origin.DERIVED)
        assert "seed's value for NVIDIA" in entry.provenance.source
        assert "floor" in entry.provenance.source
        assert found.budget.engine_ready == 3600
    lab = examples.engine("lab-cpu", "multi_node_tp", 2, model="kimi-infra/lab-tiny", features=())
    assert plan(lab).budget.engine_ready == 300


def test_a_deadline_that_the_operator_lengthens_is_his() -> None:
    """The origin tells apart what the seed demands and what was written on top."""
    longer = replace(examples.engine("mi355x", "single_node_tp", 1), timeouts=Timeouts(engine_ready=7200))
    (entry,) = [it for it in plan(longer).ranks[0].env if it.name == "VLLM_ENGINE_READY_TIMEOUT_S"]
    assert (entry.value, entry.provenance.origin) == ("7200", Origin.OPERATOR)


@pytest.mark.parametrize(
    ("deployment", "devices", "capabilities"),
    [
        (examples.engine("b300", "single_node_tp", 1), ("nvidia.com/gpu=all",), ()),
        (examples.engine("mi355x", "single_node_tp", 1), ("/dev/kfd", "/dev/dri"), ("SYS_PTRACE",)),
        (
            examples.engine("810e", "multi_node_tep", 2),
            ("/dev/alixpu", "/dev/alixpu_ctl", *(f"/dev/alixpu_ppu{number}" for number in range(16))),
            (),
        ),
    ],
    ids=["nvidia", "amd", "ppu"],
)
def test_accelerators_are_given_as_their_profile_says(
    deployment: Deployment, devices: tuple[str, ...], capabilities: tuple[str, ...]
) -> None:
    """Each brand has its devices; nothing is privileged, and the plan names the difference from the page."""
    found = plan(deployment)
    container = found.ranks[0].container
    assert (container.devices, container.capabilities) == (devices, capabilities)
    (rights,) = [difference for difference in found.differences if "--privileged" in difference]
    assert ("CDI" in rights) == (devices[0] == "nvidia.com/gpu=all")


def test_a_cluster_is_one_plan_of_both_pools() -> None:
    """Nodes are numbered within their pool, and so are units and containers."""
    found = plan(examples.cluster())
    assert [rank.unit for rank in found.ranks] == [
        "vllm-kimi-prefill-0.service",
        "vllm-kimi-prefill-1.service",
        *(f"vllm-kimi-decode-{rank}.service" for rank in range(4)),
    ]
    assert [rank.container.name for rank in found.ranks][3] == "vllm-kimi-decode-1"
    assert [rank.host.name for rank in found.ranks] == [f"tray-{name}" for name in "abcdef"]
    assert [(rank.head.name, rank.engine_ranks) for rank in found.ranks][1:3] == [
        ("tray-a", 2),
        ("tray-c", 4),
    ]
    assert found.world_size == 8 + 16


def test_each_pool_finds_its_own_head() -> None:
    """Prefill meets at its master port, decode at its data-parallel port; no placeholder is left."""
    found = plan(examples.cluster())
    assert values(found, 1, "--master-addr") == ["198.51.100.11"]
    assert values(found, 1, "--master-port") == ["29501"]
    assert values(found, 5, "--data-parallel-address") == ["198.51.100.13"]
    assert values(found, 5, "--data-parallel-rpc-port") == ["29550"]
    assert values(found, 5, "--master-port") == []
    for rank in found.ranks:
        texts = (*rank.serve_args, *(entry.value for entry in rank.env))
        assert not any("$" in text for text in texts)


def test_the_cache_is_pulled_from_an_address_of_each_nodes_own() -> None:
    """A node of the data-parallel pool is asked at its own address, one port for each of its ranks."""
    found = plan(examples.cluster())
    assert environment(found, 1)["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "198.51.100.11"
    assert environment(found, 4)["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "198.51.100.15"
    assert listening(found, "tray-a")["KV transfer (NIXL)"] == [5557]
    assert "KV transfer (NIXL)" not in listening(found, "tray-b")
    assert listening(found, "tray-e")["KV transfer (NIXL)"] == [5566, 5567, 5568, 5569]


def test_a_clusters_devices_include_what_moves_the_cache() -> None:
    """NIXL needs the RDMA devices, which no name of a vendor's GPUs includes."""
    for rank in plan(examples.cluster()).ranks:
        assert rank.container.devices[-1] == "/dev/infiniband"
    assert "/dev/infiniband" not in plan().ranks[0].container.devices


def test_the_apis_of_a_cluster_stand_behind_its_router() -> None:
    """The recipe's ports are the engines', the operator's is the router's."""
    found = plan(examples.cluster(api=Api(port=8443, key=None)))
    assert [rank.api_port for rank in found.ranks] == [8001, None, 8002, 8002, 8002, 8002]
    assert values(found, 0, "--port") == ["8001"]
    assert values(found, 3, "--port") == ["8002"]
    assert listening(found, "tray-a")["router"] == [8443]
    assert found.router is not None
    command = found.router.command
    assert found.router.host.name == "tray-a"
    assert [
        command[place + 1] for place, word in enumerate(command) if word in {"--prefill", "--decode"}
    ] == [
        "http://198.51.100.11:8001",
        *(f"http://198.51.100.{number}:8002" for number in (13, 14, 15, 16)),
    ]
    assert command[command.index("--host") + 1] == "198.51.100.11"
    assert command[command.index("--port") + 1] == "8443"


def test_a_router_takes_addresses_of_the_newer_family() -> None:
    """In a URL such an address stands in brackets, in a flag it does not."""
    hosts = tuple(replace(it, engine_address=f"fd00::{it.address[-1]}") for it in examples.cluster().hosts)
    found = plan(examples.cluster(hosts=hosts))
    assert found.router is not None
    assert "http://[fd00::1]:8001" in found.router.command
    assert found.router.command[found.router.command.index("--host") + 1] == "fd00::1"
    assert values(found, 1, "--master-addr") == ["fd00::1"]


def test_two_purposes_cannot_have_one_port_of_a_host() -> None:
    """The recipe's own ports are known when the command is: the fault names both purposes and the host."""
    with pytest.raises(SpecError) as caught:
        plan(examples.cluster(ports=Ports(master=8001)))
    (fault,) = caught.value.faults
    assert "tray-a" in fault.what
    assert "API of prefill" in fault.what
    assert "rendezvous of the ranks of prefill" in fault.what
    assert fault.got == "8001"


def test_a_tier_that_a_host_cannot_pin_is_refused() -> None:
    """The tray's 840 GiB hold four times 128 GiB and the reserve, not four times 220 GiB."""
    gib = 1 << 30
    fixed = Offload(policy="fixed", reserve=64 * gib, per_rank=128 * gib)
    assert plan(examples.deployment(offload=fixed), examples.all_facts()).ranks
    too_large = replace(fixed, per_rank=220 * gib)
    assert plan(examples.deployment(offload=too_large)).ranks  # no host has been asked
    with pytest.raises(SpecError) as caught:
        plan(examples.deployment(offload=too_large), examples.all_facts())
    assert [fault.got for fault in caught.value.faults] == ["220.0 GiB per rank"] * 2
    assert "194 GiB or less" in caught.value.faults[0].remedy


def test_origins_are_counted_once_for_all_ranks() -> None:
    """What two ranks share is one value; each origin that vouches for something is named."""
    found = plan()
    (worker_only,) = (
        set(found.ranks[1].flags)
        - set(found.ranks[0].flags)
        - {flag for flag in found.ranks[1].flags if flag.name == "--node-rank"}
    )
    assert worker_only.name == "--headless"
    distinct = {flag.name for rank in found.ranks for flag in rank.flags}
    variables = {entry.name for rank in found.ranks for entry in rank.env}
    assert sum(found.origins.values()) == len(distinct) + len(variables)
    assert set(found.origins) == {Origin.SEED, Origin.VLLM, Origin.DERIVED}


def _places(option: str) -> list[int]:
    argv = docker.run_argv(plan().ranks[0])
    return [place for place, word in enumerate(argv) if word == option]


@pytest.mark.parametrize(
    ("port", "tray", "purpose"),
    [
        (8001, 0, "API of prefill"),
        (8002, 3, "API of decode"),
        (29550, 2, "data-parallel ranks of decode"),
        (5567, 4, "KV transfer (NIXL)"),
    ],
)
def test_a_port_of_the_plan_is_not_the_one_of_ssh(port: int, tray: int, purpose: str) -> None:
    """A host's sshd listens before any engine: no port that the recipe or the plan chooses is its own."""
    hosts = list(examples.cluster().hosts)
    hosts[tray] = replace(hosts[tray], port=port)
    with pytest.raises(SpecError) as caught:
        plan(examples.cluster(hosts=tuple(hosts)))
    (fault,) = caught.value.faults
    assert fault.what == f"on {hosts[tray].name} one port is for SSH and for {purpose}"
    assert fault.got == str(port)
    assert f"ansible_port of {hosts[tray].name}" in fault.remedy


def test_ssh_is_no_port_that_the_plan_listens_on() -> None:
    """It is taken by right: what looks for foreign listeners is not told of it."""
    assert not any(port.purpose == "SSH" for port in plan().ports)


def test_an_api_that_is_reached_over_ipv6_listens_there() -> None:
    """Untold, vLLM takes IPv4: a router comes by the engine's address, clients by the one of SSH."""
    pools = tuple(replace(it, engine_address=f"fd00::{it.address[-1]}") for it in examples.cluster().hosts)
    engines = {
        "older": (examples.deployment(), [[], []]),
        "cluster": (examples.cluster(hosts=pools), [["::"], [], *[["::"]] * 4]),
        "management": (
            examples.deployment(hosts=(examples.host(0, address="fd00::1"), examples.host(1))),
            [["::"], []],
        ),
        "worker": (
            examples.deployment(hosts=(examples.host(0), examples.host(1, address="fd00::1"))),
            [[], []],
        ),
    }
    for wanted, hosts in engines.values():
        found = plan(wanted)
        assert [values(found, place, "--host") for place in range(len(found.ranks))] == hosts
        told = [line for line in found.differences if line.startswith("--host ")]
        assert [line.partition(": ")[0] for line in told] == (["--host ::"] if ["::"] in hosts else [])
        assert all("listens on IPv4 alone" in line for line in told)


def test_a_value_of_the_image_is_refused_beside_its_name() -> None:
    """Hosts run what image.name says: the same thing said twice would be said in vain."""
    wanted = examples.engine("810e", "multi_node_tep", 2, values={"image_810e": "reg.example/sail:1"})
    with pytest.raises(SpecError) as caught:
        plan(wanted)
    (fault,) = caught.value.faults
    assert fault.where == "deployment.yml: values.image_810e of kimi"
    assert "image.name says it" in fault.what
    assert fault.got == "reg.example/sail:1"


def test_values_of_a_command_are_no_images() -> None:
    """Neither in the plan's own connector, beside another one, as no word nor as an image's by chance."""
    tier = {"kv_offload": "simple", "values": {"kv_offload_bytes": "1073741824"}}
    assert plan(examples.cluster(choice=replace(examples.cluster().choice, **tier))).ranks  # type: ignore[arg-type]
    for model in ("vllm", "vllm/vllm-openai:kimi-k31"):
        given: dict[str, str | tuple[str, ...]] = {"draft_model": model, "draft_tokens": "3"}
        wanted = examples.engine("b300", "single_node_tp", 1, features=("spec_decoding",), values=given)
        assert plan(wanted).ranks
    given = {"low_latency_args": ()}
    wanted = examples.engine("b300", "single_node_tp", 1, features=("low_latency_decode",), values=given)
    assert plan(wanted).ranks


def test_a_number_beyond_all_sense_is_refused() -> None:
    """Of more digits than Python reads the fault shows a few."""
    wanted, catalogue = examples.engine("b300", "single_node_tp", 1), recipes.load_catalogue()
    (launch,) = (resolution := resolve.resolve(catalogue, wanted.choice)).launches
    size = Flag(tokens=("--tensor-parallel-size", "9" * 5000), provenance=launch.flags[0].provenance)
    flags = tuple(size if flag.name == size.name else flag for flag in launch.flags)
    huge = replace(resolution, launches=(replace(launch, flags=flags),))
    with pytest.raises(SpecError) as caught:
        host.plan(wanted, catalogue.hardware("b300"), huge, {})
    (fault,) = caught.value.faults
    assert (fault.where, fault.got) == ("--tensor-parallel-size", "999999999..., 5000 digits")
