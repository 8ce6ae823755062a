"""What is refused: secrets in the open, keys in other folders, addresses and mounts that collide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kimi_infra.config import hosts, inventory, recipes, values, yamlfile
from kimi_infra.config.reading import Findings
from kimi_infra.deploy import check
from kimi_infra.domain.inventory import Inventory
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import host as host_plan
from tests import planted

pytestmark = pytest.mark.fast


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Lay the base inventory."""
    return planted.laid("base", tmp_path)


def edit(folder: Path, old: str, new: str) -> None:
    """Change one text of one of the two files."""
    (file,) = [path for path in folder.glob("*.yml") if old in path.read_text(encoding="utf-8")]
    file.write_text(file.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")


def faults(folder: Path) -> tuple[Fault, ...]:
    """Return the faults of an inventory; none is a result as well."""
    return inventory.read(folder).faults


def variable(folder: Path, text: str) -> None:
    """Give the group a variable as raw YAML."""
    edit(folder, "    ansible_user: ops\n", f"    ansible_user: ops\n    {text}\n")


API = "    api:\n      port: 8000\n      key: {env: KIMI_API_KEY}\n"


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        (API, "    api: sk-canary\n", "deployment.yml: deployments[0].api"),
        (API, "    api: [sk-canary]\n", "deployment.yml: deployments[0].api"),
        (API, "    api: {sk-canary}\n", "deployment.yml: deployments[0].api"),
        (API, "    api: {key: {sk-canary}}\n", "deployment.yml: deployments[0].api.key"),
        ("deployments:\n", "deployments: sk-canary\nrest:\n", "deployment.yml: deployments"),
        ("deployments:\n", "deployments:\n  - sk-canary\n", "deployment.yml: deployments[0]"),
        ("  vars:\n    ansible_user: ops\n", "  vars: ansible_ssh_pass=canary\n", "hosts.yml: kimi.vars"),
        ("  hosts:\n", "  children: {x: ansible_ssh_pass=canary}\n  hosts:\n", "hosts.yml: kimi.children.x"),
        ("  hosts:\n", "  hosts:\n    tray-c: ansible_ssh_pass=canary\n", "hosts.yml: kimi.hosts.tray-c"),
        ("  hosts:\n", "  hosts:\n    tray-c ansible_ssh_pass=canary:\n", "hosts.yml: kimi.hosts"),
        ("kimi:\n", "more: {hosts: tray-c ansible_ssh_pass=canary}\nkimi:\n", "hosts.yml: more.hosts"),
    ],
)  # fmt: skip
def test_what_stands_where_a_secret_belongs_below_is_never_shown(
    base: Path, old: str, new: str, where: str
) -> None:
    """A literal in the place of a mapping that holds a secret is refused by its place only."""
    edit(base, old, new)
    found = faults(base)
    assert where in {fault.where for fault in found}
    assert "canary" not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "ansible_become_password: canary",
        "ansible_become_pass: 'canary'",
        "ansible_ssh_pass: 4711",
        "ansible_password: [canary]",
        "ansible_ssh_password: {x: canary}",
        "ansible_ssh_private_key_passphrase: canary",
        "ansible_ssh_private_key: canary",
        "ansible_sudo_pass: \"canary{{ lookup('env', 'X') }}\"",
        "ansible_password: \"{{ 'canary' }}\"",
        "ansible_password: '{{ x }}canary{{ y }}'",
    ],
)
def test_a_secret_of_ansibles_own_is_no_literal(base: Path, text: str) -> None:
    """Passwords of connections and of sudo are refused in the open, whatever their type, and not shown."""
    variable(base, text)
    (fault,) = faults(base)
    assert (fault.where, fault.what) == (
        f"hosts.yml: kimi.vars.{text.partition(':')[0]}",
        "a secret given as a literal",
    )
    assert "ansible-vault" in fault.remedy
    assert "canary" not in repr(fault)


