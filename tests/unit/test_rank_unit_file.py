"""The supervisor reads the command in a unit file as systemd does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_infra.hostside.rank import host, state, unitfile
from kimi_infra.rendering import systemd
from tests.stubs import group

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/bin/a b  c", ("/bin/a", "b", "c")),
        ("/bin/a \"b c\" 'd e'", ("/bin/a", "b c", "d e")),
        (r'/bin/a "\"x\" \\ \x41 \u00e4 \101\t"', ("/bin/a", '"x" \\ A ä A\t')),
        ("/bin/a 100%% $$HOME", ("/bin/a", "100%", "$HOME")),
        ('/bin/a "" b', ("/bin/a", "", "b")),
        (r"/bin/a \q", ("/bin/a", r"\q")),  # unknown escapes stay
    ],
)
def test_words(line: str, words: tuple[str, ...]) -> None:
    """Quotes, escapes, doubled signs and empty words."""
    assert unitfile.split(line) == words


@given(
    st.lists(
        st.text(st.characters(exclude_categories=("Cc", "Cs")) | st.sampled_from('"\\$%\t;#')), max_size=6
    )
)
def test_what_is_rendered_is_read_back(words: list[str]) -> None:
    """Every command that kimi_infra writes comes back word for word."""
    argv = ("/usr/local/lib/kimi-infra/kimi-rank", *words)
    assert unitfile.split(systemd.exec_line(argv)) == argv


def test_the_last_command_of_a_unit_counts(tmp_path: Path) -> None:
    """Continued lines belong together; a file without a command has none."""
    unit = tmp_path / "x.service"
    unit.write_text("[Service]\nExecStart=/bin/old\nExecStart=/bin/a -- docker \\\n  run\n")
    assert unitfile.exec_start(unit) == ("/bin/a", "--", "docker", "run")
    assert unitfile.exec_start(tmp_path / "missing.service") is None


def test_a_command_that_differs_from_its_unit_is_stale(tmp_path: Path) -> None:
    """Staleness compares the words behind ``--`` of the running process with those on disk."""
    unit = tmp_path / "x.service"
    (tmp_path / "rank.json").write_text("{}")
    settings = group.settings(inputs=(str(tmp_path / "rank.json"),))
    command = (sys.executable, "-c", "print(flush=True); input()", "--", "docker", "run", "a b")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the command line of a process is empty while it is being started
        found = {
            "pid": process.pid,
            "started": host.start_ticks(process.pid),
            "inputs": state.digests(settings.inputs),
        }
        unit.write_text('[Service]\nExecStart=/kimi-rank run -- docker run "a b"\n')
        same = state.changes(found, settings, unit)
        unit.write_text('[Service]\nExecStart=/kimi-rank run -- docker run "a c"\n')
        other = state.changes(found, settings, unit)
        (tmp_path / "rank.json").unlink()
        both = state.changes(found, settings, unit)
        process.communicate(b"\n")
    assert same == []
    assert other == [f"the command in {unit} changed"]
    assert both == [f"{tmp_path / 'rank.json'} changed", *other]
    assert state.changes(found, settings, unit) == []  # nothing runs, so nothing is stale
