"""Refuse what cannot be applied, before any host is contacted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import connection_loader

from kimi_infra.deploy import site
from kimi_infra.domain import names
from kimi_infra.errors import Fault, KimiInfraError, SpecError
from kimi_infra.observe import pinning

_CONSENTS = ("", "restart")
_SUBSYSTEMS = ("ssh", "sftp", "scp")


class ActionModule(ActionBase):
    """``kimi_check: {inventory: DIR}``; runs on the controller only, once for all hosts of the run."""

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"inventory"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check inventory, --limit, consent and connections; fail with every fault at once."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        try:
            found = site.read_ready(Path(self._task.args["inventory"]))
            faults = (*_limit(found, variables), *_Hosts(found, variables).faults())
            if faults:
                raise SpecError(faults)
        except KimiInfraError as error:
            raise AnsibleActionFail(str(error)) from error
        return {**result, "changed": False, "deployments": [d.name for d in found.inventory.deployments]}


def _limit(found: site.Site, variables: Mapping[str, Any]) -> Iterator[Fault]:
    """Refuse a run on some of a deployment's hosts: its ranks are one engine."""
    playing = set(variables["ansible_play_hosts_all"])
    for deployment in found.inventory.deployments:
        hosts = [host.name for host in deployment.hosts]
        left = [host for host in hosts if host not in playing]
        if left and len(left) < len(hosts):
            yield Fault(
                where="--limit",
                what=f"deployment {deployment.name} is split, without {', '.join(left)}",
                got=variables.get("ansible_limit"),
                remedy="run without --limit: ranks are planned, started and stopped together; "
                "a host that is gone is taken out of the inventory",
            )


class _Hosts:
    """The hosts as Ansible is about to reach them, whatever its variables and settings come from."""

    def __init__(self, found: site.Site, variables: Mapping[str, Any]) -> None:
        self._keys = {host.name: host.host_key for host in found.hosts}
        self._hostvars = variables["hostvars"]
        self._names = [name for name in variables["groups"]["all"] if name != "localhost"]
        # Ansible knows a plugin's settings once the plugin is loaded.
        connection_loader.get("ssh", class_only=True)

    def faults(self) -> tuple[Fault, ...]:
        """Find every fault, each once."""
        found: dict[Fault, None] = {}
        clients: list[pinning.Client] = []
        for host in self._names:
            found |= dict.fromkeys(self._consent(host))
            try:
                own = [*self._connection(host), *self._key(host)]
                clients += [] if own else self._clients(host)
            except (AnsibleError, ValueError) as error:
                remedy = "mend the variable or setting that it names"
                own = [Fault(where=host, what=f"options of ssh cannot be read: {error}", remedy=remedy)]
            found |= dict.fromkeys(own)
        return (*found, *pinning.faults(clients))

    def _consent(self, host: str) -> Iterator[Fault]:
        given = str(self._hostvars[host].get("kimi_consent", ""))
        if given not in _CONSENTS:
            where = self._variable(host, "kimi_consent")
            remedy = f"{names.closest(given, _CONSENTS[1:])} (to give none, leave it out)"
            yield Fault(where=where, what="not a consent", got=given, remedy=remedy)

    def _connection(self, host: str) -> Iterator[Fault]:
        given = self._hostvars[host].get("ansible_connection")
        where = (
            self._variable(host, "ansible_connection") if given else "connection (--connection, transport)"
        )
        kind = str(given or context.CLIARGS.get("connection") or constants.DEFAULT_TRANSPORT)
        if kind.removeprefix("ansible.builtin.") not in {"ssh", "smart"}:
            remedy = "remove it; hosts are reached by ssh, which alone is held to host_key"
            yield Fault(where=where, what="not a connection by ssh", got=kind, remedy=remedy)

    def _key(self, host: str) -> Iterator[Fault]:
        given = str(self._hostvars[host].get("host_key", ""))
        if given.split()[:2] != self._keys.get(host, given).split()[:2]:
            where = self._variable(host, "host_key")
            remedy = f"remove it; the host key of {host} is given in hosts.yml only"
            yield Fault(where=where, what=f"not the host key of {host}", got=given, remedy=remedy)

    def _clients(self, host: str) -> list[pinning.Client]:
        """Return the different ways in which Ansible's ssh plugin will call ssh, in its order of words."""
        program, _ = self._setting(host, "ssh_executable")
        checking, source = self._setting(host, "host_key_checking")
        switch = () if checking else ("-o", "StrictHostKeyChecking=no")
        front = (
            self._given(host, "ssh_args"),
            pinning.Given(source=source, words=switch),
            self._given(host, "ssh_common_args"),
        )
        variables = self._hostvars[host]
        clients = (
            pinning.Client(
                host=host,
                address=str(variables.get("ansible_host", host)),
                host_key=str(variables.get("host_key", "")),
                program=str(program),
                given=(*front, self._given(host, f"{subsystem}_extra_args")),
            )
            for subsystem in _SUBSYSTEMS
        )
        # The three are pinned by the same words: one question to ssh instead of three.
        return list({tuple(one.given[-1].words): one for one in clients}.values())

    def _given(self, host: str, name: str) -> pinning.Given:
        value, source = self._setting(host, name)
        return pinning.Given(source=source, words=tuple(shlex.split(str(value or ""))))

    def _setting(self, host: str, name: str) -> tuple[Any, str]:
        """Return a setting of the ssh plugin as it holds for a host, and where it comes from."""
        value, origin = constants.config.get_config_value_and_origin(
            name, plugin_type="connection", plugin_name="ssh", variables=self._hostvars[host]
        )
        kind, _, rest = str(origin).partition(": ")
        if kind == "var":
            return value, self._variable(host, rest)
        if kind == "cli":
            return value, f"--{rest.replace('_', '-')}"
        return value, f"environment: {rest}" if kind == "env" else f"{name} ({origin})"

    def _variable(self, host: str, name: str) -> str:
        """Return a variable's name with the file and line that Ansible has it from."""
        place = Origin.get_tag(self._hostvars.raw_get(host).get(name))
        return f"{name} ({place})" if place else name
