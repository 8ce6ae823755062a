"""The project's own files, as git sees them, and what they import."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def files() -> tuple[Path, ...]:
    """All files of the tree that are or may be committed, relative to its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (Path(name) for name in listed.split("\0") if name)
    return tuple(sorted({path for path in paths if (ROOT / path).is_file()}))


def modules(folder: str) -> list[Path]:
    """The Python modules below a folder."""
    return [path for path in files() if path.suffix == ".py" and path.is_relative_to(folder)]


def read(path: Path) -> str:
    """A file's text; bytes that are no UTF-8 are replaced, as only patterns are looked for."""
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def imports(path: Path) -> set[str]:
    """Every module that a module imports, wherever in it the import stands.

    ``from a import b`` counts as ``a.b``: b may be a module.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{absolute(path, node)}.{alias.name}" for alias in node.names}
    return found


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """The full name of the module that a from-import names."""
    if not node.level:
        return node.module or ""
    package = path.parts[: len(path.parts) - node.level]
    return ".".join((*package, *filter(None, [node.module])))
