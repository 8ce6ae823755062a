"""Programs that are copied to hosts: Python's standard library only, nothing of ours imported.

``kimi-rank`` is one small entry and the package ``rank`` beside it, installed as ``kimi_rank``;
:func:`rank_files` is the list of what a host gets.
The probe is one file that is sent through SSH and never stored.
"""

from __future__ import annotations

from importlib import resources

INSTALL_DIR = "/usr/local/lib/kimi-infra"
"""Where the programs lie on a host."""

# -B: a byte-code cache beside the programs would be drift; -E and -s: only what was installed is imported.
_ENTRY = '''\
#!/usr/bin/python3 -BEs
"""Rank supervisor of kimi_infra; the program is the package kimi_rank beside this file."""

from kimi_rank.cli import main

raise SystemExit(main())
'''


def rank_files() -> dict[str, tuple[str, str]]:
    """Path on the host -> (content, octal mode) of everything that ``kimi-rank`` consists of."""
    package = resources.files(f"{__name__}.rank")
    modules = sorted(entry.name for entry in package.iterdir() if entry.name.endswith(".py"))
    files = {f"{INSTALL_DIR}/kimi-rank": (_ENTRY, "0755")}
    for name in modules:
        content = (package / name).read_text(encoding="utf-8")
        files[f"{INSTALL_DIR}/kimi_rank/{name}"] = (content, "0644")
    return files


def probe_source() -> str:
    """The probe's text, to be fed to ``python3 - REQUEST``."""
    return (resources.files(__name__) / "probe.py").read_text(encoding="utf-8")
