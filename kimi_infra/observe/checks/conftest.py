"""What the checks compare: the plan made from the hosts' own facts, and the hosts."""

from __future__ import annotations

import shlex

import pytest
import testinfra
from testinfra.host import Host as Machine

from kimi_infra.domain.endpoint import Endpoint
from kimi_infra.domain.plan import DeploymentPlan, HostLayout, RankPlan
from kimi_infra.observe import ssh, verify

_HANDOVER = pytest.StashKey[verify.Handover]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what :func:`kimi_infra.observe.verify.run` passes."""
    parser.addoption("--handover", required=True, type=int)
    parser.addoption("--ssh-control", required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Take the plan, made from what all hosts said."""
    config.stash[_HANDOVER] = verify.taken(config.getoption("handover"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a check once a deployment, rank or file, named by it."""
    converge = metafunc.config.stash[_HANDOVER].converge
    if "file" in metafunc.fixturenames:
        cases = [(layout, file) for layout in converge.layouts for file in layout.files]
        names = [f"{layout.host}-{file.path}" for layout, file in cases]
        metafunc.parametrize(("layout", "file"), cases, ids=names)
    elif "rank" in metafunc.fixturenames:
        ranks = [(plan, rank) for plan in converge.plans for rank in plan.ranks]
        metafunc.parametrize(("plan", "rank"), ranks, ids=[rank.host.name for _, rank in ranks])
    elif "plan" in metafunc.fixturenames:
        metafunc.parametrize("plan", converge.plans, ids=[plan.deployment.name for plan in converge.plans])


@pytest.fixture(scope="session")
def machines(request: pytest.FixtureRequest) -> dict[str, Machine]:
    """Return each host of the inventory as testinfra sees it, through the pinned ssh, as root."""
    # Doubled: testinfra formats its command line once more.
    control = f"{request.config.getoption('ssh_control')}/%%C"
    ranks = [rank for plan in request.config.stash[_HANDOVER].converge.plans for rank in plan.ranks]
    return {rank.host.name: _machine(rank, control) for rank in ranks}


def _machine(rank: RankPlan, control: str) -> Machine:
    host = rank.host
    return testinfra.get_host(
        f"ssh://{ssh.hostspec(host)}",
        ssh_extra_args=shlex.join(ssh.options(host)),
        controlpath=control,
        controlpersist=5,
        sudo=True,
    )


@pytest.fixture
def machine(machines: dict[str, Machine], request: pytest.FixtureRequest) -> Machine:
    """Return the host that a check is about."""
    subject = request.getfixturevalue("layout" if "file" in request.fixturenames else "rank")
    name = subject.host if isinstance(subject, HostLayout) else subject.host.name
    return machines[name]


@pytest.fixture
def endpoint(plan: DeploymentPlan, request: pytest.FixtureRequest) -> Endpoint:
    """Return where the deployment that a check is about answers."""
    return request.config.stash[_HANDOVER].endpoints[plan.deployment.name]
