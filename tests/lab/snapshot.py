"""A host's file systems, to compare before and after; runs on the host from standard input.

Prints one JSON object: path -> kind, mode, owner, and content hash or link target.
What runs is not in it, and neither are the kernel's own file systems.
"""

import hashlib
import json
import os
import stat
import sys

SKIPPED = {"/proc", "/sys", "/dev", "/run", "/tmp", "/opt/kimi-lab"}


def describe(path: str) -> str:
    """Return everything that matters of one path."""
    found = os.lstat(path)
    owner = f"{stat.filemode(found.st_mode)} {found.st_uid}:{found.st_gid}"
    if stat.S_ISLNK(found.st_mode):
        return f"{owner} -> {os.readlink(path)}"
    if stat.S_ISREG(found.st_mode):
        with open(path, "rb") as file:
            return f"{owner} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    return owner


def walk(top: str) -> "dict[str, str]":
    """Describe everything below ``top``; what vanishes meanwhile is left out."""
    result = {}
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in SKIPPED]
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            try:
                result[path] = describe(path)
            except FileNotFoundError:
                continue
    return result


json.dump(walk("/"), sys.stdout)
