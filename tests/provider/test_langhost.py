"""Our language host under a stand-in for Pulumi's engine: real processes, real SDK, real protocol."""
# The contract gives the methods their names and arguments.
# ruff: noqa: N802, ARG002

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import (
    engine_pb2,
    engine_pb2_grpc,
    language_pb2,
    language_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
)

from tests.architecture import sources

pytestmark = pytest.mark.fast

HOST = sources.ROOT / "tools/langhost/pulumi-language-python"
PATIENCE = 60.0
"""Seconds that anything here may take before the test fails."""
PASSPHRASE = "canary-passphrase"
TOKEN = "canary-token"


@dataclass
class Engine(engine_pb2_grpc.EngineServicer, resource_pb2_grpc.ResourceMonitorServicer):
    """What the engine and its monitor were told."""

    errors: list[str] = field(default_factory=list)
    registered: list[str] = field(default_factory=list)
    outputs: dict[str, object] = field(default_factory=dict)
    root: str = ""
    address: str = ""

    def Log(self, request: engine_pb2.LogRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Keep what is logged as an error."""
        if request.severity == engine_pb2.ERROR:
            self.errors.append(request.message)
        return empty_pb2.Empty()

    def SetRootResource(
        self, request: engine_pb2.SetRootResourceRequest, context: grpc.ServicerContext
    ) -> engine_pb2.SetRootResourceResponse:
        """Take the stack's URN."""
        self.root = request.urn
        return engine_pb2.SetRootResourceResponse()

    def GetRootResource(
        self, request: engine_pb2.GetRootResourceRequest, context: grpc.ServicerContext
    ) -> engine_pb2.GetRootResourceResponse:
        """Give the stack's URN."""
        return engine_pb2.GetRootResourceResponse(urn=self.root)

    def SupportsFeature(
        self, request: resource_pb2.SupportsFeatureRequest, context: grpc.ServicerContext
    ) -> resource_pb2.SupportsFeatureResponse:
        """Support secrets."""
        return resource_pb2.SupportsFeatureResponse(hasSupport=request.id == "secrets")

    def RegisterResource(
        self, request: resource_pb2.RegisterResourceRequest, context: grpc.ServicerContext
    ) -> resource_pb2.RegisterResourceResponse:
        """Accept a resource."""
        self.registered.append(request.type)
        urn = f"urn:pulumi:here::demo::{request.type}::{request.name}"
        return resource_pb2.RegisterResourceResponse(urn=urn, object=request.object)

    def RegisterResourceOutputs(
        self, request: resource_pb2.RegisterResourceOutputsRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Keep the outputs."""
        self.outputs |= dict(request.outputs)
        return empty_pb2.Empty()


@dataclass(kw_only=True)
class Bench:
    """A language host, the engine that it serves, and a project."""

    engine: Engine
    host: subprocess.Popen[str]
    call: language_pb2_grpc.LanguageRuntimeStub
    folder: Path
    noise: Path
    """What the host and its programs wrote to stderr."""

    def lay(self, text: str, name: str = "__main__.py") -> None:
        """Lay a file of the project; the program says what it saw by ``seen(value)``."""
        seen = self.folder / "seen.json"
        head = f"import json, pathlib\ndef seen(v): pathlib.Path({str(seen)!r}).write_text(json.dumps(v))\n"
        (self.folder / name).write_text(head + text, encoding="utf-8")

    def seen(self) -> object:
        """What the program saw."""
        saw: object = json.loads((self.folder / "seen.json").read_text(encoding="utf-8"))
        return saw

    def texts(self) -> list[str]:
        """The texts that the program saw."""
        saw = self.seen()
        assert isinstance(saw, list)
        return [str(text) for text in saw]

    def info(self, **options: str) -> language_pb2.ProgramInfo:
        """The project, as Pulumi.yaml would describe it."""
        given = struct_pb2.Struct()
        given.update(options)
        folder = str(self.folder)
        return language_pb2.ProgramInfo(
            root_directory=folder, program_directory=folder, entry_point=".", options=given
        )

    def request(self, info: language_pb2.ProgramInfo | None = None) -> language_pb2.RunRequest:
        """A run of the project's program."""
        return language_pb2.RunRequest(
            project="demo",
            stack="here",
            organization="ours",
            pwd=str(self.folder),
            args=["--flag", "two words"],
            config={"demo:size": "3", "demo:token": TOKEN},
            configSecretKeys=["demo:token"],
            dryRun=True,
            parallel=4,
            monitor_address=self.engine.address,
            info=info or self.info(),
        )

    def run(self, text: str | None = None) -> language_pb2.RunResponse:
        """Run a program to its end."""
        if text is not None:
            self.lay(text)
        answer: language_pb2.RunResponse = self.call.Run(self.request(), timeout=PATIENCE)
        return answer


def start_host(engine: Engine, folder: Path, noise: Path) -> subprocess.Popen[str]:
    """Start the host as the engine does: flags, then its address, in the project, in a group of its own."""
    env = {**os.environ, "VIRTUAL_ENV": sys.prefix, "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE}
    command = [str(HOST), "--logtostderr", "-v=9", "--tracing", "http://trace.invalid", engine.address]
    with noise.open("w") as errors:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine that listens."""
    servicer = Engine()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    engine_pb2_grpc.add_EngineServicer_to_server(servicer, server)
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(grace=None).wait()


@pytest.fixture(scope="module")
def start(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Bench]]:
    """Starts benches; all their hosts are ended afterwards."""
    with contextlib.ExitStack() as stack:

        def bench() -> Bench:
            folder, noise = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("noise") / "stderr"
            host = start_host(engine, folder, noise)
            stack.callback(end, host)
            assert host.stdout is not None
            port = int(host.stdout.readline())
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
            stub = language_pb2_grpc.LanguageRuntimeStub(channel)
            return Bench(engine=engine, host=host, call=stub, folder=folder, noise=noise)

        yield bench


def end(host: subprocess.Popen[str]) -> None:
    """End a host, and its program with it, as the engine does: kindly, then by force."""
    with host:
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(host.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                host.wait(10)


@pytest.fixture(scope="module")
def shared(start: Callable[[], Bench]) -> Bench:
    """A host for the tests that leave it running."""
    return start()


@pytest.fixture
def bench(shared: Bench) -> Bench:
    """The shared host, with nothing told and no program laid yet."""
    shared.engine.errors.clear()
    shared.engine.registered.clear()
    shared.engine.outputs.clear()
    shared.engine.root = ""
    for path in shared.folder.iterdir():
        if path.is_file():
            path.unlink()
    return shared


WHAT_IT_SEES = """
import os, sys, pulumi
import sibling
config = pulumi.Config()
seen({
    "args": sys.argv[1:],
    "project": [pulumi.get_project(), pulumi.get_stack(), pulumi.get_organization()],
    "dry_run": pulumi.runtime.is_dry_run(),
    "folder": os.getcwd(),
    "root": pulumi.runtime.get_root_directory(),
    "size": config.require_int("size"),
    "secret": pulumi.runtime.is_config_secret("demo:token"),
    "python": sys.prefix,
    "sibling": sibling.VALUE,
})
pulumi.export("size", config.require_int("size"))
"""


def test_a_program_sees_what_the_engine_sent(bench: Bench) -> None:
    """Settings, configuration, arguments, folder and modules arrive; the outputs come back."""
    bench.lay("VALUE = 7\n", "sibling.py")
    assert bench.run(WHAT_IT_SEES) == language_pb2.RunResponse()
    assert bench.seen() == {
        "args": ["--flag", "two words"],
        "project": ["demo", "here", "ours"],
        "dry_run": True,
        "folder": str(bench.folder),
        "root": str(bench.folder),
        "size": 3,
        "secret": True,
        "python": sys.prefix,
        "sibling": 7,
    }
    assert bench.engine.registered == ["pulumi:pulumi:Stack"]
    assert bench.engine.outputs == {"size": 3.0}
    assert bench.engine.errors == []


def test_secrets_stay_off_the_command_line_and_out_of_the_environment(bench: Bench) -> None:
    """A decrypted value is in neither, nor is the passphrase that decrypts all the others."""
    text = """
import os, pathlib, pulumi
me = pathlib.Path("/proc/self")
seen([pulumi.Config().require("token"), (me / "cmdline").read_text() + (me / "environ").read_text()])
"""
    assert bench.run(text) == language_pb2.RunResponse()
    token, visible = bench.texts()
    assert token == TOKEN
    assert "program.py" in visible
    assert TOKEN not in visible
    assert PASSPHRASE not in visible


def test_the_hosts_own_modules_are_not_the_programs(bench: Bench) -> None:
    """A program does not find the host's modules in place of its own, also not after its last line."""
    bench.lay("VALUE = 'mine'\n", "launch.py")
    text = """
import importlib.util, pulumi
def late(_):
    import launch
    seen([launch.VALUE, importlib.util.find_spec("host") is None])
pulumi.Output.from_input(1).apply(late)
"""
    assert bench.run(text) == language_pb2.RunResponse()
    assert bench.seen() == ["mine", True]


def test_an_exception_is_told_from_the_programs_first_frame_on(bench: Bench) -> None:
    """The operator gets the trace through their own files, once, and none of the machinery below them."""
    bench.lay("def f():\n    raise LookupError('no such tray')\n", "deep.py")
    assert bench.run("import deep\ndeep.f()\n") == language_pb2.RunResponse(bail=True)
    (told,) = bench.engine.errors
    lines = told.splitlines()
    assert lines[:2] == ["Program failed with an unhandled exception:", "Traceback (most recent call last):"]
    assert lines[2] == f'  File "{bench.folder}/__main__.py", line 4, in <module>'
    assert f'  File "{bench.folder}/deep.py", line 4, in f' in lines
    assert lines[-1] == "LookupError: no such tray"
    assert "runpy" not in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import pulumi\nraise pulumi.RunError('two heads')\n", "two heads"),
        (None, "no program there: {folder}/__main__.py"),
    ],
    ids=["RunError", "no program"],
)
def test_an_error_of_the_operators_is_told_without_a_trace(bench: Bench, text: str | None, told: str) -> None:
    """The message alone."""
    assert bench.run(text) == language_pb2.RunResponse(bail=True)
    assert bench.engine.errors == [told.format(folder=bench.folder)]


def test_a_failed_registration_is_told(bench: Bench) -> None:
    """An error that no line of the program raised is told with the whole trace."""
    text = "import pulumi\npulumi.Output.from_input(0).apply(lambda v: 1 / v)\n"
    assert bench.run(text) == language_pb2.RunResponse(bail=True)
    assert "ZeroDivisionError" in bench.engine.errors[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit(0)\n", ""),
        ("import sys\nsys.exit(3)\n", "the program ended with exit status 3"),
        ("import os\nos.kill(os.getpid(), 9)\n", "the program was ended by SIGKILL"),
    ],
)
def test_the_end_of_a_program_is_told(bench: Bench, text: str, said: str) -> None:
    """An exit status or a signal is named."""
    assert bench.run(text) == language_pb2.RunResponse(error=said)


