"""The provider's own process, called as the engine does, on hosts that are this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2

from kimi_infra.cloud import wire
from tests.provider import engine, tree

pytestmark = pytest.mark.provider

KEY = "s3cr3t-key-of-the-test"
PASSPHRASE = "pass-phrase-of-the-test"
HOSTS = engine.urn("HostBase", "site-hosts")
IMAGE = engine.urn("ServingImage", "site-image")
SERVE = engine.urn("VllmServe", "site-serve")
VERIFY = engine.urn("NodeVerify", "site-verify")
STATE = tuple[wire.Values, wire.Values]


class Project:
    """A Pulumi project with one inventory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.runtime = folder, folder / "out", folder / "run"
        self.runtime.mkdir()
        self.tree = tree.write_tree(folder / "tree")
        self.inventory = tree.write_inventory(folder / "inv", self.out)
        self._given = (self.inventory / "group_vars/kimi.yml").read_text()

    def given(self, **variables: object) -> None:
        """Set variables of the hosts."""
        lines = "".join(f"{name}: {value}\n" for name, value in variables.items())
        (self.inventory / "group_vars/kimi.yml").write_text(self._given + lines)

    def start(self) -> engine.Provider:
        """Start a provider."""
        environ = {
            "KIMI_API_KEY": KEY,
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "XDG_RUNTIME_DIR": str(self.runtime),
        }
        return engine.Provider(self.tree, self.folder, environ)

    @property
    def files(self) -> set[str]:
        """Names of what was put on the hosts."""
        return {path.name for path in self.out.iterdir() if not path.name.startswith(".")}

    def processes(self) -> list[int]:
        """Everything that runs with this project's runtime folder in its environment."""
        mark = f"XDG_RUNTIME_DIR={self.runtime}".encode()
        return [pid for pid in pids() if mark in proc(pid, "environ").split(b"\0")]


