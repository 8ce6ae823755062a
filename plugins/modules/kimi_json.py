"""Merge values into a JSON file that others own too, and take them out again."""

from __future__ import annotations

import json
import os
import pathlib
import stat
from typing import Any

from ansible.module_utils import kimi_receipts as receipts
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kimi_json
short_description: Values inside a JSON file, the rest of it left alone
description:
  - Writes only when the meaning differs, so that nothing is restarted for a space.
  - Keeps the file as it was; C(absent) gives that back, byte for byte where nobody else has edited it since.
options:
  path: {type: path, required: true, description: The JSON file; its folder must exist.}
  values: {type: dict, default: {}, description: Merged in; mappings by key, lists by missing item.}
  receipt: {type: path, required: true, description: File on the host that holds what was there before.}
  state: {type: str, choices: [present, absent], default: present, description: Merged in, or taken out.}
author: [kimi_infra]
"""

EXAMPLES = r"""
- name: Switch CDI on
  kimi_json:
    path: /etc/docker/daemon.json
    values: {features: {cdi: true}}
    receipt: /var/lib/kimi-infra/receipts/daemon.json
"""

RETURN = r""""""


def merge(current: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return ``current`` with ``values`` in it."""
    return {**current, **{key: _merge_one(current.get(key), value) for key, value in values.items()}}


def _merge_one(current: Any, value: Any) -> Any:
    if isinstance(current, dict) and isinstance(value, dict):
        return merge(current, value)
    if isinstance(current, list) and isinstance(value, list):
        return [*current, *(item for item in value if item not in current)]
    return value


def take_out(current: dict[str, Any], values: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return ``current`` without what ``values`` brought; what was edited since stays."""
    result = dict(current)
    for key, value in values.items():
        if key not in current:
            continue
        rest = _take_out_one(current[key], value, before.get(key))
        if rest in ({}, [], None) and key not in before:
            del result[key]
        else:
            result[key] = rest
    return result


def _take_out_one(current: Any, value: Any, before: Any) -> Any:
    if isinstance(current, dict) and isinstance(value, dict):
        return take_out(current, value, before if isinstance(before, dict) else {})
    if isinstance(current, list) and isinstance(value, list):
        earlier = before if isinstance(before, list) else []
        return [item for item in current if item not in value or item in earlier]
    return before if current == value else current


def render(data: dict[str, Any]) -> str:
    """Write as docker's own tools do."""
    return json.dumps(data, indent=2) + "\n"


class Target:
    """The file as it is now."""

    def __init__(self, module: AnsibleModule) -> None:
        self.path = pathlib.Path(module.params["path"])
        self.text = self.path.read_text(encoding="utf-8") if self.path.exists() else None
        self.mode = stat.S_IMODE(self.path.stat().st_mode) if self.text is not None else 0o644
        self.data = self._parse(module)

    def _parse(self, module: AnsibleModule) -> dict[str, Any]:
        try:
            data = json.loads(self.text or "{}")
        except ValueError as error:
            module.fail_json(
                msg=f"{self.path} is not JSON: {error}; mend it by hand, it is not ours to replace"
            )
        if not isinstance(data, dict):
            module.fail_json(msg=f"{self.path} holds no JSON object (got {data!r}); mend it by hand")
        return dict(data)

    def write(self, text: str | None) -> None:
        """Replace the file, or remove it for None; owner and mode stay."""
        if text is None:
            self.path.unlink(missing_ok=True)
            return
        owner = self.path.stat() if self.text is not None else None
        receipts.replace(str(self.path), text, mode=self.mode)
        if owner:
            os.chown(self.path, owner.st_uid, owner.st_gid)


def present(module: AnsibleModule, target: Target) -> dict[str, object]:
    """Merge in."""
    values, path = module.params["values"], module.params["receipt"]
    wanted = merge(target.data, values)
    if wanted == target.data:
        return {"changed": False}
    text = render(wanted)
    if not module.check_mode:
        receipt = receipts.read(path) or {"text": target.text, "values": {}}
        receipts.write(path, {**receipt, "values": merge(receipt["values"], values)})
        target.write(text)
    return answer(target, text)


def absent(module: AnsibleModule, target: Target) -> dict[str, object]:
    """Take out."""
    receipt = receipts.read(module.params["receipt"])
    if receipt is None:
        return {"changed": False}
    original = receipt["text"]
    before = json.loads(original or "{}")
    rest = take_out(target.data, receipt["values"], before)
    text = original if rest == before or target.text is None else render(rest)
    changed = target.text is not None and text != target.text
    if not module.check_mode:
        if changed:
            target.write(text)
        receipts.drop(module.params["receipt"])
    return answer(target, text) if changed else {"changed": False}


def answer(target: Target, text: str | None) -> dict[str, object]:
    """Return a change with its difference."""
    diff = {"before": target.text or "", "after": text or ""}
    headers = {"before_header": str(target.path), "after_header": str(target.path)}
    return {"changed": True, "diff": {**diff, **headers}}


def main() -> None:
    """Run as Ansible's module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "values": {"type": "dict", "default": {}},
            "receipt": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    verb = present if module.params["state"] == "present" else absent
    module.exit_json(**verb(module, Target(module)))


if __name__ == "__main__":
    main()
