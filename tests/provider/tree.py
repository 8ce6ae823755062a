"""Playbooks and an inventory of the tests' own: the product's names, run on this machine, in seconds."""

from __future__ import annotations

import sys
from pathlib import Path

ROLES = ("host_base", "container_runtime", "serving_image", "model_store", "vllm_serve", "node_verify")
PREPARE, SERVE, VERIFY = ROLES[:4], ROLES[4:5], ROLES[5:]

_PLAY = """\
- name: Play
  hosts: all
  gather_facts: false
  any_errors_fatal: true
  pre_tasks:
    - name: Probe
      kimi_probe:
      tags: always
  roles:
"""

_TASKS = """\
- name: Write the file
  ansible.builtin.copy:
    content: "{{ text }}\\n"
    dest: "{{ where }}/%(role)s-{{ inventory_hostname }}"
    mode: "0644"
%(secret)s- name: Wait
  ansible.builtin.command: sleep {{ nap }}
  changed_when: false
  when: nap_in | default('') == '%(role)s'
- name: Stop where the test says
  ansible.builtin.fail:
    msg: "{{ inventory_hostname }} has no luck with {{ lookup('env', 'KIMI_API_KEY') }}; mend it"
  when: fail_in | default('') == '%(role)s ' ~ inventory_hostname
"""

_SECRET = """\
- name: Write the secret
  ansible.builtin.copy:
    content: "{{ lookup('env', 'KIMI_API_KEY') }}"
    dest: "{{ where }}/%(role)s-{{ inventory_hostname }}.secret"
    mode: "0600"
  no_log: true
"""

_ROLLOUT = """\
- name: Decide
  kimi_rollout:
  run_once: true
"""

_VERIFY = """\
- name: Look at the host
  ansible.builtin.command: test -e {{ where }}/vllm_serve-{{ inventory_hostname }}
  changed_when: false
"""

_TEARDOWN = """\
- name: Tear down
  hosts: all
  gather_facts: false
  tasks:
"""

_PROBE = """\
import json
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        host = task_vars["inventory_hostname"]
        found = {
            "boot_id": "b", "architecture": "aarch64", "docker": "26", "memory_total": 1, "errors": [],
            "devices": {task_vars["engine_address"]: "eth0"}, "routes": {}, "paths": {}, "hashes": {},
            "images": {task_vars["reference"]: "sha256:" + "a" * 64},
            "os_release": {"id": "debian", "version": "13"},
        }
        return {**super().run(tmp, task_vars), "changed": False, "answer": json.dumps(found)}
"""

_DECIDE = """\
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        waits = task_vars.get("waits", False) and task_vars.get("kimi_consent") != "restart"
        one = {"deployment": "kimi", "action": "none", "restart_required": waits, "reason": "it differs"}
        return {**super().run(tmp, task_vars), "changed": False, "hosts": {"tray-a": [one], "tray-b": [one]}}
"""

DIGEST = "sha256:6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"

_HOSTS = """\
kimi:
  vars:
    ansible_user: ops
    ansible_connection: local
    ansible_python_interpreter: {python}
    ansible_remote_tmp: {where}/.ansible
  hosts:
    tray-a: {{ansible_host: 127.0.0.2, engine_address: 198.51.100.11, node_rank: 0, host_key: {key_a}}}
    tray-b: {{ansible_host: 127.0.0.3, engine_address: 198.51.100.12, node_rank: 1, host_key: {key_b}}}
"""

_VARIABLES = """\
where: {where}
text: hello
reference: "vllm/vllm-openai@{digest}"
"""

_DEPLOYMENT = """\
deployments:
  - name: kimi
    group: kimi
    model: moonshotai/Kimi-K3.1-Pro
    hardware: gb300
    strategy: multi_node_tp
    features: [tool_calling, reasoning]
    image: {{name: "vllm/vllm-openai:kimi-k31", digest: {digest}}}
    model_path: /srv/models/Kimi-K3.1-Pro
    api: {{port: 8000, key: {{env: KIMI_API_KEY}}}}
"""

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{}"
KEYS = (
    _KEY.format("MqXgRLKG73K+sIxs5oj3E2nhu/4FHxOcrmAd4Wv7ki7"),
    _KEY.format("D4j6BYAOVlKM4lPZWThsTSLvXoAiNQsSstz7q7VnACd"),
)


def write_tree(folder: Path) -> Path:
    """Write playbooks, roles and plugins."""
    _write(
        folder / "ansible.cfg", "[defaults]\nroles_path = roles\naction_plugins = plugins/action\nforks = 4\n"
    )
    _write(folder / "plugins/action/kimi_probe.py", _PROBE)
    _write(folder / "plugins/action/kimi_rollout.py", _DECIDE)
    for name, roles in (("prepare", PREPARE), ("serve", SERVE), ("verify", VERIFY)):
        lines = "".join(f"    - {{role: {role}, tags: {role}}}\n" for role in roles)
        _write(folder / f"playbooks/{name}.yml", _PLAY + lines)
    for role in ROLES:
        tasks = _VERIFY if role in VERIFY else _tasks(role)
        _write(folder / f"roles/{role}/tasks/main.yml", tasks)
    removals = "".join(_removal(role) for role in (*SERVE, *reversed(PREPARE[:3])))
    _write(folder / "playbooks/teardown.yml", _TEARDOWN + removals)
    return folder


def write_inventory(folder: Path, where: Path) -> Path:
    """Write an inventory of two hosts that are both this machine; their files are put into ``where``."""
    where.mkdir(parents=True, exist_ok=True)
    values = {"python": sys.executable, "where": where, "digest": DIGEST, "key_a": KEYS[0], "key_b": KEYS[1]}
    _write(folder / "hosts.yml", _HOSTS.format(**values))
    _write(folder / "group_vars/kimi.yml", _VARIABLES.format(where=where, digest=DIGEST))
    _write(folder / "deployment.yml", _DEPLOYMENT.format(digest=DIGEST))
    return folder


def _tasks(role: str) -> str:
    secret = _SECRET % {"role": role} if role in {"host_base", *SERVE} else ""
    return _TASKS % {"role": role, "secret": secret} + (_ROLLOUT if role in SERVE else "")


def _removal(role: str) -> str:
    return (
        f"    - name: Remove what {role} wrote\n      ansible.builtin.file:\n"
        f'        path: "{{{{ where }}}}/{role}-{{{{ inventory_hostname }}}}"\n        state: absent\n'
        f"      tags: {role}\n"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