def test_output_goes_where_the_engine_reads_it(start: Callable[[], Bench]) -> None:
    """A program's two streams are the host's own; the host adds nothing but its port."""
    bench = start()
    text = "import sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)\n"
    assert bench.run(text) == language_pb2.RunResponse()
    end_of_host = bench.host.communicate(timeout=PATIENCE)[0]  # closes stdin, so the host ends
    assert end_of_host == "to stdout\n"
    assert bench.noise.read_text() == "to stderr\n"


WAITS = """
import os, threading
seen(os.getpid())
pathlib.Path("ready").open("w").close()
while True: threading.Event().wait(0.2)  # Python looks for signals in the main thread only
"""


def run_aside(bench: Bench, text: str) -> grpc.Future[language_pb2.RunResponse]:
    """Start a program and return when it runs."""
    ready = bench.folder / "ready"
    os.mkfifo(ready)
    bench.lay(text)
    running = bench.call.Run.future(bench.request(), timeout=PATIENCE)
    ready.open().close()
    ready.unlink()
    return running


def is_gone(pid: int) -> bool:
    """Say whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_cancel_interrupts_the_program(bench: Bench) -> None:
    """Run returns with the interruption, and the program is gone."""
    running = run_aside(bench, WAITS)
    bench.call.Cancel(empty_pb2.Empty(), timeout=PATIENCE)
    assert running.result() == language_pb2.RunResponse(error="the program ended with exit status 130")
    assert is_gone(int(str(bench.seen())))


@pytest.mark.parametrize(
    ("way", "stubborn"),
    [("stdin", False), ("SIGINT", False), ("SIGTERM", True)],  # stubborn: ignores both signals
)
def test_nothing_outlives_the_engine(start: Callable[[], Bench], way: str, stubborn: bool) -> None:
    """The engine's death, seen on stdin, or a signal ends the host and its program within seconds."""
    deaf = "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n" if stubborn else ""
    bench = start()
    run_aside(bench, deaf + WAITS)
    if way == "stdin":
        assert bench.host.stdin is not None
        bench.host.stdin.close()
    else:
        bench.host.send_signal(signal.Signals[way])
    assert bench.host.wait(PATIENCE) == 0
    assert is_gone(int(str(bench.seen())))
    assert bench.noise.read_text() == ""


