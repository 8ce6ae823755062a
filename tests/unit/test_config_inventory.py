"""hosts.yml and deployment.yml → Inventory."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi_infra.config import hosts, inventory, yamlfile
from kimi_infra.config.reading import Findings
from kimi_infra.domain.inventory import (
    Inventory,
    Mount,
    Offload,
    PoolChoice,
    Ports,
    SecretRef,
    SecretSource,
    Timeouts,
)
from kimi_infra.errors import SpecError

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[2]
BASE = ROOT / "tests" / "golden" / "faults" / "base"


class Files:
    """An inventory directory whose two files are changed as data."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hosts: Any = yaml.safe_load((BASE / "hosts.yml").read_text(encoding="utf-8"))
        self.deployment: Any = yaml.safe_load((BASE / "deployment.yml").read_text(encoding="utf-8"))

    @property
    def entry(self) -> Any:
        """The first deployment."""
        return self.deployment["deployments"][0]

    @property
    def tray_b(self) -> Any:
        """The second host."""
        return self.hosts["kimi"]["hosts"]["tray-b"]

    def load(self) -> Inventory:
        """Write both files and read them."""
        for name, data in (("hosts.yml", self.hosts), ("deployment.yml", self.deployment)):
            (self.directory / name).write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        return inventory.load(self.directory)

    def refusals(self) -> list[str]:
        """Write both files and return the faults found in them."""
        with pytest.raises(SpecError) as refusal:
            self.load()
        return [str(fault) for fault in refusal.value.faults]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Give the base inventory, ready to be changed."""
    return Files(tmp_path)


def host_key(kind: str = "ssh-ed25519", length: int = 36) -> str:
    """Return a public key of a well-formed outside; ``length`` is that of its inside in bytes."""
    blob = len(kind).to_bytes(4, "big") + kind.encode() + bytes(length)
    return f"{kind} {base64.b64encode(blob).decode()}"


def test_the_committed_gb300_inventory_loads_and_says_what_it_needs() -> None:
    """The example can be planned as it is; its host keys and digest are asked for."""
    loaded = inventory.load(ROOT / "inventories" / "gb300-2node")
    assert [need.where for need in loaded.needs] == [
        "hosts.yml: kimi.hosts.tray-a.host_key",
        "hosts.yml: kimi.hosts.tray-b.host_key",
        "deployment.yml: deployments[0].image.digest",
    ]
    assert "imagetools inspect vllm/vllm-openai:kimi-k31" in loaded.needs[2].what


def test_every_key_reaches_the_domain(files: Files) -> None:
    """What the operator writes arrives with its unit, and hosts stand in the order of their ranks."""
    files.hosts["kimi"]["hosts"]["tray-a"]["node_rank"] = 1
    files.tray_b.update(
        {
            "node_rank": 0,
            "ansible_port": 2222,
            "ansible_ssh_private_key_file": "~/.ssh/trays",
            "ansible_ssh_common_args": "-J 'ops@jump host'",
            "host_key": f"{host_key()} root@tray-b",
        }
    )
    files.entry.update(
        {
            "ports": {"supervisor": 30000},
            "mounts": ["/srv/drafts"],
            "offload": {"policy": "measured", "reserve": "96 GiB"},
            "timeouts": {"engine_ready": "90 min", "first_answer": "1 h"},
            "allow": ["restart"],
            "hub_token": {"vault": "secrets.yml#hub"},
            "model_sha256": "0" * 64,
            "preset": "baseline",
            "nodes": 2,
        }
    )
    deployment = files.load().deployments[0]
    assert [host.name for host in deployment.hosts] == ["tray-b", "tray-a"]
    assert (deployment.head.port, deployment.head.identity_file) == (2222, "~/.ssh/trays")
    assert deployment.pools == {}
    assert deployment.head.ssh_args == ("-J", "ops@jump host")
    assert deployment.head.host_key == host_key()
    assert deployment.ports == Ports(master=29501, supervisor=30000)
    assert deployment.mounts == (Mount(path="/srv/drafts"),)
    assert deployment.offload == Offload(policy="measured", reserve=96 * 1024**3)
    assert deployment.timeouts == Timeouts(engine_ready=5400, first_answer=3600)
    assert deployment.allow == {"restart"}
    assert deployment.api.key == SecretRef(source=SecretSource.ENV, key="KIMI_API_KEY")
    assert deployment.hub_token == SecretRef(source=SecretSource.VAULT, key="secrets.yml#hub")
    assert deployment.model_sha256 == "0" * 64
    assert (deployment.choice.nodes, deployment.choice.features) == (2, ("tool_calling", "reasoning"))


def test_an_unquoted_off_is_the_policy_off(files: Files) -> None:
    """YAML reads off as false; the operator means the word."""
    files.entry["offload"] = {"policy": False}
    assert files.load().deployments[0].offload == Offload(policy="off", reserve=64 * 1024**3)


def test_every_part_of_a_choice_reaches_the_domain(files: Files) -> None:
    """What only some recipes know is handed over as it stands; numbers become the words of a command."""
    files.entry.update(
        {
            "preset": "mi355x_agentx",
            "dcp": 8,
            "feature_modes": {"spec_decoding": "long"},
            "advanced_args": ["--max-num-seqs", "16"],
            "values": {
                "draft_model": "some/draft",
                "draft_tokens": 7,
                "low_latency_args": ["--a", 1],
                "none": [],
            },
        }
    )
    choice = files.load().deployments[0].choice
    assert (choice.preset, choice.dcp, choice.feature_modes) == (
        "mi355x_agentx",
        8,
        {"spec_decoding": "long"},
    )
    assert choice.advanced_args == ("--max-num-seqs", "16")
    assert choice.values == {
        "draft_model": "some/draft",
        "draft_tokens": "7",
        "low_latency_args": ("--a", "1"),
        "none": (),
    }


def test_baseline_is_no_preset(files: Files) -> None:
    """The word of the public page that opts out of a default preset."""
    files.entry["preset"] = "baseline"
    assert files.load().deployments[0].choice.preset is None


def test_a_value_still_to_be_filled_in_is_not_given(files: Files) -> None:
    """The recipe asks for it in its own words, so that the text of the fill-in is no second need."""
    files.entry["values"] = {"draft_model": "<fill in: see the model card>"}
    loaded = files.load()
    assert (loaded.deployments[0].choice.values, loaded.needs) == ({}, ())


def test_a_tier_of_a_fixed_size_is_part_of_the_choice(files: Files) -> None:
    """Every rank pins the given bytes; a measured one is left to a later step."""
    files.entry["offload"] = {"policy": "fixed", "per_rank": "128 GiB"}
    fixed = files.load().deployments[0]
    assert fixed.offload == Offload(policy="fixed", reserve=64 * 1024**3, per_rank=137438953472)
    assert (fixed.choice.kv_offload, fixed.choice.values) == ("simple", {"kv_offload_bytes": "137438953472"})
    files.entry["offload"] = {"policy": "measured"}
    measured = files.load().deployments[0]
    assert (measured.choice.kv_offload, measured.choice.values) == (None, {})


def in_pools(files: Files) -> None:
    """Turn the base into a cluster: two hosts prefill, one decodes, not listed in their order."""
    hosts = files.hosts["kimi"].pop("hosts")
    tray_c = {**hosts["tray-a"], "ansible_host": "192.0.2.13", "engine_address": "198.51.100.13"}
    hosts["tray-a"]["node_rank"], hosts["tray-b"]["node_rank"] = 1, 0
    files.hosts["kimi"]["children"] = {
        "decode": {"hosts": {"tray-c": {**tray_c, "node_rank": 0}}},
        "prefill": {"hosts": hosts},
    }
    files.entry["strategy"] = "pd_cluster"


def test_child_groups_are_the_pools_of_a_cluster(files: Files) -> None:
    """Ranks count within a pool; hosts stand pool after pool, prefill first."""
    in_pools(files)
    files.entry["pools"] = {"decode": {"parallelism": "dep"}}
    deployment = files.load().deployments[0]
    assert deployment.choice.pools == {
        "prefill": PoolChoice(nodes=2),
        "decode": PoolChoice(nodes=1, parallelism="dep"),
    }
    assert [host.name for host in deployment.hosts] == ["tray-b", "tray-a", "tray-c"]
    pools = {name: [host.name for host in hosts] for name, hosts in deployment.pools.items()}
    assert pools == {"prefill": ["tray-b", "tray-a"], "decode": ["tray-c"]}
    assert deployment.choice.nodes == 3


def test_the_port_of_a_router_is_the_pages_or_chosen(files: Files) -> None:
    """api.port is where clients ask, whatever answers there."""
    in_pools(files)
    for api, port in (({"port": 8443}, 8443), ({}, 30000), (None, 30000)):
        files.entry["api"] = api
        assert files.load().deployments[0].api.port == port
    files.entry["ports"] = {"master": 30000}
    assert any("ports.master: port 30000 is api.port too" in refusal for refusal in files.refusals())


def test_groups_named_as_pools_mean_nothing_to_one_engine(files: Files) -> None:
    """Only a cluster's hosts are in pools: other strategies number the whole group."""
    in_pools(files)
    files.entry["strategy"] = "multi_node_tp"
    assert any("is the head already" in refusal for refusal in files.refusals())


