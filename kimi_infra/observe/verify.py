"""Run the checks against an inventory's hosts and read their outcome.

The checks are pytest files over testinfra (``checks/``), run in a process of their own:
pytest and whoever calls this each keep their own state.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kimi_infra.deploy import site
from kimi_infra.domain.endpoint import Endpoint
from kimi_infra.errors import KimiInfraError
from kimi_infra.observe import hosts

CHECKS = Path(__file__).parent / "checks"
_TESTS_RAN = {0, 1}
"""pytest's exit statuses for all passed and for some failed; any other means that it did not check."""


class VerifyError(KimiInfraError, RuntimeError):
    """The checks could not be run at all; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One check that did not hold."""

    check: str
    """The check's name with its host and subject."""
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Outcome of one verification."""

    passed: tuple[str, ...]
    """Names of the checks that held."""
    failures: tuple[Failure, ...]

    def json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self), indent=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """All that the checks compare with; holds secrets."""

    converge: site.Converge
    endpoints: Mapping[str, Endpoint]
    """By deployment."""


def taken(descriptor: int) -> Handover:
    """Read, in the process of the checks, what :func:`run` handed over, and close it."""
    with os.fdopen(descriptor, "rb") as memory:
        found = pickle.load(memory)  # noqa: S301 -- written by our parent process, reachable by no other
    if not isinstance(found, Handover):
        raise TypeError(f"handed over: {type(found).__name__}")
    return found


def run(inventory: Path, *, store: site.SecretStore, junit: Path | None = None) -> Report:
    """Check every host of an inventory.

    Args:
        inventory: The inventory directory.
        store: What secret references are resolved against; its variables are the checks' environment.
        junit: Where to keep the JUnit XML, if anywhere.

    Raises:
        SpecError: the inventory has faults.
        NotReadyError: the inventory cannot be applied yet, so there is nothing to compare with.
        SecretError: a secret reference leads nowhere; no host was contacted.
        HostsError: holds every host that gave no answer.
        VerifyError: the checks could not run.
    """
    found = site.read_ready(inventory)
    site.require_secrets(found, store)
    converge = site.converge(found, hosts.probe_all(found), store)
    deployments = found.inventory.deployments
    endpoints = {one.name: site.endpoint(found.inventory, one, store) for one in deployments}
    with _memory(Handover(converge=converge, endpoints=endpoints)) as memory:
        return _check(inventory, memory.fileno(), environ=store.environ, junit=junit)


def _memory(handover: Handover) -> io.BufferedRandom:
    """Return the handover in memory without a name: no secret on a disk, in an argument or a variable."""
    memory = os.fdopen(os.memfd_create("kimi-verify"), "w+b")
    pickle.dump(handover, memory)
    memory.flush()
    memory.seek(0)
    return memory


def _check(inventory: Path, descriptor: int, *, environ: Mapping[str, str], junit: Path | None) -> Report:
    with tempfile.TemporaryDirectory(prefix="kimi-verify-") as folder:
        report = junit.absolute() if junit else Path(folder) / "junit.xml"
        # Outside the folder of the checks, so that no ini file of a caller's project is picked up.
        command = (
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-c",
                str(CHECKS / "pytest.ini"),
            ),
            *(f"--rootdir={CHECKS}", f"--handover={descriptor}", f"--ssh-control={folder}"),
            # Short: the long form shows the arguments of what failed, and the API key is one on its way.
            "--tb=short",
            *(f"--junitxml={report}", str(CHECKS)),
        )
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=_environment(environ),
            pass_fds=(descriptor,),
        )
        if done.returncode not in _TESTS_RAN:
            raise VerifyError(f"{inventory}: {_reason(done.stdout + done.stderr)}")
        return _read(report)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if not name.startswith(("PYTEST_", "ANSIBLE_"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _reason(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line]
    return "\n".join(lines[-20:]) or "pytest ended without a word"


def _read(report: Path) -> Report:
    passed, failures = [], []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 -- written by the pytest just run
        name = case.attrib["name"].removeprefix("test_")
        fault = next((child for child in case if child.tag in {"failure", "error"}), None)
        if fault is None:
            passed.append(name)
        else:
            failures.append(
                Failure(check=name, message=fault.attrib.get("message", "").removeprefix("AssertionError: "))
            )
    return Report(passed=tuple(passed), failures=tuple(failures))
