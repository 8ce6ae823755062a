"""daemon.json belongs to docker's operator too: our keys go in and out, and nothing else moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.roles.conftest import RunModule

pytestmark = pytest.mark.fast

OURS = {"features": {"cdi": True}}


class Daemon:
    """A daemon.json and our receipt of it."""

    def __init__(self, folder: Path, run: RunModule) -> None:
        self.path, self._receipt, self._run = folder / "daemon.json", folder / "receipts" / "daemon.json", run

    def merge(self, values: object = None, *, check: bool = False) -> dict[str, object]:
        """Merge values in, ours by default."""
        values = OURS if values is None else values
        return self._run(
            "kimi_json", path=str(self.path), values=values, receipt=str(self._receipt), check=check
        )

    def take_out(self) -> dict[str, object]:
        """Tear down."""
        return self._run("kimi_json", path=str(self.path), receipt=str(self._receipt), state="absent")


@pytest.fixture
def daemon(tmp_path: Path, run_module: RunModule) -> Daemon:
    """No daemon.json yet."""
    return Daemon(tmp_path, run_module)


def test_keys_of_others_survive(daemon: Daemon) -> None:
    """P25: data-root and proxy settings are still there after a run."""
    daemon.path.write_text('{"data-root": "/big", "features": {"buildkit": true}}')
    assert daemon.merge()["changed"]
    assert json.loads(daemon.path.read_text()) == {
        "data-root": "/big",
        "features": {"buildkit": True, "cdi": True},
    }


def test_a_space_is_no_change(daemon: Daemon) -> None:
    """Only a difference in meaning is written, so that docker is not restarted for a layout."""
    text = '{ "features":{"cdi":true}   }'
    daemon.path.write_text(text)
    assert not daemon.merge()["changed"]
    assert daemon.path.read_text() == text


def test_a_second_run_changes_nothing(daemon: Daemon) -> None:
    """What was merged is found again."""
    daemon.merge()
    assert not daemon.merge()["changed"]


def test_teardown_gives_back_every_byte(daemon: Daemon) -> None:
    """Layout, order and mode return, also after two different merges."""
    text = '{"log-driver":   "journald",\n\n"features":{"cdi":false}}'
    daemon.path.write_text(text)
    daemon.path.chmod(0o600)
    daemon.merge()
    daemon.merge({"insecure-registries": ["10.0.0.1:5000"]})
    assert daemon.path.stat().st_mode & 0o777 == 0o600
    assert daemon.take_out()["changed"]
    assert daemon.path.read_text() == text
    assert daemon.path.stat().st_mode & 0o777 == 0o600


def test_teardown_removes_a_file_that_was_not_there(daemon: Daemon) -> None:
    """Absence is restored as well, and a second teardown has nothing to do."""
    daemon.merge()
    daemon.take_out()
    assert not daemon.path.exists()
    assert not daemon.take_out()["changed"]


def test_teardown_keeps_what_was_edited_since(daemon: Daemon) -> None:
    """An operator's edit after our run outlives our keys, and a value of ours that they changed is theirs."""
    daemon.path.write_text('{"hosts": ["fd://"], "debug": false}')
    daemon.merge({"features": {"cdi": True}, "hosts": ["tcp://127.0.0.1"], "debug": True})
    now = json.loads(daemon.path.read_text())
    daemon.path.write_text(json.dumps({**now, "debug": "verbose", "dns": ["192.0.2.53"]}))
    daemon.take_out()
    assert json.loads(daemon.path.read_text()) == {
        "hosts": ["fd://"],
        "debug": "verbose",
        "dns": ["192.0.2.53"],
    }


def test_a_check_run_writes_nothing(daemon: Daemon) -> None:
    """The difference is shown, the folder stays empty."""
    answer = daemon.merge(check=True)
    assert answer["changed"]
    assert '"cdi": true' in str(answer["diff"]["after"])  # type: ignore[index]
    assert not list(daemon.path.parent.iterdir())


@pytest.mark.parametrize("text", ["{", "[1]", "{'a': 1}"])
def test_a_broken_file_is_left_to_its_owner(daemon: Daemon, text: str) -> None:
    """What cannot be read is not replaced; the message names the file."""
    daemon.path.write_text(text)
    answer = daemon.merge()
    assert answer["failed"]
    assert str(daemon.path) in str(answer["msg"])
    assert daemon.path.read_text() == text