def test_optional_keys_may_stand_without_a_value(files: Files) -> None:
    """An empty optional key is as good as an absent one; an empty required key is a fault."""
    files.entry.update({"hub_token": None, "ports": None, "allow": None, "features": None})
    deployment = files.load().deployments[0]
    assert (deployment.hub_token, deployment.ports, deployment.choice.features) == (None, Ports(), None)
    files.entry["model_path"] = None
    place = "deployment.yml: deployments[0].model_path"
    assert files.refusals() == [
        f"{place}: the key is there without a value; give it: directory of the weights, the same on all hosts"
    ]


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("host", "ansible_host"),
        ("host", "ansible_user"),
        ("host", "host_key"),
        ("host", "engine_address"),
        ("entry", "model_path"),
        ("entry", "model_sha256"),
    ],
)
def test_a_fill_in_is_a_need_where_a_value_can_be_given_later(files: Files, part: str, key: str) -> None:
    """Planning goes on without the value; the place and the text of the fill-in are kept."""
    (files.tray_b if part == "host" else files.entry)[key] = "<fill in: ask the network team>"
    (need,) = files.load().needs
    assert need.where.endswith(f".{key}")
    assert need.what == "ask the network team"


@pytest.mark.parametrize("key", ["name", "group", "model", "hardware", "strategy", "hub_token"])
def test_a_fill_in_is_refused_where_planning_needs_the_value(files: Files, key: str) -> None:
    """A plan of something that is not named does not exist."""
    files.entry[key] = "<fill in: something>"
    assert any(f"deployments[0].{key}: " in refusal for refusal in files.refusals())


