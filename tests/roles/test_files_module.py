"""Whole files come in one round trip, and only what differs is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.roles.conftest import RunModule

pytestmark = pytest.mark.fast

# Quotes, braces and a missing newline at the end: what Ansible's own templating could change.
CONTENT = 'a="{{ not.a.template }}" %i $x \\\n{"json": ["ä", 1]}'


class Host:
    """A folder in the place of a host's root."""

    def __init__(self, folder: Path, run: RunModule) -> None:
        self.root, self._run = folder / "etc", run
        self.file = self.root / "kimi" / "rank.json"

    def lay(self, content: str = CONTENT, mode: str = "0600", *, check: bool = False) -> dict[str, object]:
        """Lay out one folder with one file."""
        folders = [{"path": str(self.file.parent), "mode": "0755"}]
        files = [{"path": str(self.file), "content": content, "mode": mode}]
        return self._run("kimi_files", directories=folders, files=files, check=check)


@pytest.fixture
def host(tmp_path: Path, run_module: RunModule) -> Host:
    """An empty host."""
    return Host(tmp_path, run_module)


def test_every_byte_and_the_mode_arrive(host: Host) -> None:
    """A unit or a secret lies as it was rendered, whatever the umask is."""
    assert host.lay()["paths"] == [str(host.file.parent), str(host.file)]
    assert host.file.read_bytes() == CONTENT.encode()
    assert host.file.stat().st_mode & 0o777 == 0o600
    assert host.file.parent.stat().st_mode & 0o777 == 0o755


def test_a_second_run_touches_nothing(host: Host) -> None:
    """Not even the file's identity changes: what runs compares its inputs with it."""
    host.lay()
    before = host.file.stat()
    assert not host.lay()["changed"]
    after = host.file.stat()
    # Not the whole of it: reading moves the time of the last access.
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_drift_is_mended(host: Host) -> None:
    """A changed byte and an opened mode are both found."""
    host.lay()
    host.file.write_text("edited")
    assert host.lay()["paths"] == [str(host.file)]
    host.file.chmod(0o644)
    assert host.lay()["paths"] == [str(host.file)]
    assert host.file.stat().st_mode & 0o777 == 0o600


def test_a_check_run_shows_the_change_and_makes_none(host: Host) -> None:
    """--check --diff names the file, and works where its folder does not exist yet."""
    answer = host.lay(check=True)
    assert str(host.file) in str(answer["diff"])
    assert not host.root.exists()


def test_nothing_half_written_is_left(host: Host) -> None:
    """The file is replaced as a whole; no temporary one stays beside it."""
    host.lay()
    host.lay("second")
    assert [path.name for path in host.file.parent.iterdir()] == ["rank.json"]


def test_what_is_no_plain_file_is_not_replaced(host: Host, tmp_path: Path) -> None:
    """A link could lead the write elsewhere: it is refused, and its target is untouched."""
    target = tmp_path / "target"
    target.write_text("theirs")
    host.file.parent.mkdir(parents=True)
    host.file.symlink_to(target)
    answer = host.lay()
    assert answer["failed"]
    assert str(host.file) in str(answer["msg"])
    assert target.read_text() == "theirs"


def test_a_folder_of_others_keeps_its_mode(tmp_path: Path, run_module: RunModule) -> None:
    """/etc/docker may be the operator's and closed to others: it is made where absent, and never changed."""
    theirs, new = tmp_path / "docker", tmp_path / "docker" / "certs.d"
    theirs.mkdir(mode=0o700)
    folders = [{"path": str(path), "mode": "0755", "keep": True} for path in (theirs, new)]
    assert run_module("kimi_files", directories=folders)["paths"] == [str(new)]
    assert theirs.stat().st_mode & 0o7777 == 0o700
    assert new.stat().st_mode & 0o7777 == 0o755
    assert not run_module("kimi_files", directories=folders)["changed"]


def test_the_diff_of_a_program_is_brief(tmp_path: Path, run_module: RunModule) -> None:
    """A program of ours shows a hash where a unit shows its text; what is written is whole."""
    program, unit = tmp_path / "program.py", tmp_path / "x.service"
    text = "print(1)\nprint(2)\n"
    files = [
        {"path": str(program), "content": text, "mode": "0644", "brief": True},
        {"path": str(unit), "content": text, "mode": "0644"},
    ]
    shown = {
        Path(entry["after_header"].split()[0]): entry["after"]
        for entry in run_module("kimi_files", files=files)["diff"]
    }
    assert shown[unit] == text
    assert shown[program].startswith("2 lines, sha256 ")
    assert program.read_text() == text
