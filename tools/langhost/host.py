"""A language host of Pulumi's engine for Python programs, where the official one is not to be had.

The official release brings its own, which is always to be preferred;
this one is for a ``pulumi`` that was built from its Go module.
The contract is Pulumi's proto/pulumi/language.proto: the engine starts this program with its own address
as last argument, reads a port from the first line of stdout and calls LanguageRuntime there.
All else on stdout and stderr the engine shows to the operator, so the program inherits both.
It ends with the engine, which it knows by the end of stdin; it never outlives it.
"""
# The contract gives the methods their names and arguments.
# ruff: noqa: N802, ARG002

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TypedDict

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

PROGRAM = Path(__file__).resolve().with_name("program.py")
ALREADY_SAID = 32
"""Exit status of program.py when the operator has been told why."""
MESSAGE_BYTES = 400 << 20
"""The SDK's own limit for one message: states and configurations are large."""
PATIENCE = 3.0
"""Seconds for a program to end after a signal; the engine itself kills a language host after 5."""
KEPT_FROM_PROGRAMS = frozenset({"PULUMI_CONFIG_PASSPHRASE"})
"""The engine decrypts and hands over what a program may see; the key to all the rest stays with it."""

DESCRIBE = """
import json, platform
from importlib import metadata
found = sorted({(d.metadata["Name"], d.version) for d in metadata.distributions()})
print(json.dumps({"version": platform.python_version(), "packages": found}))
"""


class ProgramError(RuntimeError):
    """A program cannot be started."""


class Description(TypedDict):
    """What a Python is and holds."""

    version: str
    packages: list[tuple[str, str]]


def interpreter_of(info: language_pb2.ProgramInfo) -> str:
    """The Python of a program: the one of ``runtime.options.virtualenv`` in Pulumi.yaml, else the host's own.

    Raises:
        ProgramError: there is none where Pulumi.yaml says.
    """
    virtualenv = dict(info.options).get("virtualenv")
    if not virtualenv:
        return sys.executable
    python = Path(info.root_directory, str(virtualenv), "bin", "python")
    if not python.exists():
        raise ProgramError(
            f"Pulumi.yaml: runtime.options.virtualenv: no Python there (got {virtualenv}, so {python}); "
            "make the environment first, or correct the path, which is taken from Pulumi.yaml's folder"
        )
    return str(python)


