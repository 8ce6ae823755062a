"""Asks :mod:`tests.parser.oracle`, one question and one answer at a time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

START_SECONDS = 90
"""Importing vLLM takes about 8 s with its files in memory."""
ANSWER_SECONDS = 20
"""A command takes milliseconds; its connectors are imported once."""
END_SECONDS = 10
_TAIL = 1500


class OracleError(RuntimeError):
    """The program has not answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How vLLM reads the parallel flags of one command."""

    world_size: int
    """Of one engine: tensor times pipeline times prefill-context parallel."""
    local_world_size: int
    node_rank_within_dp: int
    """Which part of an engine that spans nodes; 0 leads it."""
    data_parallel_size: int
    data_parallel_ranks: tuple[int, ...]
    own_balancing: bool
    """The API of rank 0 serves all ranks; otherwise each node has its own."""
    data_parallel_address: str
    master_address: str | None
    """None on one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """vLLM's answer to one command."""

    complaints: tuple[str, ...]
    """``LAYER: what vLLM says``."""
    layout: Layout | None
    """None where vLLM did not get that far."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Every name that the wheel knows."""

    version: str
    gpu_memory_utilization: float
    options: Mapping[str, frozenset[str] | None]
    """Option -> its choices, None where the parser takes any value."""
    names: Mapping[str, frozenset[str]]
    """Kind (``environment``, ``tool parser``, ...) -> names."""


class Oracle:
    """The running program; ends only what it has started."""

    def __init__(self, command: Sequence[str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        self._read = b""
        self._limit: float = START_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    def opinion(self, argv: Sequence[str], env: Mapping[str, str]) -> Opinion:
        """Ask about a command, from its model on."""
        answer = self._ask({"argv": list(argv), "env": dict(env)})
        layout = answer["layout"]
        if layout:
            layout = Layout(**{**layout, "data_parallel_ranks": tuple(layout["data_parallel_ranks"])})
        return Opinion(
            complaints=tuple(f"{said['layer']}: {said['text']}" for said in answer["complaints"]),
            layout=layout,
            seconds=answer["seconds"],
        )

    def vocabulary(self) -> Vocabulary:
        """Ask for all names."""
        answer = self._ask({"vocabulary": True})
        return Vocabulary(
            version=answer["version"],
            gpu_memory_utilization=answer["gpu_memory_utilization"],
            options={
                name: None if choices is None else frozenset(choices)
                for name, choices in answer["options"].items()
            },
            names={kind: frozenset(names) for kind, names in answer["names"].items()},
        )

    def close(self) -> None:
        """End the program: its input ends, and if that is not enough, it is told to go."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._end()
        self._log.close()

    def _ask(self, question: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(question)}\n".encode())
            self._process.stdin.flush()
        except OSError as error:
            raise self._failure("takes no question") from error
        answer: dict[str, Any] = json.loads(self._line())
        self._limit = ANSWER_SECONDS
        return answer

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        output, deadline = self._process.stdout.fileno(), time.monotonic() + self._limit
        while b"\n" not in self._read:
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._failure(f"no answer within {self._limit:g} s")
            more = os.read(output, 1 << 16)
            if not more:
                raise self._failure("ended without an answer")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _end(self) -> None:
        # SIGTERM first: nspawn takes what runs inside along, which it cannot when it is killed.
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _failure(self, what: str) -> OracleError:
        # A late answer must not be taken for that of the next question.
        self._end()
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _TAIL))
        return OracleError(f"{what}; it printed at last:\n{self._log.read().decode(errors='replace')}")
