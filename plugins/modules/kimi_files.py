"""Lay out folders and whole files: a supervisor of twenty modules in one round trip instead of forty."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from typing import Any

from ansible.module_utils import kimi_receipts as receipts
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kimi_files
short_description: Folders and whole files with their modes
description:
  - Writes what differs in content, mode or owner, each file so that a reader sees the old one or the new one.
  - Content travels on the module's standard input and lies nowhere but in its place, neither here nor there.
options:
  directories:
    type: list
    elements: dict
    default: []
    description: Folders, parents first.
    options:
      path: {type: path, required: true, description: Absolute path.}
      mode: {type: str, required: true, description: Octal.}
      keep:
        type: bool
        default: false
        description: Whether a folder that is there keeps its mode and owner, because it is not ours.
  files:
    type: list
    elements: dict
    default: []
    description: Files; their folders must exist.
    options:
      path: {type: path, required: true, description: Absolute path.}
      content: {type: str, required: true, description: The whole text.}
      mode: {type: str, required: true, description: Octal.}
      brief:
        type: bool
        default: false
        description: Whether --diff shows a hash instead of the text, as for a program that nobody edits.
author: [kimi_infra]
"""

EXAMPLES = r"""
- name: Lay out a unit
  kimi_files:
    files: [{path: /etc/systemd/system/x.service, content: "[Service]\nExecStart=/bin/true\n", mode: "0644"}]
"""

RETURN = r"""
paths: {type: list, elements: str, returned: always, description: What was changed.}
"""


class Node:
    """One folder or file as it is, and as it is wanted."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.path = pathlib.Path(wanted["path"])
        self.content: str | None = wanted.get("content")
        self._mode = int(wanted["mode"], 8)
        self._keep = bool(wanted.get("keep"))
        self._brief = bool(wanted.get("brief"))
        self._found = self.path.lstat() if os.path.lexists(self.path) else None

    def fault(self) -> str | None:
        """Say what stands in the way."""
        if self._found is None:
            return None
        fits = stat.S_ISDIR if self.content is None else stat.S_ISREG
        kind = "folder" if self.content is None else "file"
        return None if fits(self._found.st_mode) else f"{self.path} is no plain {kind}: move it away"

    def text(self) -> str:
        """What the file says now."""
        return self.path.read_text(encoding="utf-8", errors="replace") if self._found else ""

    def _shown(self, text: str) -> str:
        """Return what --diff shows of a text."""
        if not self._brief or not text:
            return text
        return f"{text.count(chr(10))} lines, sha256 {hashlib.sha256(text.encode()).hexdigest()}\n"

    def differs(self) -> bool:
        """Whether anything is to be done."""
        if self._found is None:
            return True
        if self._keep:
            return False
        if self._owned() != self._wanted():
            return True
        return self.content is not None and self.path.read_bytes() != self.content.encode()

    def _owned(self) -> tuple[int, int, int] | None:
        found = self._found
        return found and (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)

    def _wanted(self) -> tuple[int, int, int]:
        return (self._mode, os.geteuid(), os.getegid())

    def lay(self) -> None:
        """Make it so."""
        if self.content is None:
            self.path.mkdir(mode=self._mode, parents=True, exist_ok=True)
            self.path.chmod(self._mode)  # mkdir's mode is cut by the umask
            os.chown(self.path, os.geteuid(), os.getegid())
        else:
            receipts.replace(str(self.path), self.content, mode=self._mode)

    def diff(self) -> dict[str, str]:
        """Show the change as --diff does: head and text, before and after."""
        before = (
            "absent" if self._owned() is None else "mode {:04o}, owner {}:{}".format(*(self._owned() or ()))
        )
        after = "mode {:04o}, owner {}:{}".format(*self._wanted())
        old, new = (
            (self._shown(self.text()), self._shown(self.content)) if self.content is not None else ("", "")
        )
        return {
            "before_header": f"{self.path} ({before})",
            "after_header": f"{self.path} ({after})",
            "before": old,
            "after": new,
        }


def main() -> None:
    """Run as Ansible's module."""
    entry = {"path": {"type": "path", "required": True}, "mode": {"type": "str", "required": True}}
    content = {"content": {"type": "str", "required": True}, "brief": {"type": "bool", "default": False}}
    keep = {"keep": {"type": "bool", "default": False}}
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "default": [], "options": {**entry, **keep}},
            "files": {"type": "list", "elements": "dict", "default": [], "options": {**entry, **content}},
        },
        supports_check_mode=True,
    )
    nodes = [Node(wanted) for wanted in [*module.params["directories"], *module.params["files"]]]
    faults = [fault for fault in (node.fault() for node in nodes) if fault]
    if faults:
        module.fail_json(msg="\n".join(faults))
    changing = [node for node in nodes if node.differs()]
    diff = [node.diff() for node in changing]
    if not module.check_mode:
        for node in changing:
            node.lay()
    module.exit_json(changed=bool(changing), diff=diff, paths=[str(node.path) for node in changing])


if __name__ == "__main__":
    main()