def pids() -> list[int]:
    """All processes."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def proc(pid: int, file: str) -> bytes:
    """A file of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project."""
    return Project(tmp_path)


@pytest.fixture
def provider(project: Project) -> Iterator[engine.Provider]:
    """A provider in it, that ends as it should and leaves nothing behind."""
    started = project.start()
    yield started
    assert started.close() == 0
    assert KEY not in started.kept + "\n".join(started.statuses)
    assert project.processes() == []
    assert list(project.runtime.iterdir()) == []


def checked(provider: engine.Provider, urn: str, **given: object) -> wire.Values:
    """Checked inputs of a stage."""
    inputs, failures = provider.check(urn, {"inventory": "inv", **given})
    assert failures == []
    return inputs


def test_the_life_of_a_stage(provider: engine.Provider, project: Project) -> None:
    """Preview, create, drift, repair and destroy, as the engine would have it."""
    inputs = checked(provider, HOSTS)
    image = checked(provider, IMAGE)

    outputs = provider.create(HOSTS, inputs, preview=True)
    provider.create(IMAGE, image, preview=True)
    assert project.files == set()
    assert outputs["applied"] is wire.UNKNOWN
    assert "would change:\ntray-a: host_base : Write the file" in provider.kept
    assert "    +hello" in provider.kept
    assert provider.statuses.count("check: Probe") == 1, "stages of one playbook share a check run"

    outputs = provider.create(HOSTS, inputs)
    written = {f"host_base-{host}{end}" for host in ("tray-a", "tray-b") for end in ("", ".secret")}
    assert project.files == written, "a stage runs its own role and no other"
    assert (project.out / "host_base-tray-a.secret").read_text() == KEY
    assert (outputs["inSync"], outputs["drift"], outputs["applied"]) == (True, [], 1)
    assert provider.diff(HOSTS, (inputs, outputs), inputs) == []
    assert "host_base : Write the file" in provider.statuses

    (project.out / "host_base-tray-b").write_text("tampered\n")
    (project.out / "host_base-tray-a.secret").write_text("tampered\n")
    seen = provider.read(HOSTS, inputs, outputs)
    drift: Any = seen["drift"]
    assert [(one["host"], one.get("path")) for one in drift] == [
        ("tray-b", str(project.out / "host_base-tray-b")),
        ("tray-a", None),
    ]
    assert "-tampered\n+hello" in drift[0]["diff"]
    assert provider.diff(HOSTS, (inputs, seen), inputs) == ["inSync"]

    outputs = provider.update(HOSTS, (inputs, seen), inputs)
    assert (outputs["inSync"], outputs["applied"]) == (True, 2)
    assert (project.out / "host_base-tray-b").read_text() == "hello\n"

    provider.delete(HOSTS, inputs, outputs)
    assert project.files == written, "retained by default"
    teardown = checked(provider, HOSTS, onDelete="teardown")
    assert provider.diff(HOSTS, (inputs, outputs), teardown) == ["onDelete"]
    ran = len(provider.statuses)
    outputs = provider.update(HOSTS, (inputs, outputs), teardown)
    assert len(provider.statuses) == ran, "remembered without a run"
    later = project.start()
    later.delete(HOSTS, teardown, outputs)
    assert later.close() == 0
    assert project.files == {name for name in written if name.endswith(".secret")}


def test_no_teardown_under_a_resource_that_serves(provider: engine.Provider, project: Project) -> None:
    """What the program has on the same hosts keeps them, renamed or replaced by itself; and it is told."""
    old = checked(provider, HOSTS, onDelete="teardown")
    renamed = engine.urn("HostBase", "renamed-hosts")
    news = checked(provider, renamed, onDelete="teardown")
    outputs = provider.create(renamed, news)
    before = project.files
    for urn, inputs in ((HOSTS, old), (renamed, news)):
        provider.delete(urn, inputs, outputs)
        assert project.files == before
    told = "tray-a, tray-b: kept as they are, for renamed-hosts in this stack"
    assert provider.kept.count(told) == 2


def test_half_a_failure_is_kept(provider: engine.Provider, project: Project) -> None:
    """What one host has is kept, the message is the task's own, and the next update ends in sync."""
    project.given(fail_in="vllm_serve tray-b", waits=True)
    inputs = checked(provider, SERVE, secrets=wire.Secret({"KIMI_API_KEY": KEY}))
    with pytest.raises(engine.InitFailed) as failed:
        provider.create(SERVE, inputs)
    assert failed.value.id == "site-serve"
    assert failed.value.inputs == inputs
    assert failed.value.inputs["secrets"] == wire.Secret({"KIMI_API_KEY": KEY})
    assert failed.value.reasons == [
        "tray-b: vllm_serve : Stop where the test says: tray-b has no luck with [secret]; mend it"
    ]
    assert failed.value.properties["inSync"] is False
    assert "vllm_serve-tray-a" in project.files

    project.given(waits=True)
    news = checked(provider, SERVE, secrets=wire.Secret({"KIMI_API_KEY": KEY}))
    old = (failed.value.inputs, failed.value.properties)
    assert provider.diff(SERVE, old, news) == ["inSync", 'sources["inventory/group_vars"]']
    outputs = provider.update(SERVE, old, news)
    assert outputs["inSync"] is True
    assert outputs["endpoints"] == {"kimi": "http://127.0.0.2:8000"}
    assert outputs["imageIds"] == {"kimi": {"tray-a": f"sha256:{'a' * 64}", "tray-b": f"sha256:{'a' * 64}"}}
    assert len(str(outputs["planHashes"])) > 64
    assert outputs["restartRequired"] == {"kimi": "it differs"}
    assert "kimi: restart required: it differs" in provider.kept


def test_facts_that_cannot_be_planned_are_the_runs_failure(
    provider: engine.Provider, project: Project
) -> None:
    """Facts that contradict the plan end an apply with the run's message, kept in state; no call crashes."""
    project.given(fail_in="vllm_serve tray-b")
    probe = project.tree / "plugins/action/kimi_probe.py"
    probe.write_text(probe.read_text().replace('{task_vars["engine_address"]: "eth0"}', "{}"))
    inputs = checked(provider, SERVE)
    with pytest.raises(engine.InitFailed, match="tray-b has no luck") as failed:
        provider.create(SERVE, inputs)
    assert failed.value.properties["planHashes"] == {}
    seen = provider.read(SERVE, inputs, failed.value.properties)
    assert (seen["inSync"], seen["planHashes"]) == (False, {})