def test_two_hosts_may_wait_for_the_same_value(files: Files) -> None:
    """Equal fill-ins are no duplicate addresses."""
    for host in files.hosts["kimi"]["hosts"].values():
        host["engine_address"] = "<fill in: address>"
    assert len(files.load().needs) == 2


def test_a_host_is_reached_by_its_name_without_an_address(files: Files) -> None:
    """Like Ansible: no ansible_host means the name in hosts.yml."""
    del files.tray_b["ansible_host"]
    assert files.load().deployments[0].hosts[1].address == "tray-b"


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("engine_address", "127.0.0.1", "other hosts cannot reach a loopback address"),
        ("engine_address", "0.0.0.0", "not the address of one host"),  # noqa: S104 - refused, not bound
        ("engine_address", "tray-b", "not an IP address"),
        ("engine_address", "fe80::1%eth0", "not an IP address"),
        ("ansible_host", "10.0.0.999", "neither an IP address nor a host name"),
        ("ansible_host", "{{ address }}", "neither an IP address nor a host name"),
        ("host_key", f"192.0.2.12 {host_key()}", "not a public host key"),
        ("host_key", "ssh-ed25519 AAAA...", "the key's text is not that of an ssh-ed25519 key"),
        ("host_key", host_key("ssh-rsa").replace("ssh-rsa", "ssh-ed25519"), "is not that of an ssh-ed25519"),
        ("node_rank", -1, "a rank is below zero"),
        ("node_rank", True, "a whole number is expected"),
        ("ansible_ssh_common_args", "-J 'jump", "quotes that do not match"),
        ("ansible_ssh_host", "192.0.2.99", "write ansible_host"),
        ("http_port", 80, "unknown variable"),
    ],
)
def test_a_host_value_that_cannot_work_is_refused(files: Files, key: str, value: object, what: str) -> None:
    """The place is the host's variable and the reason names the value's kind."""
    files.tray_b[key] = value
    assert any(f"tray-b.{key}: " in refusal and what in refusal for refusal in files.refusals())


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("nodes", 3, "group kimi has 2 hosts (got 3)"),
        ("model_path", "/srv/a/../b", "write /srv/b"),
        ("model_path", "/srv/a:b", "a container mount cannot carry"),
        ("model_path", "/srv/\x00", "a container mount cannot carry"),
        ("mounts", ["/srv/models/Kimi-K3.1-Pro"], "the engine sees this directory already"),
        ("ports", {"master": 22}, "SSH of tray-a has port 22 too"),
        ("timeouts", {"engine_ready": "2 days"}, "not a duration"),
        ("timeouts", {"engine_ready": "0 s"}, "a duration of nothing"),
        ("offload", {"reserve": "64 GB"}, "not a size"),
        ("offload", {"reserve": 64}, "a size without a unit"),
        ("hub_token", {"file": "a", "env": "B"}, "exactly one source"),
        ("hub_token", {"env": "hf_lowercase"}, "not the name of an environment variable"),
        ("hub_token", {"vault": "secrets.yml"}, "write PATH#KEY in quotes"),
        ("hub_token", {"envv": "HUB"}, "not a source of secrets"),
        ("model_sha256", "ABC", "not a SHA-256"),
        ("image", {"name": "vllm"}, "not an image name with a tag"),
        ("image", {"name": "a/b:c@sha256:0", "digest": None}, "write the digest in image.digest"),
        ("image", {"name": "a/b:c", "digest": "sha256:12"}, "not a manifest digest"),
        ("image", {"name": "a/b:c", "registry_ca": "ca.pem"}, "not a reference to a certificate file"),
        ("accept_preview", "yes please", "true or false is expected"),
        ("dcp", 0, "a size below one"),
        ("dcp", "8", "a whole number is expected"),
        ("preset", 7, "text is expected"),
        ("feature_modes", ["a"], "a mapping is expected"),
        ("feature_modes", {"a": 1}, "text is expected"),
        ("values", {"a": 0.5}, "neither text nor a whole number nor a list of them"),
        ("values", {"a": True}, "neither text nor a whole number nor a list of them"),
        ("values", {"a": None}, "neither text nor a whole number nor a list of them"),
        ("values", {"a": ["b", ["c"]]}, "neither text nor a whole number nor a list of them"),
        ("values", {"a": "two\nlines"}, "one line of text is expected"),
        ("values", {"kv_offload_bytes": 1}, "the size of the tier has a key of its own"),
        ("advanced_args", ["--served-model-name=x"], "the plan writes --served-model-name itself"),
        ("advanced_args", ["--hf-token", "x"], "would show a secret in every list of processes"),
        ("advanced_args", ["<fill in: flags>"], "needed before anything can be planned"),
        ("offload", {"policy": "fixed"}, "policy fixed needs the size"),
        ("offload", {"per_rank": "1 GiB"}, "policy off takes no size"),
        ("offload", {"policy": "guessed"}, "not one of off, measured, fixed"),
        ("pools", {"prefill": {"parallelism": "tep"}}, "strategy multi_node_tp has no pools"),
    ],
)
def test_a_deployment_value_that_cannot_work_is_refused(
    files: Files, key: str, value: object, what: str
) -> None:
    """The place is the entry's key and the remedy is concrete."""
    files.entry[key] = value
    assert any(f"deployments[0].{key}" in refusal and what in refusal for refusal in files.refusals())


