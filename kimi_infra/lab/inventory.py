"""The inventory directory of the lab: ordinary hosts.yml and deployment.yml, written for this machine."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from kimi_infra.lab import filesystems, hosts, image, layout, network

_HEADER = "# Written by `kimi-infra lab up`; a change by hand is lost at the next one.\n"


def write(lab: layout.Layout, machines: tuple[hosts.Machine, ...], identity: image.Identity) -> None:
    """Lay down both files, each only where its text differs."""
    lab.inventory.mkdir(parents=True, exist_ok=True)
    net = machines[0].net
    for name, text in (
        ("hosts.yml", hosts_text(machines)),
        ("deployment.yml", _deployment(lab, net, identity)),
    ):
        path = lab.inventory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def make_secrets(lab: layout.Layout) -> None:
    """Random values for the two secrets, readable by their owner only; kept once made."""
    folder = lab.state / "secrets"
    folder.mkdir(exist_ok=True, mode=0o700)
    for path in (_api_key(lab), _hub_token(lab)):
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(f"{secrets.token_urlsafe(24)}\n", encoding="ascii")


def hosts_text(machines: tuple[hosts.Machine, ...]) -> str:
    """The Ansible inventory: one group, all that SSH needs, the pinned keys."""
    lines = []
    for rank, machine in enumerate(machines):
        fields = {
            "ansible_host": machine.address,
            "ansible_user": filesystems.USER,
            "ansible_ssh_private_key_file": str(machine.lab.client_key),
            "host_key": machine.host_key,
            "engine_address": machine.address,
            "node_rank": rank,
        }
        # JSON is YAML's flow form and quotes whatever a path may hold.
        inner = "".join(f"      {name}: {json.dumps(value)}\n" for name, value in fields.items())
        lines.append(f"    {machine.name}:\n{inner}")
    return f"{_HEADER}kimi:\n  hosts:\n{''.join(lines)}"


def _deployment(lab: layout.Layout, net: network.Network, identity: image.Identity) -> str:
    def quoted(value: object) -> str:
        return json.dumps(str(value))

    reference = f"{net.registry}/{image.REPOSITORY}:{image.TAG}"
    return f"""{_HEADER}deployments:
  - name: kimi
    group: kimi
    model: kimi-infra/lab-tiny
    hardware: lab-cpu
    strategy: multi_node_tp
    image:
      name: {quoted(reference)}
      digest: {quoted(identity.digest)}
      registry_ca: {{file: {quoted(lab.ca)}}}
    model_path: {quoted(layout.MODEL_PATH)}
    mounts: [{quoted(layout.SHARED_PATH)}]
    api: {{port: 8000, key: {{file: {quoted(_api_key(lab))}}}}}
    hub_token: {{file: {quoted(_hub_token(lab))}}}
    allow: []
"""


def _api_key(lab: layout.Layout) -> Path:
    return lab.state / "secrets" / "api-key"


def _hub_token(lab: layout.Layout) -> Path:
    return lab.state / "secrets" / "hub-token"