@pytest.mark.parametrize(
    "text",
    [
        "ansible_become_password: !vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      3035",
        "ansible_become_password: \"{{ lookup('env', 'SUDO') }}\"",
        "ansible_become_password: '{{ sudo_from_a_vault }}'",
        "ansible_become_password:",
        "ansible_ssh_private_key_file: ~/.ssh/trays",
        "ansible_ssh_password_mechanism: ssh_askpass",
    ],
)
def test_an_encrypted_or_looked_up_secret_is_ansibles_business(base: Path, text: str) -> None:
    """Vault values and lookups are read over; names that only sound like a secret are free."""
    variable(base, text)
    assert faults(base) == ()


@pytest.mark.parametrize(
    "path",
    ["/root", "/root/.cache", "/root/.cache/vllm", "/usr", "/usr/lib/x", "/bin", "/lib64", "/etc/models",
     "/proc/1", "/sys", "/dev/shm", "/run", "/tmp", "/var"],
)  # fmt: skip
@pytest.mark.parametrize("key", ["model_path", "mounts"])
def test_a_mount_hides_nothing_of_the_image(base: Path, path: str, key: str) -> None:
    """Neither the weights nor a further mount lies over the engine's caches or the image's system."""
    new = f"model_path: {path}" if key == "model_path" else f"model_path: /srv/m\n    mounts: [{path}]"
    edit(base, "model_path: /srv/models/Kimi-K3.1-Pro", new)
    (fault,) = faults(base)
    assert f"deployments[0].{key}" in fault.where
    assert "below /srv" in fault.remedy


@pytest.mark.parametrize(
    "path", ["/srv", "/mnt/models", "/opt/models", "/root/models", "/usrlocal", "/tmp/models"]
)
def test_a_directory_of_the_operators_own_is_mounted(base: Path, path: str) -> None:
    """What only begins like a system directory, or lies below one that is shared, stays possible."""
    edit(base, "/srv/models/Kimi-K3.1-Pro", path)
    assert faults(base) == ()


def test_equal_mounts_are_a_fault_and_equal_fill_ins_are_not(base: Path) -> None:
    """A mount given twice is refused; two values still to be given are no collision."""
    edit(base, API, f"{API}    mounts: [/srv/drafts, '<fill in: x>', /srv/drafts, '<fill in: x>']\n")
    assert [fault.where for fault in faults(base)] == ["deployment.yml: deployments[0].mounts[2]"]


def test_the_refused_cache_is_the_one_that_the_plan_mounts() -> None:
    """Two modules that cannot import each other name the same directory."""
    assert values.ENGINE_CACHE == host_plan._CACHE_TARGET


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("::ffff:198.51.100.11", "tray-a has this address too"),
        ("2001:db8::12", "tray-a has an IPv4 address"),
        ("169.254.7.12", "a link-local address"),
        ("fe80::12", "a link-local address"),
        ("::ffff:169.254.7.12", "a link-local address"),
        ("::ffff:127.0.0.1", "cannot reach a loopback address"),
        ("127.8.8.8", "cannot reach a loopback address"),
        ("::1", "cannot reach a loopback address"),
        ("255.255.255.255", "not the address of one host"),
        ("240.0.0.1", "not the address of one host"),
        ("0.0.0.7", "not the address of one host"),
        ("224.0.0.1", "not the address of one host"),
        ("ff02::1", "not the address of one host"),
        ("::", "not the address of one host"),
        ("4000::1", "not the address of one host"),
        ("::ffff:0.0.0.0", "not the address of one host"),
    ],
)
def test_an_engine_address_is_that_of_one_host_in_its_group(base: Path, address: str, what: str) -> None:
    """Addresses are judged and compared as what they stand for, and a group speaks one family."""
    edit(base, "engine_address: 198.51.100.12", f'engine_address: "{address}"')
    found = [fault for fault in faults(base) if fault.where == "hosts.yml: kimi.hosts.tray-b.engine_address"]
    assert any(what in fault.what for fault in found)


