"""The conversation with the oracle ends well, whatever happens to the program."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import pytest

from kimi_infra.lab import layout
from tests.parser import client, image
from tests.parser.client import Oracle, OracleError

pytestmark = pytest.mark.parser

ECHO = """
import json, sys
for line in sys.stdin:
    said = {"layer": "echo", "text": line.strip()}
    print(json.dumps({"complaints": [said], "layout": None, "seconds": 0.5}))
    sys.stdout.flush()
"""
DEAF = "import sys, time; print('no ears', file=sys.stderr, flush=True); time.sleep(600)"
LOOKING = """
import json, os, sys
writable = [path for path in json.loads(sys.stdin.readline())["argv"] if os.access(path, os.W_OK)]
found = {"links": " ".join(os.listdir("/sys/class/net")), "written": writable}
complaints = [{"layer": name, "text": str(text)} for name, text in found.items()]
os.write(3, json.dumps({"complaints": complaints, "layout": None, "seconds": 0}).encode() + b"\\n")
print("not an answer", flush=True)
sys.stdin.readline()
os.execvp("sleep", ["looking.py", "600"])
"""
DYING = "import sys; sys.stdin.readline(); sys.exit('out of memory')"


def program(text: str) -> Oracle:
    """Start a program of the test's own."""
    return Oracle([sys.executable, "-c", text])


def gone(pid: int) -> bool:
    """Whether a process is not there any more."""
    return not Path(f"/proc/{pid}").exists()


def inside(name: str) -> list[str]:
    """Command lines of running programs that have a name in them, the caller's aside."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in lines if name in line and not line.startswith("systemd-nspawn")]


def test_questions_and_answers_in_order() -> None:
    """Each answer belongs to its question, and closing ends the program by itself."""
    with program(ECHO) as oracle:
        first = oracle.opinion(["a", "--x=1\n2"], {"K": "ü"})
        second = oracle.opinion(["b"], {})
    assert first.complaints == (r'echo: {"argv": ["a", "--x=1\n2"], "env": {"K": "\u00fc"}}',)
    assert second.complaints == ('echo: {"argv": ["b"], "env": {}}',)
    assert second.layout is None
    assert gone(oracle.pid)


def test_no_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not answer is ended, and what it printed is told."""
    monkeypatch.setattr(client, "START_SECONDS", 0.5)
    with program(DEAF) as oracle:
        began = time.monotonic()
        with pytest.raises(OracleError, match=r"no answer within 0\.5 s; it printed at last:\nno ears"):
            oracle.opinion(["a"], {})
        assert time.monotonic() - began < 5
        with pytest.raises(OracleError):
            oracle.opinion(["b"], {})
    assert gone(oracle.pid)


def test_a_program_that_dies() -> None:
    """Its last words are in the error."""
    with (
        program(DYING) as oracle,
        pytest.raises(OracleError, match=r"ended without an answer(.|\n)*out of memory"),
    ):
        oracle.opinion(["a"], {})


def test_what_runs_in_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program there has no network but its own, changes nothing of ours, and ends with its caller."""
    looking = tmp_path / "looking.py"
    looking.write_text(LOOKING)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.5)
    with Oracle(image.command(looking)) as oracle:
        said = oracle.opinion([str(layout.SHARED_PATH), image.INSIDE], {}).complaints
        assert inside(looking.name)
        with pytest.raises(OracleError):
            oracle.opinion(["again"], {})
    assert said == ("links: lo", "written: []")
    assert inside(looking.name) == []


def test_a_command_takes_milliseconds(oracle: Oracle) -> None:
    """Thousands of cells are within reach of one run."""
    opinions = [oracle.opinion([f"org/model-{number}"], {}) for number in range(50)]
    assert sorted(opinion.seconds for opinion in opinions)[25] < 0.05


def test_a_broken_question_hurts_nobody_else(oracle: Oracle) -> None:
    """Help, a version or nothing at all is told like any other refusal, and the next answer is right."""
    told = [
        oracle.opinion(argv, {}).complaints for argv in (["--help"], ["m", "--help=all"], ["m", "--port"])
    ]
    assert [said[0].partition(" ")[0] for said in told] == ["arguments:"] * 3
    assert oracle.opinion(["m"], {}).complaints == ()