def make_venv(folder: Path, *, with_sdk: bool) -> Path:
    """A virtual environment, which may see the packages of the one that runs this test."""
    venv.EnvBuilder(symlinks=True).create(folder)
    if with_sdk:
        (packages,) = folder.glob("lib/python*/site-packages")
        here = Path(grpc.__file__).parents[1]
        (packages / "sdk.pth").write_text(f"{here}\n", encoding="utf-8")
    return folder


def test_the_projects_virtual_environment_runs_the_program(bench: Bench) -> None:
    """The option of Pulumi.yaml counts from its folder; programs beside that Python come first on PATH."""
    folder = make_venv(bench.folder / "env", with_sdk=True)
    bench.lay("import os, sys\nseen([sys.prefix, os.environ['VIRTUAL_ENV'], os.environ['PATH']])\n")
    info = bench.info(virtualenv="env")
    assert bench.call.Run(bench.request(info), timeout=PATIENCE) == language_pb2.RunResponse()
    prefix, active, path = bench.texts()
    assert prefix == active == str(folder)
    assert path.startswith(f"{folder}/bin:")
    about = bench.call.About(language_pb2.AboutRequest(info=info), timeout=PATIENCE)
    assert about.executable == f"{folder}/bin/python"


def test_a_virtual_environment_that_is_not_there_is_told(bench: Bench) -> None:
    """The message names the option, its value and the path that was looked at."""
    info = bench.info(virtualenv="../nowhere")
    said = bench.call.Run(bench.request(info), timeout=PATIENCE).error
    assert said.startswith("Pulumi.yaml: runtime.options.virtualenv: no Python there (got ../nowhere, so ")
    with pytest.raises(grpc.RpcError) as refused:
        bench.call.About(language_pb2.AboutRequest(info=info), timeout=PATIENCE)
    assert refused.value.details() == said