def test_a_mapped_engine_address_reaches_the_plan_unmapped(base: Path) -> None:
    """Interfaces carry the IPv4 address, so the plan looks for that one."""
    edit(base, "engine_address: 198.51.100.12", 'engine_address: "::ffff:198.51.100.12"')
    assert inventory.load(base).deployments[0].hosts[1].engine_address == "198.51.100.12"


def test_ssh_addresses_are_compared_as_what_they_stand_for(base: Path) -> None:
    """A mapped address is the address."""
    edit(base, "ansible_host: 192.0.2.12", 'ansible_host: "::ffff:192.0.2.11"')
    assert [fault.what for fault in faults(base)] == ["tray-a has this address too"]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_long_chain_of_groups_is_read(base: Path, *, backwards: bool) -> None:
    """1500 groups one below the other are no fault of the program, in whatever order they are written."""
    chain: list[tuple[str, Any]] = [(f"g{at}", {"children": {f"g{at + 1}": None}}) for at in range(1500)]
    chain.append(("g1500", {"children": {"kimi": None}, "vars": {"ansible_port": 2222}}))
    groups = yaml.safe_load((base / "hosts.yml").read_text(encoding="utf-8"))
    links = dict(chain[::-1] if backwards else chain) | groups
    (base / "hosts.yml").write_text(yaml.safe_dump(links, sort_keys=False), encoding="utf-8")
    edit(base, "group: kimi", "group: g0")
    assert [host.port for host in inventory.load(base).deployments[0].hosts] == [2222, 2222]


def test_groups_that_meet_again_are_walked_once() -> None:
    """A ladder of 60 diamonds has 2^60 ways down; each group counts once."""
    rungs: dict[str, Any] = {}
    for at in range(60):
        side = {"children": {f"t{at + 1}": None}}
        rungs[f"t{at}"] = {"children": {f"l{at}": side, f"r{at}": side}}
    found = Findings()
    root = yamlfile.parse(yaml.safe_dump({**rungs, "t60": {"hosts": {"h": None}}}), "hosts.yml", found.faults)
    assert root is not None
    read = hosts.read(root, found)
    assert (read.members("t0"), read.variables("h").plain, found.faults) == (("h",), {}, [])


def test_a_chain_that_closes_is_refused(base: Path) -> None:
    """A group is never below itself, however far down."""
    links = "".join(f"g{at}: {{children: {{g{(at + 1) % 1500}: }}}}\n" for at in range(1500))
    edit(base, "kimi:\n", f"{links}kimi:\n")
    assert [(fault.where, fault.what) for fault in faults(base)] == [
        ("hosts.yml: g1499.children.g0", "the group is below itself")
    ]


@pytest.mark.parametrize(
    ("length", "fine"), [("24 h", True), ("1440 min", True), ("86401 s", False), ("25 h", False)]
)
def test_a_duration_is_a_day_at_most(base: Path, length: str, *, fine: bool) -> None:
    """What systemd is given is a sum of durations and stays within what it reads."""
    edit(base, API, f"{API}    timeouts: {{engine_ready: {length}}}\n")
    assert [fault.remedy for fault in faults(base)] == ([] if fine else ["write 24 h or less"])


def two_engines(folder: Path, *hardware: str) -> None:
    """Let two deployments of their own names and ports serve on the same hosts."""
    first, second = (_entry(at, name) for at, name in enumerate(hardware))
    (folder / "deployment.yml").write_text(yaml.safe_dump({"deployments": [first, second]}), encoding="utf-8")


def _entry(at: int, hardware: str) -> dict[str, Any]:
    entry: dict[str, Any]
    (entry,) = yaml.safe_load((planted.GOLDEN / "base" / "deployment.yml").read_text(encoding="utf-8"))[
        "deployments"
    ]
    ports = {"master": 29501 + at, "supervisor": 29560 + at}
    lab = (
        {"model": "kimi-infra/lab-tiny", "hardware": "lab-cpu", "features": []}
        if hardware == "lab-cpu"
        else {}
    )
    return {**entry, **lab, "name": f"engine{at}", "api": {"port": 8000 + at}, "ports": ports}


