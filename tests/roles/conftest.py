"""Modules run here as Ansible runs them on a host, but in this process."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).resolve().parents[2]

RunModule: TypeAlias = Callable[..., dict[str, Any]]


@pytest.fixture
def run_module(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunModule:
    """Run a module of plugins/modules with arguments; returns what it answers, failures too."""
    utils = str(ROOT / "plugins" / "module_utils")
    # ansible.cfg's module_utils: on a host Ansible packs both into one archive.
    monkeypatch.setattr(ansible.module_utils, "__path__", [*ansible.module_utils.__path__, utils])

    def run(name: str, *, check: bool = False, **arguments: object) -> dict[str, Any]:
        spec = importlib.util.spec_from_file_location(name, ROOT / "plugins" / "modules" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            module.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return run