def test_an_environment_without_the_sdk_is_told(bench: Bench) -> None:
    """The reason stands on stderr, and Run says that the program ended."""
    make_venv(bench.folder / "bare", with_sdk=False)
    bench.lay("")
    request = bench.request(bench.info(virtualenv="bare"))
    assert bench.call.Run(request, timeout=PATIENCE).error == "the program ended with exit status 1"
    assert "bare/bin/python: No module named 'pulumi'; install" in bench.noise.read_text()


def test_the_host_describes_itself(bench: Bench) -> None:
    """Version, packages of the environment, no plugin to be fetched, nothing installed, plugins refused."""
    info = bench.info()
    assert bench.call.GetPluginInfo(empty_pb2.Empty()).version.count(".") == 2
    needed = bench.call.GetRequiredPackages(language_pb2.GetRequiredPackagesRequest(info=info))
    assert needed == language_pb2.GetRequiredPackagesResponse()
    request = language_pb2.GetProgramDependenciesRequest(info=info)
    listed = bench.call.GetProgramDependencies(request, timeout=PATIENCE).dependencies
    assert "pulumi" in {package.name for package in listed}
    (said,) = bench.call.InstallDependencies(language_pb2.InstallDependenciesRequest(info=info))
    assert b"nothing is installed" in said.stdout
    with pytest.raises(grpc.RpcError) as refused:
        list(bench.call.RunPlugin(language_pb2.RunPluginRequest(info=info)))
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def launch(folder: Path, python: Path) -> subprocess.CompletedProcess[str]:
    """Start the host in a folder on a machine whose one python3 is given, and let it end at once."""
    env = {"PATH": f"{python.parent}:/usr/bin:/bin"}
    return subprocess.run(
        [str(HOST), "127.0.0.1:9"],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_nearest_environment_with_the_sdk_is_found(tmp_path: Path) -> None:
    """From a folder inside the project, its .venv is used; the machine's own Python has no SDK."""
    bare = make_venv(tmp_path / "machine", with_sdk=False)
    make_venv(tmp_path / "project" / ".venv", with_sdk=True)
    inside = tmp_path / "project" / "infra"
    make_venv(inside / ".venv", with_sdk=False)  # nearer, but of no use
    ran = launch(inside, bare / "bin/python3")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip().isdigit()


def test_without_the_sdk_the_host_says_where_it_looked(tmp_path: Path) -> None:
    """Neither a package of that name in the folder nor what an uninstallation left passes for the SDK."""
    bare = make_venv(tmp_path / "machine", with_sdk=False)
    (packages,) = bare.glob("lib/python*/site-packages")
    for folder in (tmp_path / "pulumi", packages / "pulumi"):
        folder.mkdir()
    (tmp_path / "pulumi" / "__init__.py").touch()
    ran = launch(tmp_path, bare / "bin/python3")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"no Python with Pulumi's SDK among {bare}/bin/python" in ran.stderr
    assert "make the project's .venv" in ran.stderr