def environment_for(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program, with its virtual environment active as by a shell."""
    env = {name: value for name, value in environ.items() if name not in KEPT_FROM_PROGRAMS}
    folder = Path(python).parent
    if (folder.parent / "pyvenv.cfg").exists():
        env["VIRTUAL_ENV"] = str(folder.parent)
        env["PATH"] = os.pathsep.join(filter(None, [str(folder), env.get("PATH")]))
    return env


def describe(python: str) -> Description:
    """Ask a Python for its version and packages."""
    asked = [python, "-I", "-c", DESCRIBE]
    answer = subprocess.run(asked, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    found: Description = json.loads(answer.stdout)
    return found


def job_of(request: language_pb2.RunRequest, engine: str) -> str:
    """What program.py is told, by stdin: the configuration holds decrypted secrets."""
    settings = {
        "project": request.project,
        "stack": request.stack,
        "organization": request.organization,
        "root_directory": request.info.root_directory,
        "monitor": request.monitor_address,
        "engine": engine,
        "parallel": request.parallel,
        "dry_run": request.dryRun,
    }
    program = Path(request.info.program_directory, request.info.entry_point)
    return json.dumps(
        {
            "settings": settings,
            "config": dict(request.config),
            "secret_keys": list(request.configSecretKeys),
            "program": os.path.normpath(program),
            "args": list(request.args),
        }
    )


def response_of(status: int) -> language_pb2.RunResponse:
    """What the engine is told of a program that ended with an exit status, negative for a signal."""
    if status == 0:
        return language_pb2.RunResponse()
    if status == ALREADY_SAID:
        return language_pb2.RunResponse(bail=True)
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    return language_pb2.RunResponse(error=f"the program {how}")


@dataclass(slots=True)
class Programs:
    """The programs that run now."""

    running: set[subprocess.Popen[str]] = field(default_factory=set)
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, python: str, job: str, folder: str | None) -> int:
        """Run a program to its end and return its exit status.

        Raises:
            ProgramError: the host is ending, or the program's folder or Python is not there.
        """
        with self.lock:
            if self.closed:
                raise ProgramError("the language host is ending")
            process = self.start(python, folder)
            self.running.add(process)
        try:
            process.communicate(job)
        finally:
            with self.lock:
                self.running.discard(process)
        return process.returncode

    @staticmethod
    def start(python: str, folder: str | None) -> subprocess.Popen[str]:
        """Start program.py, which then waits for its job."""
        env = environment_for(python, os.environ)
        command = [python, "-u", str(PROGRAM)]
        try:
            return subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.PIPE, text=True)
        except OSError as error:
            raise ProgramError(f"cannot start the program: {error}") from error

    def signal(self, number: signal.Signals) -> list[subprocess.Popen[str]]:
        """Send a signal to all that run; return them."""
        with self.lock:
            for process in self.running:
                process.send_signal(number)
            return list(self.running)

    def end(self) -> None:
        """End all that run; none starts any more."""
        with self.lock:
            self.closed = True
        for process in self.signal(signal.SIGTERM):
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The engine's view of Python."""

    def __init__(self, engine: str, programs: Programs) -> None:
        self.engine = engine
        self.programs = programs

    def Handshake(
        self, request: language_pb2.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        """Learn the engine's address, when it attached to a host that was running already."""
        self.engine = request.engine_address or self.engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Give the SDK's version."""
        return plugin_pb2.PluginInfo(version=metadata.version("pulumi"))

    def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        """Name no plugin: the engine loads each one when a resource asks for it.

        Naming what the environment holds would make it fetch plugins that a stack never uses.
        """
        return language_pb2.GetRequiredPackagesResponse()

    def GetRequiredPlugins(
        self, request: language_pb2.GetRequiredPluginsRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPluginsResponse:
        """Name no plugin, to an older engine."""
        return language_pb2.GetRequiredPluginsResponse()

    def About(
        self, request: language_pb2.AboutRequest, context: grpc.ServicerContext
    ) -> language_pb2.AboutResponse:
        """Tell ``pulumi about`` which Python it is."""
        python = self.python(request.info, context)
        return language_pb2.AboutResponse(executable=python, version=describe(python)["version"])

    def GetProgramDependencies(
        self, request: language_pb2.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        """List the packages of the program's environment, those that others pulled in as well."""
        packages = describe(self.python(request.info, context))["packages"]
        found = [language_pb2.DependencyInfo(name=name, version=version) for name, version in packages]
        return language_pb2.GetProgramDependenciesResponse(dependencies=found)

    def InstallDependencies(
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """Install nothing: the environment is made from the project's lock file, not by Pulumi."""
        said = "Python packages: nothing is installed here; the project's own set-up makes its environment.\n"
        yield language_pb2.InstallDependenciesResponse(stdout=said.encode())

    def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Refuse plugins that need a language host to start."""
        refusal = (
            f"{request.info.program_directory}: this language host starts programs only, no plugins; "
            "put Pulumi's official release on PATH, or give the plugin an executable pulumi-resource-NAME"
        )
        context.abort(grpc.StatusCode.UNIMPLEMENTED, refusal)
        yield language_pb2.RunPluginResponse()  # never reached: it makes this the stream of the contract

    def Run(
        self, request: language_pb2.RunRequest, context: grpc.ServicerContext
    ) -> language_pb2.RunResponse:
        """Run the stack's program to its end."""
        try:
            python = interpreter_of(request.info)
            return response_of(self.programs.run(python, job_of(request, self.engine), request.pwd or None))
        except ProgramError as error:
            return language_pb2.RunResponse(error=str(error))

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Interrupt what runs; Run then returns."""
        self.programs.signal(signal.SIGINT)
        return empty_pb2.Empty()

    @staticmethod
    def python(info: language_pb2.ProgramInfo, context: grpc.ServicerContext) -> str:
        """The program's Python, or the end of the call."""
        try:
            return interpreter_of(info)
        except ProgramError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise


def catch_signals() -> int:
    """Have SIGINT and SIGTERM end this process in order; return a descriptor that is readable after one.

    Python runs a handler in the main thread alone and does not wake it when another thread took the signal.
    """
    told, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.set_wakeup_fd(tells)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return told


def await_end(signalled: int) -> None:
    """Return on a signal, and when the engine has closed our stdin, as its death does too."""
    engine = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([signalled, engine], [], [])
        if signalled in ready or not os.read(engine, 4096):
            return


def main() -> None:
    """Serve the engine until it, or a signal, ends this process."""
    engine = sys.argv[-1] if len(sys.argv) > 1 else ""  # flags come before it
    signalled = catch_signals()
    programs = Programs()
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES)]
    server = grpc.server(futures.ThreadPoolExecutor(8), options=options)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(LanguageHost(engine, programs), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    await_end(signalled)
    programs.end()
    server.stop(grace=1).wait()


if __name__ == "__main__":
    main()
