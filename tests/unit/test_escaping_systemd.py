"""A command written into a unit is executed as it was meant."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_infra.errors import UnsafeTextError
from kimi_infra.rendering import systemd
from tests.oracles import hostile, systemd_exec

pytestmark = pytest.mark.fast

HOSTILE = (
    *("", " ", "a b", "tab\tbed", ";", "\\;", "a;b", "#x", "a\\", "\\", "\\n", "it's", 'say "so"', "'\"'"),
    *("$HOME", "${HOME}", "$$", "a$b", "%n", "%%", "100%", "%", "`id`", "{a,b}", "*", "~", "|", "&&"),
    *('{"k": [1, "$x%"]}', "non\u00a0breaking", "\u202ereversed", "\ufeffmark", "é漢🜁", "\U000e0001tag"),
    *("-", "--", "@", "+", "!", ":", "--x=1", "a=b"),
)
PROGRAM = "/bin/true"


@settings(deadline=None, max_examples=400)
@given(arguments=st.lists(hostile.texts, max_size=6))
def test_what_systemd_executes_is_the_argv(arguments: list[str]) -> None:
    """Whatever the words, systemd's own rules read back the same words, whatever its environment holds."""
    argv = (PROGRAM, *arguments)
    environment = {"HOME": "/root", "x": "one two", "": "nothing"}
    assert systemd_exec.executed(systemd.exec_line(argv), environment) == argv


@settings(deadline=None)
@given(arguments=st.lists(hostile.texts, min_size=1, max_size=4))
def test_words_may_stand_on_lines_of_their_own(arguments: list[str]) -> None:
    """A command may be continued over lines at any word that begins with two dashes."""
    lines = [systemd.exec_line((PROGRAM, *arguments)), *(systemd.word(f"--{text}") for text in arguments)]
    expected = (PROGRAM, *arguments, *(f"--{text}" for text in arguments))
    assert systemd_exec.executed(" \\\n  ".join(lines)) == expected


@pytest.mark.parametrize(
    ("argv", "written"),
    [
        (("/usr/bin/docker", "run", "--rm"), "/usr/bin/docker run --rm"),
        (("/a", ""), '/a ""'),
        (("/a", ";"), '/a ";"'),
        (("/a", "50% of $HOME"), '/a "50%% of $$HOME"'),
        (("/a", 'q"\\'), '/a "q\\"\\\\"'),
        (("/a", "t\t\u00a0\U000e0001"), '/a "t\\t\\u00a0\\U000e0001"'),
        (("/with space/a",), '"/with space/a"'),
    ],
)
def test_the_text_is_stable(argv: tuple[str, ...], written: str) -> None:
    """The same command is always the same bytes, quoted only where it must be."""
    assert systemd.exec_line(argv) == written


@pytest.mark.parametrize("text", hostile.REFUSED)
def test_control_characters_are_refused(text: str) -> None:
    """Line ends, control characters and undecodable bytes are refused, not stripped."""
    with pytest.raises(UnsafeTextError, match="cannot be written"):
        systemd.exec_line((PROGRAM, text))
    with pytest.raises(UnsafeTextError, match="cannot be written"):
        systemd.text(text)


@pytest.mark.parametrize(
    "program",
    [
        *("", "true", "-/bin/true", "@/bin/true", ":/bin/true", "+/bin/true", "!/bin/true", "|/bin/true"),
        *("/bin/", "/", "/bin/$x", "/bin/it's", '/bin/"', "/bin/a\\b", "/bin/../true", "/" + "x" * 256),
    ],
)
def test_a_program_is_a_plain_absolute_path(program: str) -> None:
    """What systemd would search for, take as a prefix, or run under another name is refused."""
    with pytest.raises(UnsafeTextError, match="absolute path"):
        systemd.exec_line((program, "x"))


def test_an_empty_command_is_refused() -> None:
    """An empty ExecStart= would clear the list of commands."""
    with pytest.raises(UnsafeTextError, match="no command"):
        systemd.exec_line(())


@pytest.mark.parametrize("value", [" x", "x ", "\tx", "x\\", ""])
def test_text_that_systemd_would_trim(value: str) -> None:
    """A description keeps its white space and its lines, or is refused; an empty one is fine."""
    if value:
        with pytest.raises(UnsafeTextError):
            systemd.text(value)
    else:
        assert systemd.text(value) == ""


def test_text_doubles_percent_only() -> None:
    """In plain text nothing but specifiers expands."""
    assert systemd.text('100% of "$HOME" \\ x') == '100%% of "$HOME" \\ x'


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder that an unprivileged systemd can read."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # noqa: PTH101, S103 - mkdtemp is for its owner only
        yield pathlib.Path(name)


def test_systemd_itself_does_not_complain(folder: pathlib.Path) -> None:
    """``systemd-analyze verify`` prints nothing about a unit full of hostile words."""
    unit = folder / "hostile.service"
    unit.write_text(f"[Service]\nExecStart={systemd.exec_line((PROGRAM, *HOSTILE))}\n", encoding="utf-8")
    command = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_itself_reads_the_words(folder: pathlib.Path) -> None:
    """Systemd's own unit loader, asked in test mode, holds exactly these words before variables expand."""
    unit = folder / "hostile.service"
    unit.write_text(
        f"[Service]\nType=oneshot\nExecStart={systemd.exec_line((PROGRAM, *HOSTILE))}\n", encoding="utf-8"
    )
    dumped = re.search(rf"Command Line: ({PROGRAM} .*)", _test_mode(folder, unit.name))
    assert dumped
    assert _dumped_words(dumped[1]) == [PROGRAM, *(text.replace("$", "$$") for text in HOSTILE)]


def _test_mode(folder: pathlib.Path, unit: str) -> str:
    """Load a unit as a user's manager would and return the dump; nothing is started."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    if root := os.geteuid() == 0:
        os.chown(runtime, 65534, 65534)
    done = subprocess.run(
        ["/usr/lib/systemd/systemd", "--test", "--user", f"--unit={unit}"],
        env={
            "HOME": str(runtime),
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(runtime),
            "SYSTEMD_LOG_TARGET": "console",
            "SYSTEMD_UNIT_PATH": f"{folder}:",
        },
        user=65534 if root else None,
        group=65534 if root else None,
        extra_groups=[] if root else None,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def _dumped_words(line: str) -> list[str]:
    """Undo the quoting of systemd's dump: double quotes with backslashes, or nothing."""
    found = re.findall(r'"(?:[^"\\]|\\.)*"|[^ "]+', line)
    return [re.sub(r"\\(.)", _unescaped, word[1:-1]) if word[0] == '"' else word for word in found]


def _unescaped(match: re.Match[str]) -> str:
    return {"t": "\t"}.get(match[1], match[1])
