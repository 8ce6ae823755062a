"""Write docs/roles/NAME.md from each role's meta/argument_specs.yml.

Usage: ``.venv/bin/python tools/role_docs.py`` from the tree's root; a test says when it is due.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
_ENTRY_FILES = {"main": "runs as `role:`"}


def roles() -> list[str]:
    """Names of all roles."""
    return sorted(folder.name for folder in (ROOT / "roles").iterdir() if folder.is_dir())


def specs(role: str) -> dict[str, Any]:
    """Return the entry points of a role's argument_specs."""
    text = (ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text()
    return dict(yaml.safe_load(text)["argument_specs"])


def render(role: str) -> str:
    """Return the page of one role."""
    lines = [f"# {role}", "", "Made by `tools/role_docs.py` from the role's argument_specs; do not edit.", ""]
    for entry, spec in specs(role).items():
        lines += _entry(entry, spec)
    return "\n".join(lines)


def _entry(entry: str, spec: Mapping[str, Any]) -> Iterator[str]:
    runs = _ENTRY_FILES.get(entry, f"runs with `tasks_from: {entry}.yml`")
    yield from (f"## {spec['short_description']}", "", f"Entry point `{entry}`; {runs}.", "")
    yield from (_prose(spec["description"]), "")
    if spec.get("options"):
        yield from ("| Variable | Type | Default | Meaning |", "|---|---|---|---|")
        yield from _rows(spec["options"], prefix="")
        yield ""


def _rows(options: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, option in options.items():
        kind = f"{option['type']} of {option['elements']}" if "elements" in option else option["type"]
        meaning = _prose(option["description"])
        yield f"| `{prefix}{name}` | {kind} | {_default(option)} | {meaning} |"
        yield from _rows(option.get("options") or {}, prefix=f"{prefix}{name}.")


def _default(option: Mapping[str, Any]) -> str:
    if option.get("required"):
        return "required"
    if "default" not in option:
        return ""
    text = yaml.safe_dump(option["default"], default_flow_style=True)
    return f"`{text.removesuffix('...' + chr(10)).strip()}`"


def _prose(description: str | list[str]) -> str:
    text = description if isinstance(description, str) else " ".join(description)
    return re.sub(r"C\((.*?)\)", r"`\1`", text)


def main() -> None:
    """Write every page, and remove those of roles that are gone."""
    folder = ROOT / "docs" / "roles"
    folder.mkdir(parents=True, exist_ok=True)
    for page in folder.glob("*.md"):
        if page.stem not in roles():
            page.unlink()
    for role in roles():
        (folder / f"{role}.md").write_text(render(role))


if __name__ == "__main__":
    main()
