"""Keeps one host of the lab running; a program of its own, standard library only.

Usage: ``unshare --mount --propagation private python3 keeper.py CONFIG.json``.
The overlay is mounted in this process's own mount namespace, so it goes when the last process
of the host goes, however that happens.
A reboot inside the host ends systemd-nspawn with 133 (with --keep-unit it leaves the second start
to its caller); anything else ends the host.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

REBOOT = 133


def groups(machine: str, mountinfo: str) -> tuple[Path, ...]:
    """Folders of the host's own control group, from the text of /proc/self/mountinfo.

    systemd-nspawn makes its group below its caller's: without one of their own all hosts would
    share one tree, and a service that stops on one would wait for its namesakes on the others.
    """
    found: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        # Of the older kind only systemd's own hierarchy matters; the controllers' stay the caller's.
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.setdefault(kind, Path(before.split()[4]) / f"kimi-lab-{machine}")
    return tuple(found.values())


def join(folders: tuple[Path, ...]) -> None:
    """Move this process, and so all that it starts, into the groups."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text("0", encoding="ascii")


def record(path: Path, pid: int) -> None:
    """Note pid, start and boot, as kimi_infra.lab.processes reads them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"pid": pid, "start": int(fields[19]), "boot": boot}), encoding="ascii")
    part.rename(path)


def init_of(nspawn: int) -> int | None:
    """The host's own PID 1: the child of systemd-nspawn that is number 1 in a namespace of its own."""
    try:
        children = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text(encoding="ascii").split()
        for child in children:
            for line in Path(f"/proc/{child}/status").read_text(encoding="utf-8").splitlines():
                if line.startswith("NSpid:") and line.split()[2:] == ["1"]:
                    return int(child)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None


def run_once(config: dict[str, Any]) -> int:
    """One boot of the host, to its end."""
    host = subprocess.Popen(config["nspawn"], stdin=subprocess.DEVNULL)
    record(Path(config["nspawn_pid"]), host.pid)

    def power_button(_number: int, _frame: FrameType | None) -> None:
        # systemd-nspawn takes SIGTERM for the power button: an orderly shutdown.
        host.terminate()

    signal.signal(signal.SIGTERM, power_button)
    init = None
    while init is None and host.poll() is None:
        init = init_of(host.pid)
        time.sleep(0.02)
    if init is not None:
        record(Path(config["init_pid"]), init)
    return host.wait()


def main() -> int:
    """Mount the disk and boot until the host is off."""
    config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    join(groups(config["machine"], Path("/proc/self/mountinfo").read_text(encoding="utf-8")))
    subprocess.run(config["mount"], check=True)
    while True:
        code = run_once(config)
        print(f"keeper: systemd-nspawn ended with {code}", flush=True)  # noqa: T201 - its log
        if code != REBOOT:
            return code


if __name__ == "__main__":
    sys.exit(main())
