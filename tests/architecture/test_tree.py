"""What may not stand in the tree: this machine, its registries, the design notes, silenced failures."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from tests.architecture import sources

pytestmark = pytest.mark.fast

UPSTREAM = re.compile(
    r"(^|\.)(pypi\.org|pythonhosted\.org|npmjs\.org|golang\.org|crates\.io|debian\.org|ubuntu\.com)$"
)
"""The registries that everyone has: naming them tells nothing of this machine."""

HOST_OF_URL = re.compile(r"https?://(?:[^/@\s]+@)?([A-Za-z0-9.-]+)")

APT_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/apt.conf.d", "/etc/apt/mirrors")
PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
OTHER_FILES = ("/etc/uv/uv.toml", "~/.config/uv/uv.toml", "~/.npmrc")
CONFIGURED = {"", ".list", ".sources", ".conf", ".toml"}
"""Suffixes that apt and the index clients read; a switched-off source has another one."""
INDEX_VARIABLES = re.compile(r"^(PIP|UV|NPM_CONFIG|npm_config|GOPROXY|CARGO|HTTPS?_PROXY|https?_proxy)")


def lines_with(pattern: re.Pattern[str], paths: Iterable[Path]) -> list[str]:
    """Each line that a pattern is found in, as ``file:line: text``."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(sources.read(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """A pattern of literal words; of no words, one that is never found."""
    return re.compile("|".join(map(re.escape, sorted(words))) or r"(?!)")


def registry_hosts(environ: dict[str, str], texts: Iterable[str]) -> set[str]:
    """Hosts of the package registries and proxies that a machine is set up with, upstream's left out."""
    values = [value for name, value in environ.items() if INDEX_VARIABLES.match(name)]
    hosts = {host for text in (*values, *texts) for host in HOST_OF_URL.findall(text)}
    return {host for host in hosts if not UPSTREAM.search(host)} - {"localhost", "127.0.0.1"}


def machine_texts() -> list[str]:
    """The files in which this machine's registries are set."""
    named = [Path(name).expanduser() for name in (*APT_SOURCES, *PIP_FILES, *OTHER_FILES)]
    found = [file for path in named for file in ([path] if path.is_file() else path.glob("*"))]
    return [
        re.sub(r"(?m)^\s*(#|//).*$", "", path.read_text(encoding="utf-8", errors="replace"))
        for path in found
        if path.is_file() and path.suffix in CONFIGURED
    ]


def test_no_path_of_this_machine() -> None:
    """The place of this checkout stands in no file."""
    assert lines_with(any_of({str(sources.ROOT)}), sources.files()) == []


def test_no_home_of_a_developer() -> None:
    """No file speaks of a home folder outside of what runs on hosts and in containers."""
    assert lines_with(re.compile(r"(?<![\w.}])/(home|Users)/(?!ops\b|lab\b)\w"), sources.files()) == []


def test_the_design_notes_are_not_needed() -> None:
    """Nothing points at the folder of design notes beside the checkout."""
    folder = "shared"  # put together here, so that this file does not name it either
    notes = any_of(
        {
            f"../{folder}",
            f"{sources.ROOT.parent}/{folder}",
            *(f"{folder}/{part}" for part in ("design", "spikes", "seeds")),
        }
    )
    assert lines_with(notes, sources.files()) == []


def test_no_registry_of_this_machine() -> None:
    """The registries and proxies that this machine happens to use stand in no file."""
    hosts = registry_hosts(dict(os.environ), machine_texts())
    assert lines_with(any_of(hosts), sources.files()) == []


def test_registries_are_recognised() -> None:
    """A mirror is found with and without credentials, and upstream's own registries are not reported."""
    environ = {
        "UV_DEFAULT_INDEX": "https://me:secret@pypi.mirror.example/simple",
        "HOME": "https://no.registry.example",
    }
    texts = ["deb http://deb.debian.org/debian trixie main", "URIs: http://apt.mirror.example/debian"]
    assert registry_hosts(environ, texts) == {"pypi.mirror.example", "apt.mirror.example"}


def test_every_test_module_names_its_group() -> None:
    """A test module carries its group's marker where a reader looks first, not from afar."""
    silent = [
        path
        for path in sources.modules("tests")
        if path.name.startswith("test_") and "pytest.mark." not in sources.read(path)
    ]
    assert silent == []


def test_every_test_states_its_claim() -> None:
    """A test function has a docstring: the claim that it proves."""
    functions = [
        (path, node)
        for path in sources.modules("tests")
        for node in ast.walk(ast.parse(sources.read(path)))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    silent = [f"{path}:{node.lineno}: {node.name}" for path, node in functions if not ast.get_docstring(node)]
    assert silent == []


def test_no_test_is_switched_off() -> None:
    """No test is skipped or expected to fail."""
    off = re.compile(r"pytest\." + r"(skip|xfail|importorskip)|mark\." + r"(skip|skipif|xfail)\b")
    assert lines_with(off, sources.modules("tests")) == []


def play_files() -> list[Path]:
    """YAML of roles and playbooks."""
    yamls = (path for path in sources.files() if path.suffix in {".yml", ".yaml"})
    return [path for path in yamls if path.parts[0] in {"roles", "playbooks"}]


def test_no_failure_is_ignored_in_plays() -> None:
    """No task swallows its own failure."""
    swallowed = re.compile(
        r"\bignore_(errors|unreachable)\s*:|\bfailed_when:\s*(false|no)\s*$", re.IGNORECASE
    )
    assert lines_with(swallowed, play_files()) == []


def role_folders() -> list[Path]:
    """The roles of the tree."""
    inside = (path for path in sources.files() if path.parts[0] == "roles" and len(path.parts) > 2)
    return sorted({Path(*path.parts[:2]) for path in inside})


def load(path: Path) -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    """A role's YAML file."""
    return yaml.safe_load(sources.read(path)) or {}


@pytest.mark.parametrize("role", role_folders(), ids=str)
def test_each_role_declares_its_inputs(role: Path) -> None:
    """What a role's defaults set, its argument_specs name; all of it starts with the role's own name."""
    options = set(load(role / "meta/argument_specs.yml")["argument_specs"]["main"].get("options", {}))
    defaults = role / "defaults/main.yml"
    given = set(load(defaults)) if (sources.ROOT / defaults).exists() else set()
    assert given <= options
    assert {name for name in options if not name.startswith(role.name)} == set()


def is_shell(path: Path) -> bool:
    """Say whether a file is a shell script."""
    return path.suffix == ".sh" or re.match(r"#!.*\b(ba|da)?sh\b", sources.read(path)[:80]) is not None


def test_the_linter_sees_every_shell_script() -> None:
    """The list that ./run lint hands to shellcheck is all of the tree's shell scripts."""
    listed = subprocess.run(
        ["tools/setup/shell_scripts"], cwd=sources.ROOT, capture_output=True, text=True, check=True
    )
    found = {path for path in sources.files() if is_shell(path)}
    assert {Path(line) for line in listed.stdout.splitlines()} == found
    assert Path("run") in found
