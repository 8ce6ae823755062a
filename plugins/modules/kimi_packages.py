"""Install Debian packages, and take off again exactly those that this brought.

The stock ``apt`` module needs python3-apt: without it a check run fails,
and a real one installs it without a record.
"""

from __future__ import annotations

import grp
import pathlib
import pwd
import re
import time
from typing import Any, NamedTuple

from ansible.module_utils import kimi_receipts as receipts
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kimi_packages
short_description: Debian packages with a receipt
description:
  - Installs what is missing, never with the removal of anything, and writes down beforehand what will be new.
  - Takes off, dependencies included, what the receipt names and nothing that came from elsewhere needs.
options:
  state: {type: str, choices: [present, absent], default: present, description: Installed, or as before.}
  names: {type: list, elements: str, default: [], description: Packages wanted; only with C(present).}
  receipt: {type: path, required: true, description: File on the host that holds what was installed.}
  data:
    type: list
    elements: path
    default: []
    description: Folders that a purge deletes. If one held something before, packages are removed, not purged.
  lock_timeout: {type: int, default: 600, description: Seconds to wait for another package manager.}
author: [kimi_infra]
"""

EXAMPLES = r"""
- name: Install docker
  kimi_packages:
    names: [docker.io, docker-cli]
    receipt: /var/lib/kimi-infra/receipts/packages.json
"""

RETURN = r"""
installed: {type: list, elements: str, returned: present, description: Packages that are new.}
removed: {type: list, elements: str, returned: absent, description: Packages that were taken off.}
kept: {type: list, elements: str, returned: absent, description: Packages of ours that others need by now.}
"""


# NEEDRESTART_SUSPEND: the needrestart hook would restart services, docker among them, by itself.
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C.UTF-8"}


class Simulation(NamedTuple):
    """What apt says it would do."""

    new: frozenset[str]
    upgraded: frozenset[str]
    removed: frozenset[str]


def parse_simulation(text: str) -> Simulation:
    """Read ``apt-get --simulate``: ``Inst new (2)``, ``Inst old [1] (2)``, ``Remv`` or ``Purg gone [1]``."""
    new: set[str] = set()
    upgraded: set[str] = set()
    removed: set[str] = set()
    for line in text.splitlines():
        match = re.match(r"(Inst|Remv|Purg) (\S+)( \[)?", line)
        if match is None:
            continue
        verb, name, old = match.groups()
        kind = removed if verb != "Inst" else upgraded if old else new
        kind.add(name.partition(":")[0])
    return Simulation(frozenset(new), frozenset(upgraded), frozenset(removed))


def parse_installed(text: str) -> dict[str, str]:
    """Read ``dpkg-query``'s ``ii  docker.io``; keep installed packages (i) and left configuration (c)."""
    states = (line.split() for line in text.splitlines())
    return {fields[-1]: fields[0][1] for fields in states if len(fields) > 1 and fields[0][1] in "ic"}


class Apt:
    """The package manager of one host."""

    def __init__(self, module: AnsibleModule, lock_timeout: int) -> None:
        self._module = module
        self._timeout = lock_timeout

    def states(self) -> dict[str, str]:
        """Return each package's state: ``i`` installed, ``c`` removed with its configuration left."""
        _, out, _ = self._run(["dpkg-query", "--show", "--showformat=${db:Status-Abbrev} ${Package}\n"])
        return parse_installed(out)

    def refresh(self) -> None:
        """Fetch the package lists; DPkg::Lock::Timeout does not cover their own lock (P46)."""
        deadline = time.monotonic() + self._timeout
        while True:
            code, out, err = self._run(["apt-get", "update", "--quiet"], check=False)
            if code == 0:
                return
            if "Could not get lock" not in err or time.monotonic() > deadline:
                self._module.fail_json(msg=f"apt-get update failed: {err.strip() or out.strip()}")
            time.sleep(2)  # apt offers nothing to wait on

    def simulate(self, verb: str, names: list[str]) -> Simulation:
        """Ask what ``apt-get VERB`` would do."""
        _, out, _ = self._run(["apt-get", verb, "--simulate", "--no-install-recommends", *names])
        return parse_simulation(out)

    def apply(self, verb: str, names: list[str]) -> None:
        """Do it."""
        self._run([
            "apt-get", verb, "--yes", "--quiet", "--no-install-recommends",
            "-o", f"DPkg::Lock::Timeout={self._timeout}",
            "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
            "-o", "APT::Keep-Downloaded-Packages=false",
            *names,
        ])  # fmt: skip

    def _run(self, argv: list[str], *, check: bool = True) -> tuple[int, str, str]:
        code, out, err = self._module.run_command(argv, environ_update=ENVIRONMENT)
        if check and code:
            self._module.fail_json(msg=f"{' '.join(argv)} failed: {err.strip() or out.strip()}", rc=code)
        return code, out, err


