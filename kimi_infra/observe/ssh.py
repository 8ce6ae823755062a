"""One way to reach a host: the operator's own ssh, host keys pinned from the inventory."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

from kimi_infra.domain.inventory import Host
from kimi_infra.errors import HostError

_SSH_FAILED = 255
"""ssh's own exit status for a connection that did not come about."""


def options(host: Host) -> tuple[str, ...]:
    """Return ssh's options for one host, without the destination.

    The key is handed over by KnownHostsCommand, so that no known_hosts file has to be kept in step.
    """
    pinned = {
        "BatchMode": "yes",
        "ConnectTimeout": "10",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": "/dev/null",
        "GlobalKnownHostsFile": "/dev/null",
        # Either would let the controller's own ssh_config accept a key without ours.
        "VerifyHostKeyDNS": "no",
        "NoHostAuthenticationForLocalhost": "no",
        "KnownHostsCommand": f"/usr/bin/echo %H {host.host_key}",
        "ServerAliveInterval": "15",
        "LogLevel": "ERROR",
    }
    words = [word for name, value in pinned.items() for word in ("-o", f"{name}={value}")]
    if host.identity_file:
        words += ["-o", "IdentitiesOnly=yes", "-i", host.identity_file]
    return (*words, "-p", str(host.port), *host.ssh_args)


def argv(host: Host, command: Sequence[str]) -> tuple[str, ...]:
    """Return the whole ssh command line; ``command`` is quoted for the remote shell."""
    return ("ssh", *options(host), f"{host.user}@{host.address}", "--", shlex.join(command))


def hostspec(host: Host) -> str:
    """Return ``USER@ADDRESS`` as testinfra reads it: an IPv6 address in brackets, or its end is a port."""
    address = f"[{host.address}]" if ":" in host.address else host.address
    return f"{host.user}@{address}"


def run(host: Host, command: Sequence[str], *, stdin: str = "", timeout: float) -> str:
    """Run a command as root on a host and return what it printed.

    Args:
        host: Where.
        command: Words; run through ``sudo -n``.
        stdin: What the command reads.
        timeout: Seconds for all of it.

    Raises:
        HostError: the host cannot be reached, or the command failed or took too long.
    """
    line = argv(host, ("sudo", "-n", *command))
    try:
        done = subprocess.run(
            line,
            input=stdin,
            capture_output=True,
            # What a host prints need not be text; what it should print is checked by whoever asked.
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(
            host.name, f"no answer within {timeout:.0f} s", f"try: ssh {host.user}@{host.address}"
        ) from error
    except OSError as error:
        raise HostError(
            host.name, f"ssh did not start: {error.strerror}", "install OpenSSH's client"
        ) from error
    if done.returncode == _SSH_FAILED:
        raise HostError(
            host.name, f"cannot be reached: {done.stderr.strip()}", "check address, user and host key"
        )
    if done.returncode:
        what = f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}"
        raise HostError(host.name, what, "run the command by hand on the host")
    return done.stdout