@pytest.mark.parametrize(
    ("hardware", "refused"),
    [(("gb300", "gb300"), True), (("lab-cpu", "gb300"), True), (("lab-cpu", "lab-cpu"), False)],
)
def test_only_engines_without_gpus_share_a_host(
    base: Path, hardware: tuple[str, str], *, refused: bool
) -> None:
    """Each engine is given all GPUs of its hosts, so a second one there is refused."""
    two_engines(base, *hardware)
    try:
        result: Inventory | tuple[Fault, ...] = check.check(base, recipes.load_catalogue())
    except SpecError as error:
        result = error.faults
    if not refused:
        assert isinstance(result, Inventory)
        return
    assert isinstance(result, tuple)
    assert [(fault.where, fault.remedy) for fault in result] == [
        ("deployment.yml: deployments[1].group", "give each deployment hosts of its own")
    ]


FOLDED = "Ansible would take this value and the plan the one of hosts.yml"


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("group_vars/kimi.yml", "ansible_host: 192.0.2.99", FOLDED),
        ("group_vars/kimi", "ansible_user: ops", FOLDED),
        ("group_vars/all.yaml", "ansible_port: 2222", FOLDED),
        ("group_vars/ungrouped.json", '{"node_rank": 1}', FOLDED),
        ("group_vars/kimi/more/ssh.yml", "ansible_ssh_private_key_file: x", FOLDED),
        ("host_vars/tray-a.yml", "host_key: ssh-ed25519 AAAA", FOLDED),
        ("host_vars/tray-b/net.yml", "a: 1\nengine_address: 198.51.100.99", FOLDED),
        ("host_vars/tray-a.yml", "base: &b {node_rank: 1}\n<<: *b", FOLDED),
        ("host_vars/tray-a.yml", "ansible_ssh_host: 192.0.2.99", FOLDED),
        ("group_vars/kimi.yml", "ansible_ssh_common_args: -J jump", FOLDED),
        ("group_vars/kimi.yml", "ansible_ssh_args: -o StrictHostKeyChecking=no", "undo the pinned host keys"),
        ("group_vars/kimi.yml", "ansible_ssh_extra_args: -C", "pins host keys with this variable"),
        ("group_vars/kimi.yml", "ansible_sftp_extra_args: -C", "pins host keys with this variable"),
        ("group_vars/kimi.yml", "ansible_scp_extra_args: -C", "pins host keys with this variable"),
        ("group_vars/kimi.yml", "ansible_host_key_checking: no", "host keys are always checked"),
        ("group_vars/kimi.yml", "a: [", "not YAML"),
    ],
)
def test_a_key_of_the_plan_in_a_folder_of_ansibles_is_refused(
    base: Path, file: str, text: str, what: str
) -> None:
    """Ansible would see another value than the plan: the fault names the file."""
    (base / file).parent.mkdir(parents=True)
    (base / file).write_text(text, encoding="utf-8")
    (fault,) = faults(base)
    assert fault.where.startswith(f"{file}: ")
    assert what in fault.what
    assert what != FOLDED or fault.remedy == "write it in hosts.yml"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("group_vars/kimi.yml", "ansible_become_method: sudo\nansible_ssh_args: -C\ntext: hello\n1: x"),
        ("group_vars/kimi.yml", "$ANSIBLE_VAULT;1.1;AES256\n3035"),
        ("group_vars/kimi.yml", "---\n# nothing yet\n"),
        ("group_vars/kimi.yml", "# nothing yet\n"),
        ("group_vars/kimi.yml", "- a list is Ansible's own fault"),
        # Ansible reads none of these.
        ("group_vars/kimi.yml.bak", "ansible_port: 2222"),
        ("group_vars/README.md", "ansible_port: 2222"),
        ("group_vars/kimi/.hidden.yml", "ansible_port: 2222"),
        ("group_vars/kimi/old~", "ansible_port: 2222"),
        ("group_vars/tray-a.yml", "ansible_port: 2222"),
        ("host_vars/kimi.yml", "ansible_port: 2222"),
    ],
)
def test_other_keys_in_the_folders_of_ansibles_are_fine(base: Path, file: str, text: str) -> None:
    """Variables that neither the plan nor the pinning reads are the operator's own."""
    (base / file).parent.mkdir(parents=True)
    (base / file).write_text(text, encoding="utf-8")
    assert faults(base) == ()