def test_deployments_are_told_apart_by_name(files: Files) -> None:
    """Two engines of one name would write the same units."""
    files.deployment["deployments"].append(copy.deepcopy(files.entry))
    assert any("[1].name: deployments[0] has this name too" in refusal for refusal in files.refusals())


def test_a_faulty_port_hides_no_other_fault_and_is_blamed_once(files: Files) -> None:
    """A port out of range takes no default that could collide with another port."""
    files.entry.update({"api": {"port": 0}, "ports": {"master": 8000}, "allow": ["reboots"]})
    assert [refusal.partition(";")[0] for refusal in files.refusals()] == [
        "deployment.yml: deployments[0].api.port: the port is out of range (got 0)",
        "deployment.yml: deployments[0].allow[0]: not one of restart, reboot (got reboots)",
    ]


def test_the_registrys_certificate_is_read_into_the_inventory(files: Files) -> None:
    """The file is looked up beside the inventory; a private key is never taken along."""
    files.entry["image"]["registry_ca"] = {"file": "ca.pem"}
    assert "put the certificate at ca.pem" in files.load().needs[0].what
    pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
    (files.directory / "ca.pem").write_text(pem, encoding="ascii")
    assert files.load().deployments[0].image.registry_ca == pem
    (files.directory / "ca.pem").write_text(f"{pem}-----BEGIN PRIVATE KEY-----\n", encoding="ascii")
    assert "without a private key" in files.refusals()[0]


