"""Paths return to what they were, and to nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.roles.conftest import RunModule

pytestmark = pytest.mark.fast


class Host:
    """A folder in the place of a host's root."""

    def __init__(self, folder: Path, run: RunModule) -> None:
        self.root, self._run = folder / "root", run
        self._receipt = str(folder / "receipt.json")
        self.root.mkdir()

    def take(self, *names: str, check: bool = False) -> dict[str, object]:
        """Remember paths."""
        paths = [str(self.root / name) for name in names]
        return self._run("kimi_receipt", receipt=self._receipt, paths=paths, state="taken", check=check)

    def restore(self, *, recursive: bool = False, check: bool = False) -> dict[str, object]:
        """Give back."""
        return self._run(
            "kimi_receipt", receipt=self._receipt, state="restored", recursive=recursive, check=check
        )

    def lay(self, name: str, text: str = "ours", mode: int = 0o644) -> Path:
        """Write a file with its folders."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


@pytest.fixture
def host(tmp_path: Path, run_module: RunModule) -> Host:
    """Nothing remembered yet."""
    return Host(tmp_path, run_module)


def test_what_was_absent_goes(host: Host) -> None:
    """A file goes first, then its folders."""
    host.take("certs.d", "certs.d/reg:5000", "certs.d/reg:5000/ca.crt")
    host.lay("certs.d/reg:5000/ca.crt")
    assert host.restore()["changed"]
    assert not list(host.root.iterdir())


def test_a_file_returns_with_its_mode(host: Host) -> None:
    """Content and mode are given back."""
    path = host.lay("ca.crt", "theirs", 0o600)
    host.take("ca.crt")
    host.lay("ca.crt", "ours", 0o644)
    host.restore()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("theirs", 0o600)


def test_the_first_receipt_stands(host: Host) -> None:
    """A second run finds our own file and must not take it for what was there before."""
    host.take("ca.crt")
    host.lay("ca.crt")
    assert not host.take("ca.crt")["changed"]
    host.restore()
    assert not (host.root / "ca.crt").exists()


def test_a_folder_in_use_stays(host: Host) -> None:
    """A certificate that somebody laid beside ours is not deleted with our folder."""
    host.take("certs.d", "certs.d/ours.crt")
    host.lay("certs.d/ours.crt")
    theirs = host.lay("certs.d/theirs.crt")
    host.restore()
    assert list(theirs.parent.iterdir()) == [theirs]


def test_docker_data_goes_when_told_so(host: Host) -> None:
    """An empty folder is emptied and kept, an absent one goes, one that held something is its owner's."""
    (host.root / "empty").mkdir(mode=0o750)
    held = host.lay("held/before")
    host.take("empty", "absent", "held")
    for name in ("empty/overlay2/layer", "absent/layer", "held/since"):
        host.lay(name)
    (host.root / "empty").chmod(0o710)  # as dockerd does to /var/lib/docker
    host.restore(recursive=True)
    assert sorted(path.name for path in host.root.iterdir()) == ["empty", "held"]
    assert not list((host.root / "empty").iterdir())
    assert (host.root / "empty").stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in held.parent.iterdir()) == ["before", "since"]


def test_links_are_not_followed(host: Host) -> None:
    """A link in a folder that goes does not take its target along."""
    target = host.lay("elsewhere/weights")
    host.take("data")
    (host.root / "data").mkdir()
    (host.root / "data" / "link").symlink_to(target.parent)
    host.restore(recursive=True)
    assert target.exists()


def test_check_runs_change_nothing(host: Host) -> None:
    """Both verbs say what they would do and do not."""
    assert host.take("new", check=True)["changed"]
    host.lay("new")
    assert not host.restore()["changed"]
    assert (host.root / "new").exists()


def test_a_second_teardown_has_nothing_to_do(host: Host) -> None:
    """The receipt is gone once it was acted upon: later files are not ours."""
    host.take("x")
    host.lay("x")
    host.restore()
    host.lay("x", "a later owner's")
    assert not host.restore()["changed"]
    assert (host.root / "x").exists()