@pytest.mark.parametrize(
    "key", ["ansible_sftp_extra_args", "ansible_scp_extra_args", "ansible_ssh_extra_args"]
)
def test_the_pins_of_file_transfers_are_kept_as_those_of_ssh(base: Path, key: str) -> None:
    """A host's own value would win over the pinning one of the playbooks."""
    variable(base, f"{key}: -C")
    assert [fault.where for fault in faults(base)] == [f"hosts.yml: kimi.vars.{key}"]


@pytest.mark.parametrize(
    "name", ["/", "..", "../..", ".", "", "/etc", "a/b", "../../outside", "//srv", "x\0y", "kimi/../kimi"]
)
@pytest.mark.parametrize(
    "form", ["{name}: {{}}", "more: {{children: {name}}}", "more: {{children: {{{name}: }}}}"]
)
def test_a_group_whose_name_is_a_path_is_a_fault(base: Path, name: str, form: str) -> None:
    """It is refused by its place in hosts.yml, and no file outside of the inventory is looked at."""
    (base / "group_vars").mkdir()
    outside = base.parent / "outside.yml"
    outside.write_text("ansible_port: 2222", encoding="utf-8")
    with (base / "hosts.yml").open("a", encoding="utf-8") as file:
        file.write(form.format(name=json.dumps(name)) + "\n")
    (fault,) = faults(base)
    assert fault.where.startswith("hosts.yml: ")
    assert fault.what == "not a group name that Ansible accepts"


@pytest.mark.parametrize("line", ["{name}: {{}}", "more: {{hosts: {name}}}"])
def test_a_name_too_long_for_a_file_is_a_fault(base: Path, line: str) -> None:
    """Beside other variables, its own cannot even be looked for."""
    for folder in ("group_vars", "host_vars"):
        (base / folder).mkdir()
    with (base / "hosts.yml").open("a", encoding="utf-8") as file:
        file.write(line.format(name="a" * 300) + "\n")
    (fault,) = faults(base)
    assert fault.where.startswith(("group_vars/aaa", "host_vars/aaa"))
    assert "shorter name" in fault.remedy


SECRETS = {
    "--api-key": "write api.key",
    "--hf-token": "write hub_token",
    "--ssl-keyfile-password": "key file",
}
BEGINNINGS = [
    (name[:end], remedy)
    for name, remedy in SECRETS.items()
    for end in range(len("--hf-t"), len(name) + 1)
    if name[:end] != "--ssl-keyfile"
]