def test_missing_files_are_faults_of_both(tmp_path: Path) -> None:
    """An empty directory says which two files belong there."""
    with pytest.raises(SpecError) as refusal:
        inventory.load(tmp_path)
    assert [fault.where for fault in refusal.value.faults] == ["hosts.yml", "deployment.yml"]


def _names(prefix: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{prefix}{index}" for index in range(4)])


_VARIABLES = st.dictionaries(
    st.sampled_from(["ansible_user", "ansible_port", "node_rank", "ansible_group_priority"]),
    st.integers(1, 99),
    max_size=3,
)
_HOST_SECTION = st.dictionaries(_names("h"), st.none() | _VARIABLES, max_size=3)


def _group(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    section = {"hosts": _HOST_SECTION, "vars": _VARIABLES}
    leaf = st.fixed_dictionaries({}, optional=section)
    nested = {**section, "children": st.dictionaries(_names("g"), children, max_size=3)}
    return leaf | st.fixed_dictionaries({}, optional=nested)


_GROUPS = st.dictionaries(
    _names("g") | st.just("all"), st.recursive(st.none(), _group, max_leaves=8), min_size=1, max_size=4
)


def assert_ansible_agrees(text: str, directory: Path) -> None:
    """Compare members and variables with Ansible's own reading of the same text."""
    found = Findings()
    root = yamlfile.parse(text, "hosts.yml", found.faults)
    assert root is not None
    ours = hosts.read(root, found)
    if any("below itself" in fault.what for fault in found.faults):
        return  # Ansible refuses loops as well
    file = directory / "hosts.yml"
    file.write_text(text, encoding="utf-8")
    loader = DataLoader()
    manager = InventoryManager(loader=loader, sources=[str(file)])
    variables = VariableManager(loader=loader, inventory=manager)
    assert set(ours.places) == {host.name for host in manager.get_hosts()}
    for name in ours.groups:
        assert set(ours.members(name)) == {host.name for host in manager.get_hosts(name)}
    for host in manager.get_hosts():
        theirs = variables.get_vars(host=host, include_hostvars=False)
        mine = ours.variables(host.name).plain
        assert isinstance(mine, dict)
        names = ("ansible_user", "ansible_port", "node_rank")
        assert {key: mine.get(key) for key in names} == {key: theirs.get(key) for key in names}


@settings(max_examples=100, deadline=None)
@given(data=_GROUPS)
def test_groups_and_variables_are_those_that_ansible_sees(
    data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Members, nesting and precedence agree with Ansible's own reading of any file."""
    assert_ansible_agrees(yaml.safe_dump(data, sort_keys=False), tmp_path_factory.getbasetemp())


@pytest.mark.parametrize(
    "text",
    [
        # The deeper group wins, although its name comes first.
        "z: {vars: {node_rank: 1}, children: {a: {vars: {node_rank: 2}, hosts: {h: }}}}",
        # A group's depth is that of its longest way up.
        ("b: {vars: {node_rank: 1}, hosts: {h: }}\nz: {children: {y: {children: {a: }}}}\n"
        "a: {vars: {node_rank: 2}, hosts: {h: }}"),
        # Priority decides between groups of one depth, and only there.
        ("a: {vars: {node_rank: 1, ansible_group_priority: 5}, hosts: {h: }}\n"
        "b: {vars: {node_rank: 2}, hosts: {h: }, children: {c: {vars: {ansible_port: 2}, hosts: {h: }}}}"),
        # The later name wins otherwise; a host's own variables win over all, the last ones read first.
        ("b: {vars: {node_rank: 1, ansible_port: 1}, hosts: {h: {ansible_user: x}}}\n"
        "a: {vars: {node_rank: 2}, hosts: {h: {ansible_user: y}}}"),
        # One name may stand for a mapping of it; all is above everything wherever it is written.
        "a: {hosts: h, children: c}\nall: {vars: {node_rank: 7}}\nc: {hosts: i}",
    ],
)  # fmt: skip
def test_the_winner_among_groups_is_ansibles(text: str, tmp_path: Path) -> None:
    """Each rule of precedence decides one of these files."""
    assert_ansible_agrees(text, tmp_path)


def _spots(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, below in steps:
        yield from _spots(below, (*path, step))


def _replaced(data: Any, path: tuple[Any, ...], value: str) -> str:
    """Write ``data`` as YAML with the raw text ``value`` at ``path``."""
    marker = "MARKER-4711"
    holder = {"root": copy.deepcopy(data)}
    at: Any = holder
    for step in ("root", *path)[:-1]:
        at = at[step]
    at[("root", *path)[-1]] = marker
    return json.dumps(holder["root"]).replace(f'"{marker}"', value)


_RAW = st.one_of(
    st.text(max_size=20),
    st.text(max_size=20).map(json.dumps),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        [
            "~", "yes", "off", ".nan", ".inf", "1:30", "0o17", "0b_", "0x", "2026-01-01", "2026-99-99",
            "!!int x", "!!float ''", "!!binary x", "!vault x", "!unsafe x", "!!python/none x", "*a",
            "&a [*a]", "{<<: x}", "{<<: {a: 1}}", "{1: 2}", "{? [a] : b}", "[]", "{}",
            "[[]]", "{a: 1, a: 2}", "<fill in: x>",
            '"<fill in: {name}>"', "1" * 5000, "[" * 2000, '"\\0"', '"a\\nb"', "{env: X}", "{file: '\\0'}",
            "=", "--- a", "%x", "@", "`", "!", "!!null x", "!!str [a]", "!!set {a}", "127.0.0.1", '"/"',
            '"//srv"', "{file: .}", "{file: ..}",
        ]
    ),
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_but_a_spec_error_comes_out_of_any_file(data: st.DataObject, files: Files) -> None:
    """Whatever stands at whatever place of a valid inventory is accepted or refused with its place."""
    files.entry.update(
        {
            "mounts": ["/a"],
            "timeouts": {"engine_ready": "1 h"},
            "offload": {"reserve": "1 GiB", "policy": "fixed", "per_rank": "1 GiB"},
            "pools": {"prefill": {"parallelism": "tep"}},
            "values": {"draft_model": "a/b", "low_latency_args": ["c"]},
            "feature_modes": {"a": "b"},
            "advanced_args": ["--x"],
            "dcp": 8,
            "allow": ["restart"],
            "hub_token": {"file": "x"},
            "ports": {"master": 1},
            "image": {"name": "a/b:c", "registry_ca": {"file": "ca.pem"}},
        }
    )
    files.hosts["kimi"]["children"] = {"more": {"vars": {"ansible_ssh_common_args": "-4"}}}
    texts = {}
    for name, content in (("hosts.yml", files.hosts), ("deployment.yml", files.deployment)):
        spot = data.draw(st.sampled_from(list(_spots(content))), label=name)
        texts[name] = _replaced(content, spot, data.draw(_RAW, label="value"))
    for name, text in texts.items():
        (files.directory / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(SpecError):
        assert isinstance(inventory.load(files.directory), Inventory)


def _deep(depth: int) -> str:
    return "{a: " * depth + "1" + "}" * depth


def _bomb(levels: int) -> str:
    rows = (f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]" for level in range(1, levels))
    return "\n".join(("l0: &l0 [1, 1, 1, 1, 1, 1, 1, 1, 1]", *rows))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty"),
        ("a: 1\nb: [", "not YAML"),
        ("a: 1\n---\nb: 2", "not YAML: but found another document"),
        ("a: *sk-canary", "not YAML: found undefined alias"),
        ("a: \x07", "not YAML"),
        (_deep(3000), "nested too deeply"),
        (_bomb(5), "too many values"),
        ("a: &a {b: *a}", "the value holds itself"),
        ("{1: x}", "the key in line 1 is not text"),
        ("a: !!python/object:os.system x", "a YAML tag that is not known here"),
    ],
)
def test_text_that_is_no_usable_yaml_is_a_fault(text: str, what: str) -> None:
    """The reason is given and nothing of the text is quoted that could be a secret."""
    found = Findings()
    yamlfile.parse(text, "hosts.yml", found.faults)
    shown = "\n".join(map(str, found.faults))
    assert what in shown
    assert "canary" not in shown


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a: 1:30", {"a": "1:30"}),
        ("a: 2026-01-01", {"a": "2026-01-01"}),
        ("b: &b {x: 1, y: 2}\na: {<<: *b, y: 3}", {"b": {"x": 1, "y": 2}, "a": {"x": 1, "y": 3}}),
        ("a: {<<: [{x: 1}, {x: 2, y: 2}]}", {"a": {"x": 1, "y": 2}}),
        ("a: !unsafe '{{ x }}'", {"a": "{{ x }}"}),
        ("a: [1, 1.5, yes, ~]", {"a": [1, 1.5, True, None]}),
    ],
)
def test_yaml_values_are_what_they_look_like(text: str, plain: object) -> None:
    """Merge keys and tags of Ansible are read; times and dates stay text."""
    faults: list[Any] = []
    root = yamlfile.parse(text, "hosts.yml", faults)
    assert (root.plain if root else None, faults) == (plain, [])


def test_reading_does_not_change_what_was_read(files: Files) -> None:
    """The same directory gives equal values twice."""
    read: Callable[[], Inventory] = files.load
    assert read() == read()
