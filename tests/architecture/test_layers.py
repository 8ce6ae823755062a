"""The layers are kept, and the contracts that hold them bite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import sources

pytestmark = pytest.mark.fast

PACKAGES = (
    "lab",
    "cloud",
    "converge",
    "observe",
    "deploy",
    "config",
    "planning",
    "rendering",
    "domain",
    "hostside",
)
"""Layers that are packages; the two others are the modules cli and errors."""

BREACHES = {
    # module that imports: what it imports, the contract of .importlinter that must catch it
    "errors": ("kimi_infra.domain", "layers"),
    "domain.low": ("kimi_infra.planning", "layers"),
    "planning.sideways": ("kimi_infra.rendering", "layers"),
    "observe.sideways": ("kimi_infra.converge", "layers"),
    "deploy.up": ("kimi_infra.cloud", "layers"),
    "hostside.ours": ("kimi_infra.domain", "layers"),
    "rendering.runs": ("subprocess", "processes"),
    "observe.dials": ("socket", "processes"),
    "deploy.plays": ("ansible", "tools"),
    "converge.clouds": ("pulumi", "tools"),
    "domain.parses": ("yaml", "formats"),
    "cli": ("pydantic", "formats"),
}


BLIND = {
    Path("kimi_infra/lab/inside"),  # runs in the lab's image, beside vLLM
    Path("kimi_infra/observe/checks"),  # pytest files, collected by path
}
"""Folders whose programs are no part of the package."""


def lint_imports(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Check the package kimi_infra of one tree against the project's contracts."""
    script = Path(sys.executable).with_name("lint-imports")
    command = [str(script), "--no-logo", "--no-cache", *options, str(sources.ROOT / ".importlinter")]
    env = {"COLUMNS": "200", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=60, check=False)


def write_module(tree: Path, name: str, text: str) -> None:
    """Lay one module of kimi_infra."""
    path = tree.joinpath("kimi_infra", *name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def bare_package(tree: Path) -> None:
    """Lay a kimi_infra of empty layers."""
    for package in PACKAGES:
        write_module(tree, f"{package}.__init__", "")
    for module in ("__init__", "cli", "errors"):
        write_module(tree, module, "")


@pytest.fixture(scope="module")
def breached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with every breach at once."""
    tree = tmp_path_factory.mktemp("breached")
    bare_package(tree)
    for module, (target, _) in BREACHES.items():
        write_module(tree, module, f"import {target}\n")
    return tree


def test_the_tree_keeps_its_layers() -> None:
    """No module imports what its layer may not."""
    result = lint_imports(sources.ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_empty_layers_break_nothing(tmp_path: Path) -> None:
    """A tree whose layers are still empty keeps all contracts: what breaks one is the planted import."""
    bare_package(tmp_path)
    result = lint_imports(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("module", BREACHES)
def test_each_breach_is_caught(breached: Path, module: str) -> None:
    """A planted import breaks the contract that forbids it, and is named with both ends."""
    target, contract = BREACHES[module]
    result = lint_imports(breached, "--contract", contract)
    assert result.returncode == 1
    assert f"kimi_infra.{module} -> {target} " in result.stdout


@pytest.mark.parametrize("module", sources.modules("kimi_infra/hostside"), ids=str)
def test_host_programs_need_nothing_but_the_standard_library(module: Path) -> None:
    """A program copied to a host imports the standard library and its own package only."""
    foreign = {
        name
        for name in sources.imports(module)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not name.startswith("kimi_infra.hostside")
    }
    assert not foreign


@pytest.mark.parametrize("module", sources.modules("plugins"), ids=str)
def test_ansible_plugins_are_thin(module: Path) -> None:
    """A plugin reaches the project through deploy and observe, with the values and errors they speak in."""
    doors = (
        "kimi_infra.deploy",
        "kimi_infra.observe",
        "kimi_infra.domain",
        "kimi_infra.errors",
        "kimi_infra.converge.vault",  # wraps the loader that Ansible hands to a plugin
    )
    ours = {name for name in sources.imports(module) if name.startswith("kimi_infra")}
    assert {name for name in ours if not name.startswith(doors)} == set()


def test_the_contracts_see_every_module() -> None:
    """Each folder of kimi_infra with code is a package, or import-linter would pass over it unseen."""
    blind = {
        module.parent
        for module in sources.modules("kimi_infra")
        if BLIND.isdisjoint(module.parents) and not (sources.ROOT / module.parent / "__init__.py").exists()
    }
    assert blind == set()
