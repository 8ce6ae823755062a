"""The Debian packages that the lab needs on the controller; the set-up installs from this list.

Standard library only and no import of ours: it runs before anything is installed.
``python3 kimi_infra/lab/requirements.py`` prints the names, ``--reasons`` with why and
``--missing`` only those whose program is not there.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import NamedTuple


class Requirement(NamedTuple):
    """One package of Debian or Ubuntu."""

    provides: str
    """A program on PATH, or the absolute path of a file, that shows that the package is there."""
    reason: str


DEBIAN_PACKAGES = {
    "apt-cacher-ng": Requirement("apt-cacher-ng", "apt inside the hosts goes through it"),
    "debian-archive-keyring": Requirement(
        "/usr/share/keyrings/debian-archive-keyring.gpg", "checks the hosts' Debian packages"
    ),
    "docker-registry": Requirement("docker-registry", "holds the serving image for the hosts"),
    "iproute2": Requirement("ip", "the bridge between the hosts"),
    "mmdebstrap": Requirement("mmdebstrap", "makes the root file systems of hosts and image"),
    "openssh-client": Requirement("ssh", "the way into the hosts"),
    "openssl": Requirement("openssl", "the lab's certificate authority"),
    "skopeo": Requirement("skopeo", "puts the serving image into the registry"),
    "systemd-container": Requirement("systemd-nspawn", "runs the hosts"),
}
"""Package -> what shows it and why it is needed."""

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def search_path() -> str:
    """PATH with the administrator's folders, which a user's own may lack."""
    return f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"


def missing() -> tuple[str, ...]:
    """Packages whose program or file is not there."""
    path = search_path()
    return tuple(
        name
        for name, requirement in DEBIAN_PACKAGES.items()
        if not (
            os.path.exists(requirement.provides)  # noqa: PTH110 - pathlib adds nothing here
            if requirement.provides.startswith("/")
            else shutil.which(requirement.provides, path=path)
        )
    )


def main(arguments: list[str]) -> None:
    """Print the list, one package a line."""
    names = missing() if "--missing" in arguments else tuple(DEBIAN_PACKAGES)
    for name in names:
        reason = f"  {DEBIAN_PACKAGES[name].reason}" if "--reasons" in arguments else ""
        print(f"{name}{reason}")  # noqa: T201 - a program of its own


if __name__ == "__main__":
    main(sys.argv[1:])
