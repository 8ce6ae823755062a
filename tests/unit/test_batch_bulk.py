"""Many choices, and one that asks for as much as a choice may: what they take of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kimi_infra.config import choices

pytestmark = pytest.mark.bulk

PROGRAM = Path(sys.executable).with_name("kimi-infra")
WORKED = Path(__file__).parent / "worked"
K3 = "moonshotai/Kimi-K3"
GB300 = {"recipe": K3, "hardware": "gb300", "strategy": "multi_node_tp", "nodes": 2}
CLUSTER = {"recipe": K3, "hardware": "gb300", "strategy": "pd_cluster"}


def asked(choice: object) -> bytes:
    """A choice as a line."""
    return json.dumps(choice).encode() + b"\n"


@contextmanager
def batch() -> Iterator[subprocess.Popen[bytes]]:
    """A batch that waits for its choices; one that holds an answer back is ended."""
    with subprocess.Popen(
        [PROGRAM, "render", "--catalog", str(WORKED), "--batch", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    ) as process:
        patience = threading.Timer(120, process.kill)
        patience.daemon = True
        patience.start()
        yield process
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 0
        patience.cancel()


def answer(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Give one choice and wait for its answer."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def memory(process: subprocess.Popen[bytes], kind: str) -> int:
    """KiB of memory that a process holds (VmRSS), or the most that it ever held (VmHWM)."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(rf"{kind}:\s+(\d+) kB", status)[0])


def test_fifty_thousand_choices_take_no_more_memory_than_a_few() -> None:
    """Each answer is there before the next choice is given, and what was answered is forgotten."""
    sound = (
        asked(GB300),
        asked({**CLUSTER, "nodes": 6, "pools": {"prefill": {"nodes": 2}, "decode": {"nodes": 4}}}),
        asked({"recipe": K3}),
    )
    broken = (asked({"recipe": "x" * 500, "hardware": "y" * 3500, "nodes": 0}), b"{" * 4000 + b"\n")
    hundred = (*sound, *broken * 48, broken[0])
    held = []
    with batch() as process:
        for number in range(500):
            for line in hundred:
                expected = b'{"nodes":' if line in sound else b'{"error":'
                assert answer(process, line).startswith(expected)
            if number in {49, 499}:
                held.append(memory(process, "VmRSS"))
    assert held[1] - held[0] < 4096


def test_the_largest_choice_takes_little_memory() -> None:
    """As many nodes as there may be, each with as many words of as many bytes, fit any machine."""
    size = choices.WORDS_BYTES_MAX // choices.WORDS_MAX - len('"", ')
    words = [f"--x{number:x<{size - 3}}" for number in range(choices.WORDS_MAX)]
    pool = {"nodes": choices.COUNT_MAX}
    largest = {**CLUSTER, "nodes": choices.COUNT_MAX, "pools": {"prefill": pool, "decode": pool}}
    with batch() as process:
        found = json.loads(answer(process, asked({**largest, "advanced_args": words})))
        most = memory(process, "VmHWM")
    assert len(found["nodes"]) == 2 * choices.COUNT_MAX
    assert {tuple(word for word in node["argv"] if word in words) for node in found["nodes"]} == {
        tuple(words)
    }
    assert most < 512 << 10