def test_a_secret_address_is_never_shown(provider: engine.Provider, project: Project) -> None:
    """It reaches its host, and stands in clear in no output, no message and no failure."""
    project.given(fail_in="vllm_serve tray-a")
    tasks = project.tree / "roles/vllm_serve/tasks/main.yml"
    tasks.write_text(tasks.read_text().replace("; mend it", " at {{ ansible_host }}; mend it"))
    hosts = {"tray-a": {"ansible_host": wire.Secret("127.0.0.77")}}
    inputs = checked(provider, SERVE, hosts=hosts)
    provider.create(SERVE, inputs, preview=True)
    assert "ranks are started on tray-a and tray-b" in provider.kept
    with pytest.raises(engine.InitFailed, match=r"at \[secret\]") as failed:
        provider.create(SERVE, inputs)
    told = failed.value
    shown = (repr(told.properties), repr(told.inputs), *told.reasons, provider.kept, *provider.statuses)
    assert "127.0.0.77" not in "\n".join(shown)
    assert wire.reveal(told.properties["endpoints"]) == {"kimi": "http://127.0.0.77:8000"}
    (project.inventory / "deployment.yml").write_text("")
    with pytest.raises(grpc.RpcError, match=r"deployment\.yml"):
        provider.read(SERVE, inputs, told.properties)


def test_verification_runs_for_real(provider: engine.Provider, project: Project) -> None:
    """A preview verifies nothing; an apply fails with the host's own words, as does a refresh."""
    inputs = checked(provider, VERIFY, after={"serve": wire.UNKNOWN})
    provider.create(VERIFY, inputs, preview=True)
    assert provider.statuses == []
    inputs = checked(provider, VERIFY, after={"serve": 1})
    with pytest.raises(engine.InitFailed, match=r"tray-[ab]: node_verify : Look at the host"):
        provider.create(VERIFY, inputs)
    for host in ("tray-a", "tray-b"):
        (project.out / f"vllm_serve-{host}").touch()
    assert provider.read(VERIFY, inputs, {"applied": 3})["inSync"] is True


def test_unknown_hosts_are_not_contacted(provider: engine.Provider, project: Project) -> None:
    """A preview with hosts that another resource has still to name runs nothing."""
    inputs = checked(provider, SERVE, hosts={"tray-a": {"ansible_host": wire.UNKNOWN}})
    outputs = provider.create(SERVE, inputs, preview=True)
    assert outputs["endpoints"] is wire.UNKNOWN
    assert "hosts are not asked" in provider.kept
    assert provider.statuses == []
    assert project.files == set()


def test_a_host_that_does_not_answer_is_an_error(provider: engine.Provider, project: Project) -> None:
    """It is named, and never taken for gone or drifted; nothing is put into state."""
    text = (project.inventory / "hosts.yml").read_text()
    text = text.replace("ansible_connection: local", "ansible_port: 9")
    (project.inventory / "hosts.yml").write_text(text)
    inputs = checked(provider, HOSTS)
    with pytest.raises(grpc.RpcError, match=r"tray-a: .*(?s:.*)refused") as error:
        provider.read(HOSTS, inputs, {"inSync": True})
    assert not error.value.trailing_metadata()


def creating(provider: engine.Provider, urn: str, inputs: wire.Values) -> tuple[threading.Thread, list[Any]]:
    """Create in the background; the list gets the error."""
    errors: list[Any] = []

    def go() -> None:
        try:
            provider.create(urn, inputs)
        except (engine.InitFailed, grpc.RpcError) as error:
            errors.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    provider.await_status("host_base : Wait")
    return thread, errors


