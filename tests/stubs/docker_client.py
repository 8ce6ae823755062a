"""Stub of the docker client: containers are processes, the stub engine is the only image.

Knows the options that kimi_infra renders and refuses any other. State lies in ``$STUB_DOCKER_DIR``:
one ``NAME.pid`` a container, ``calls``, a line for each command, and ``down`` while no daemon answers.
Like docker: a killed client leaves its container behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ["STUB_DOCKER_DIR"])
ENGINE = Path(__file__).with_name("engine.py")
FLAGS = {"--rm", "--init"}
VALUES = {"--name", "--network", "--ipc", "--pull", "--env-file", "--volume", "-v", "--ulimit", "--device",
          "--cap-add", "--shm-size", "--log-driver", "--entrypoint"}  # fmt: skip


def say(text: str) -> None:
    """Complain."""
    sys.stderr.write(f"{text}\n")


def record(name: str) -> Path:
    """Return where a container's pid is kept."""
    return STATE / f"{name}.pid"


def pid_of(name: str) -> int | None:
    """Return the container's pid; None when there is no such container."""
    try:
        return int(record(name).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None


def missing(name: str) -> int:
    """Complain as docker does."""
    say(f"Error response from daemon: No such container: {name}")
    return 1


def parse_run(words: list[str]) -> tuple[str, list[str], list[str]]:
    """Return name, env files and the container's own arguments; the image is the first plain word."""
    name, files = "", []
    while words and words[0].startswith("-"):
        option, _, value = words.pop(0).partition("=")
        if option in FLAGS:
            continue
        if option not in VALUES:
            raise SystemExit(f"unknown flag: {option}")
        value = value or words.pop(0)
        if option == "--name":
            name = value
        elif option == "--env-file":
            files.append(value)
    return name, files, words[1:]


def run(words: list[str]) -> int:
    """Run the engine in the foreground, as ``docker run`` without ``--detach``."""
    name, files, arguments = parse_run(words)
    if pid_of(name) is not None:
        say(f'docker: Conflict. The container name "/{name}" is already in use.')
        return 125
    environment = {key: value for key, value in os.environ.items() if key.startswith("STUB_")}
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            environment[key] = value
    container = subprocess.Popen(
        (sys.executable, "-BEs", str(ENGINE), *arguments), env=environment, start_new_session=True
    )
    record(name).write_text(f"{container.pid}\n", encoding="ascii")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: container.send_signal(got))
    code = container.wait()
    record(name).unlink(missing_ok=True)
    return 128 - code if code < 0 else code


def stop(name: str, seconds: float) -> int:
    """Ask, wait, kill."""
    pid = pid_of(name)
    if pid is None:
        return missing(name)
    try:
        gone = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0
    signal.pidfd_send_signal(gone, signal.SIGTERM)
    if not select.select([gone], [], [], seconds)[0]:
        signal.pidfd_send_signal(gone, signal.SIGKILL)
    return 0


def remove(name: str) -> int:
    """Kill and forget."""
    pid = pid_of(name)
    if pid is None:
        return missing(name)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    record(name).unlink(missing_ok=True)
    return 0


def inspect(name: str, template: str) -> int:
    """Print the pid or an id."""
    pid = pid_of(name)
    if pid is None:
        return missing(name)
    answer = str(pid) if template == "{{.State.Pid}}" else "c" * 64
    sys.stdout.write(f"{answer}\n")
    return 0


def main(words: list[str]) -> int:
    """Do one command."""
    with (STATE / "calls").open("a", encoding="utf-8") as calls:
        calls.write(" ".join(words[:4]) + "\n")
    if (STATE / "down").exists():
        say("failed to connect to the docker API at unix:///var/run/docker.sock: "
            "dial unix /var/run/docker.sock: connect: no such file or directory")  # fmt: skip
        return 1
    match words:
        case ["run", *rest]:
            return run(rest)
        case ["stop", "--time", seconds, name]:
            return stop(name, float(seconds))
        case ["rm", "--force", name]:
            return remove(name)
        case ["inspect", "--format", template, name] | ["container", "inspect", "--format", template, name]:
            return inspect(name, template)
    say(f"docker: unknown command: {words}")
    return 125


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
