"""Remember what certain paths were like, and make them so again."""

from __future__ import annotations

import base64
import os
import pathlib
import shutil
import stat
from typing import Any

from ansible.module_utils import kimi_receipts as receipts
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kimi_receipt
short_description: What paths were like before they were changed
description:
  - C(taken) writes down each path that the receipt does not hold yet; what it holds is never overwritten.
  - C(restored) removes what was absent, gives back files, and empties folders that were empty.
options:
  receipt: {type: path, required: true, description: File on the host that holds the record.}
  paths: {type: list, elements: path, default: [], description: Absolute paths; only with C(taken).}
  state: {type: str, choices: [taken, restored], required: true, description: Remember, or give back.}
  recursive:
    type: bool
    default: false
    description: Whether folders that were absent or empty lose what is in them; else they stay while in use.
author: [kimi_infra]
"""

EXAMPLES = r"""
- name: Remember what docker finds
  kimi_receipt:
    receipt: /var/lib/kimi-infra/receipts/docker.json
    paths: [/etc/docker, /var/lib/docker]
    state: taken
"""

RETURN = r"""
restored: {type: list, elements: str, returned: restored, description: Paths that had to be changed.}
"""


def look(path: pathlib.Path) -> dict[str, Any]:
    """Describe one path."""
    if not os.path.lexists(path):
        return {"kind": "absent"}
    if path.is_symlink():
        return {"kind": "link", "target": str(path.readlink())}
    if path.is_dir():
        mode = stat.S_IMODE(path.stat().st_mode)
        return {"kind": "directory", "empty": not any(path.iterdir()), "mode": mode}
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        return {"kind": "other"}  # a socket or a device: can be removed, not given back
    content = base64.b64encode(path.read_bytes()).decode()
    owner = {"uid": found.st_uid, "gid": found.st_gid}
    return {"kind": "file", "content": content, "mode": stat.S_IMODE(found.st_mode), **owner}


def differs(path: pathlib.Path, earlier: dict[str, Any]) -> bool:
    """Whether a path is not as it was; a folder that held something is its owner's."""
    now = look(path)
    if earlier["kind"] == "directory" and not earlier["empty"]:
        return False
    # A mount point cannot be removed; empty is as good as absent.
    if earlier["kind"] == "absent" and os.path.ismount(path):
        return not now.get("empty", False)
    return now != earlier


def restore(path: pathlib.Path, earlier: dict[str, Any]) -> None:
    """Make one path as it was."""
    if path.is_dir() and not path.is_symlink():
        empty(path)
        if earlier["kind"] != "directory" and not os.path.ismount(path):
            path.rmdir()
    elif os.path.lexists(path):
        path.unlink()
    if earlier["kind"] == "link":
        path.symlink_to(earlier["target"])
    if earlier["kind"] == "directory":
        path.mkdir(exist_ok=True)
        path.chmod(earlier["mode"])
    if earlier["kind"] == "file":
        path.write_bytes(base64.b64decode(earlier["content"]))
        os.chown(path, earlier["uid"], earlier["gid"])
        path.chmod(earlier["mode"])


def empty(folder: pathlib.Path) -> None:
    """Remove what is in a folder."""
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def mounts_below(path: str, mountinfo: str) -> list[str]:
    """Return mount points inside a path: what is mounted there is not ours to delete."""
    points = (line.split(" ")[4] for line in mountinfo.splitlines())
    return [point for point in points if point.startswith(path.rstrip("/") + "/")]


def gone(path: str, record: dict[str, Any]) -> bool:
    """Whether restoring a path deletes what is in it."""
    return record[path]["kind"] == "absent" or bool(record[path].get("empty"))


def take(module: AnsibleModule) -> dict[str, object]:
    """Remember."""
    record = receipts.read(module.params["receipt"]) or {}
    new = {path: look(pathlib.Path(path)) for path in module.params["paths"] if path not in record}
    if new and not module.check_mode:
        receipts.write(module.params["receipt"], {**record, **new})
    return {"changed": bool(new)}


def give_back(module: AnsibleModule) -> dict[str, object]:
    """Restore, children before their parents."""
    record = receipts.read(module.params["receipt"]) or {}
    mountinfo = pathlib.Path("/proc/self/mountinfo").read_text()
    busy = [point for path in record for point in mounts_below(path, mountinfo) if gone(path, record)]
    if busy:
        module.fail_json(msg=f"something is still mounted: {' '.join(busy)}; unmount it and run again")
    wrong = []
    for path in sorted(map(pathlib.Path, record), key=lambda path: len(path.parts), reverse=True):
        earlier = record[str(path)]
        in_use = not module.params["recursive"] and look(path).get("empty") is False
        if in_use or not differs(path, earlier):
            continue
        wrong.append(str(path))
        if not module.check_mode:
            restore(path, earlier)
    if not module.check_mode:
        receipts.drop(module.params["receipt"])
    return {"changed": bool(wrong), "restored": wrong}


def main() -> None:
    """Run as Ansible's module."""
    module = AnsibleModule(
        argument_spec={
            "receipt": {"type": "path", "required": True},
            "paths": {"type": "list", "elements": "path", "default": []},
            "state": {"type": "str", "choices": ["taken", "restored"], "required": True},
            "recursive": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.exit_json(**(take(module) if module.params["state"] == "taken" else give_back(module)))


if __name__ == "__main__":
    main()