@pytest.mark.parametrize(("key", "where"), [("advanced_args", "advanced_args[0]"), ("values", "values.x")])
@pytest.mark.parametrize(("flag", "remedy"), BEGINNINGS)
def test_no_beginning_of_a_flag_carries_a_secret(
    base: Path, flag: str, remedy: str, key: str, where: str
) -> None:
    """The parser takes beginnings, underscores and values in many forms; the secret's place is told."""
    folded = f"--{flag[2:].replace('-', '_')}"
    forms: list[list[str]] = [
        [flag, "canary"],
        [f"{flag}=canary"],
        [folded, "canary"],
        [f"{folded}=canary"],
        [f"{flag}.key", "canary"],
        [f"{flag} canary"],
    ]
    for form in forms:
        (fault,) = _with(base, key, {"x": form} if key == "values" else form)
        assert fault.where == f"deployment.yml: deployments[0].{where}"
        assert "would show a secret in every list of processes" in fault.what
        assert remedy in fault.remedy
        assert "canary" not in repr(fault)


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("advanced_args", ["--hf-token", 4711]),
        ("advanced_args", ["--hf-token", "47\n11"]),
        ("advanced_args", ["--hf-token=47\n11"]),
        ("advanced_args", ["--hf-token", "--port=4711"]),
        ("advanced_args", "--hf-token 4711"),
        ("advanced_args", ["--max-num-seqs 8 --hf-token 4711"]),
        ("values", {"low_latency_args": ["--hf-token", "47\n11"]}),
        ("values", {"draft_model": "--hf-token=4711"}),
        ("values", {"draft_model": "a/b --hf-token 4711"}),
    ],
)
def test_a_secret_behind_its_flag_is_not_shown_by_another_fault(base: Path, key: str, given: object) -> None:
    """Whatever else is wrong with the secret, its flag alone is told, once."""
    (fault,) = _with(base, key, given)
    assert "would show a secret" in fault.what
    assert "11" not in repr(fault)


@pytest.mark.parametrize(
    "words",
    [
        ["--ssl-keyfile", "/srv/key.pem"],
        ["--ssl_keyfile=/srv/key.pem"],
        ["--ssl-certfile=/srv/cert.pem"],
        ["--api-server-count", "2"],
        ["--hf-overrides", "{}"],
        ["--tokenizer", "a/b"],
    ],
)
def test_a_flag_that_only_begins_like_a_secret_one_is_fine(base: Path, words: list[str]) -> None:
    """Whole names of other flags share a beginning with those that carry a secret."""
    assert _with(base, "advanced_args", words) == ()


@pytest.mark.parametrize(
    ("key", "given", "what"),
    [
        ("values", {"draft_model": "a/<value:draft_tokens>"}, "<value:...> refers to a value"),
        ("values", {"low_latency_args": ["--x", "<value:draft_model>"]}, "<value:...> refers to a value"),
        ("values", {"draft_model": "a\x07b"}, "one line of text is expected"),
        ("values", {"low_latency_args": ["a\x1bb"]}, "one line of text is expected"),
        ("values", {"a\x07b": "c"}, "'a\\x07b' is no name"),
        ("values", {"<value:a>": "c"}, "'<value:a>' is no name"),
        ("feature_modes", {"a\x1bb": "c"}, "'a\\x1bb' is no name"),
    ],
)
def test_a_value_is_plain_text_under_a_plain_name(base: Path, key: str, given: object, what: str) -> None:
    """Neither is read as the recipe's own words, and neither changes the terminal that shows it."""
    (fault,) = _with(base, key, given)
    assert what in fault.what
    assert str(fault).isprintable()
    catalogue = recipes.load_catalogue()
    with pytest.raises(SpecError) as refusal:
        check.check(base, catalogue)
    assert refusal.value.faults == (fault,)


@pytest.mark.parametrize("digits", ["9" * 5000, f"0x{'f' * 5000}", f"-0x{'f' * 5000}"])
@pytest.mark.parametrize("key", ["dcp: {}", "nodes: {}", "values: {{draft_tokens: {}}}", "api: {{port: {}}}"])
def test_a_number_beyond_all_sense_is_a_fault(base: Path, key: str, digits: str) -> None:
    """Python turns no such number into text or back: nothing but a refusal comes of it."""
    edit(base, API, f"    {key.format(digits)}\n")
    with pytest.raises(SpecError):
        check.check(base, recipes.load_catalogue())


def _with(folder: Path, key: str, value: object) -> tuple[Fault, ...]:
    """Return the faults with a key of the entry set to a value."""
    path = folder / "deployment.yml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["deployments"][0][key] = value
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return faults(folder)