def sleeping(project: Project) -> Callable[[], bool]:
    """Whether the task that waits has begun on both hosts."""

    def both() -> bool:
        return sum(proc(pid, "cmdline") == b"sleep\x006007\x00" for pid in project.processes()) == 2

    return both


def test_cancel_leaves_nothing_running(provider: engine.Provider, project: Project) -> None:
    """A cancelled create keeps its state, ends what it started, and no argument or environment tells."""
    project.given(nap_in="host_base", nap=6007)
    thread, errors = creating(provider, HOSTS, checked(provider, HOSTS))
    engine.wait_until(sleeping(project), "the sleep on both hosts")
    assert not [pid for pid in pids() if KEY.encode() in proc(pid, "cmdline")]
    children = [pid for pid in project.processes() if pid != provider.process.pid]
    assert children
    assert not [pid for pid in children if PASSPHRASE.encode() in proc(pid, "environ")]
    provider.stub.Cancel(empty_pb2.Empty())
    thread.join(20)
    [error] = errors
    assert isinstance(error, engine.InitFailed)
    assert error.reasons == ["ansible-playbook: canceled"]
    assert error.properties["inSync"] is False
    with pytest.raises(engine.InitFailed, match="canceled"):
        provider.create(HOSTS, checked(provider, HOSTS))


def test_a_killed_playbook_is_a_failure(provider: engine.Provider, project: Project) -> None:
    """Kill -9 of ansible-playbook ends its tasks too, and is told as what it is."""
    project.given(nap_in="host_base", nap=6007)
    thread, errors = creating(provider, HOSTS, checked(provider, HOSTS))
    engine.wait_until(sleeping(project), "the sleep on both hosts")
    first = [pid for pid in project.processes() if b"ansible-playbook" in proc(pid, "cmdline")]
    os.kill(min(first), signal.SIGKILL)
    thread.join(20)
    assert isinstance(errors[0], engine.InitFailed)
    assert errors[0].properties["inSync"] is False


def test_a_killed_provider_leaves_nothing(project: Project) -> None:
    """Kill -9 of the provider: what it started ends by itself, and its folder in memory goes."""
    project.given(nap_in="host_base", nap=6007)
    provider = project.start()
    thread, _ = creating(provider, HOSTS, checked(provider, HOSTS))
    engine.wait_until(sleeping(project), "the sleep on both hosts")
    provider.process.kill()
    thread.join(20)
    assert provider.close() == -signal.SIGKILL
    engine.wait_until(lambda: project.processes() == [], "the end of all processes")
    engine.wait_until(lambda: list(project.runtime.iterdir()) == [], "the end of the folder in memory")


def test_a_dead_engine_ends_the_provider(project: Project) -> None:
    """When the engine was killed, nobody else would end its provider."""
    environ = {"KIMI_API_KEY": KEY, "XDG_RUNTIME_DIR": str(project.runtime)}
    shell = subprocess.Popen(
        ["sh", "-c", f"{engine.PROGRAM} 127.0.0.1:1 & read -r _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environ},
        text=True,
    )
    with shell:
        assert shell.stdout is not None
        assert int(shell.stdout.readline()), "the provider serves"
        assert len(project.processes()) == 2
        shell.kill()
        engine.wait_until(lambda: project.processes() == [], "the provider's own end")


def test_a_foreign_type_is_refused(provider: engine.Provider) -> None:
    """A type that the provider does not have is named, with those that it has."""
    with pytest.raises(grpc.RpcError, match="kimi:index:HostBase"):
        provider.check(engine.urn("Hostbase", "x"), {})


def test_the_engine_is_told_what_is_supported(provider: engine.Provider) -> None:
    """Secrets stay marked, and previews reach the provider."""
    shaken = provider.stub.Handshake(provider_pb2.ProviderHandshakeRequest())
    assert shaken.accept_secrets
    configured = provider.stub.Configure(provider_pb2.ConfigureRequest())
    assert (configured.acceptSecrets, configured.supportsPreview) == (True, True)
    assert provider.stub.GetPluginInfo(empty_pb2.Empty()).version