def accounts() -> dict[str, set[str]]:
    """Return the names of users and groups: packages make some and leave them behind when purged."""
    return {"users": {u.pw_name for u in pwd.getpwall()}, "groups": {g.gr_name for g in grp.getgrall()}}


def holds_something(folder: str) -> bool:
    """Whether a folder is there and not empty."""
    path = pathlib.Path(folder)
    return path.is_dir() and any(path.iterdir())


def merged(receipt: dict[str, Any], found: dict[str, set[str]]) -> dict[str, Any]:
    """Add to a receipt."""
    kinds = ("packages", "users", "groups")
    return {**receipt, **{kind: sorted({*receipt.get(kind, []), *found.get(kind, set())}) for kind in kinds}}


def present(module: AnsibleModule, apt: Apt) -> dict[str, object]:
    """Install what is missing."""
    path, states = module.params["receipt"], apt.states()
    missing = sorted(name for name in module.params["names"] if states.get(name) != "i")
    if not missing or module.check_mode:
        return report(changed=bool(missing), before=[], after=missing, installed=missing)
    apt.refresh()
    simulation = apt.simulate("install", missing)
    if simulation.removed:
        module.fail_json(
            msg=f"installing {' '.join(missing)} would remove {' '.join(sorted(simulation.removed))}: "
            "remove the other packages, or keep them and install the missing ones, by hand"
        )
    old = receipts.read(path) or {
        "purge": not any(holds_something(folder) for folder in module.params["data"])
    }
    receipt = merged(old, {"packages": set(simulation.new)})
    receipts.write(path, receipt)  # before anything changes: a broken run can be torn down too
    earlier = accounts()
    apt.apply("install", missing)
    later = accounts()
    made = {kind: later[kind] - earlier[kind] for kind in later}
    receipts.write(path, merged(receipt, made))
    return report(changed=True, before=[], after=sorted(simulation.new), installed=sorted(simulation.new))


def absent(module: AnsibleModule, apt: Apt) -> dict[str, object]:
    """Take off what the receipt names."""
    path = module.params["receipt"]
    receipt = receipts.read(path)
    if receipt is None:
        return report(changed=False, before=[], after=[], removed=[], kept=[])
    purge = receipt["purge"]
    verb = "purge" if purge else "remove"
    states = apt.states()
    ours = sorted(
        name for name in receipt["packages"] if states.get(name) in ({"i", "c"} if purge else {"i"})
    )
    going = removable(apt, verb, ours)
    if not module.check_mode:
        if going:
            apt.apply(verb, going)
        remove_accounts(module, receipt)
        receipts.drop(path)
    kept = sorted(set(ours) - set(going))
    if kept:
        module.warn(f"kept, because packages that came later need them: {' '.join(kept)}")
    return report(changed=True, before=going, after=[], removed=going, kept=kept)


def removable(apt: Apt, verb: str, ours: list[str]) -> list[str]:
    """Return those of ours whose removal takes nothing with it that came from elsewhere."""
    if not ours or apt.simulate(verb, ours).removed <= set(ours):
        return ours
    return [name for name in ours if apt.simulate(verb, [name]).removed <= set(ours)]


def remove_accounts(module: AnsibleModule, receipt: dict[str, Any]) -> None:
    """Delete users and groups that our packages made and a purge leaves behind."""
    for kind, tool in (("users", "userdel"), ("groups", "groupdel")):
        for name in sorted(set(receipt[kind]) & accounts()[kind]):
            code, _, err = module.run_command([tool, name])
            if code:
                module.warn(f"{tool} {name}: {err.strip()}")


def report(*, changed: bool, before: list[str], after: list[str], **facts: object) -> dict[str, object]:
    """Return the module's answer with a difference that --diff can show."""
    lines = {
        side: "".join(f"{name}\n" for name in names) for side, names in (("before", before), ("after", after))
    }
    headers = {"before_header": "packages", "after_header": "packages"}
    return {"changed": changed, "diff": {**lines, **headers} if changed else {}, **facts}


def main() -> None:
    """Run as Ansible's module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "names": {"type": "list", "elements": "str", "default": []},
            "receipt": {"type": "path", "required": True},
            "data": {"type": "list", "elements": "path", "default": []},
            "lock_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    apt = Apt(module, module.params["lock_timeout"])
    verb = present if module.params["state"] == "present" else absent
    module.exit_json(**verb(module, apt))


if __name__ == "__main__":
    main()
