"""Tasks of container_runtime that spare what others keep in docker, run against a docker that is a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "a" * 64
DOCKER = """#!/bin/sh
case "$1" in
    ps) printf '%s\\n' vllm-kimi-head {container};;
    volume) printf '%s\\n' {volume};;
    image) printf '%s\\n' vllm/vllm-openai@{digest} {image};;
esac
"""


class Host:
    """This machine with a docker of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        (folder / "images").mkdir()
        (folder / "images" / "one").write_text(f"docker.io/vllm/vllm-openai@{DIGEST}\n")
        self.script("systemctl", f'#!/bin/sh\necho "$@" >> {folder}/calls\n')
        (folder / "pid").touch()
        os.utime(folder / "pid", (1, 1))
        (folder / "daemon.json").touch()

    def script(self, name: str, text: str) -> None:
        """Put a program into the path."""
        (self._folder / "bin" / name).write_text(text)
        (self._folder / "bin" / name).chmod(0o755)

    def holds(self, *, container: str = "", volume: str = "", image: str = "") -> None:
        """Say what docker holds beside a rank and an image of ours."""
        text = DOCKER.format(container=container, volume=volume, image=image, digest=DIGEST)
        self.script("docker", text.replace("%s\\n' ;;", "';;"))

    def play(self, file: str, **variables: object) -> subprocess.CompletedProcess[str]:
        """Run one task file of the role."""
        role = {"name": str(ROOT / "roles" / "container_runtime"), "tasks_from": file}
        tasks = [{"ansible.builtin.include_role": role}]
        (self._folder / "play.yml").write_text(
            yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}])
        )
        given = {
            "ansible_python_interpreter": sys.executable,
            "__container_runtime_client": str(self._folder / "bin" / "docker"),
            "__container_runtime_images": str(self._folder / "images"),
            "__container_runtime_kept": [str(self._folder / "none")],
            "__container_runtime_read": [str(self._folder / "daemon.json"), str(self._folder / "pid")],
            "container_runtime_json": {"changed": False},
            **variables,
        }
        program = str(Path(sys.executable).parent / "ansible-playbook")
        words = ["-c", "local", "-i", "localhost,", "-e", json.dumps(given), str(self._folder / "play.yml")]
        environment = {
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self._folder),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
        }
        return subprocess.run(
            [program, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host whose docker has an older daemon.json."""
    return Host(tmp_path)


def test_what_others_keep_is_named_and_refused(host: Host) -> None:
    """A container, a volume and an image of others, and none of ours."""
    host.holds(container="redis", volume="books", image=f"shop@sha256:{'b' * 64}")
    done = host.play("others.yml")
    assert done.returncode == 2
    said = " ".join(done.stdout.split())
    assert f"(got container redis, volume books, image shop@sha256:{'b' * 64})" in said


def test_what_is_ours_may_go(host: Host) -> None:
    """A rank's container and an image that was pulled for it are no obstacle."""
    host.holds()
    done = host.play("others.yml")
    assert done.returncode == 0, done.stdout


def test_standing_consent_does_not_speak_for_others(host: Host, tmp_path: Path) -> None:
    """allow: [restart] is a deployment's: a container of others is named, and docker not restarted."""
    host.holds(container="redis")
    done = host.play("restart.yml", container_runtime_restart_ok=True)
    assert done.returncode == 0, done.stdout
    assert "a restart would stop redis; give consent with -e kimi_consent=restart" in " ".join(
        done.stdout.split()
    )
    assert not (tmp_path / "calls").exists()
