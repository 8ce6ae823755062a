"""Runs one Pulumi program; host.py starts it and writes the job, as JSON, to its stdin.

Exit status: the program's own, or 32 when the operator has been told by the engine's log why it failed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import runpy
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

try:
    import pulumi
    import pulumi.runtime
except ModuleNotFoundError as missing:
    sys.exit(f"{sys.executable}: {missing}; install the package pulumi into this Python")

ALREADY_SAID = 32
INTERRUPTED = 130


class Job(TypedDict):
    """What host.py asks for."""

    settings: dict[str, Any]
    """Arguments of pulumi.runtime.Settings."""
    config: dict[str, str]
    secret_keys: list[str]
    program: str
    """Absolute path of a Python file, or of a folder with a __main__.py."""
    args: list[str]


def main() -> int:
    """Run the job of stdin."""
    job: Job = json.load(sys.stdin)
    pulumi.runtime.set_all_config(job["config"], job["secret_keys"])
    settings = pulumi.runtime.Settings(**job["settings"])
    pulumi.runtime.configure(settings)
    put_in_place(job)
    # A program that fails leaves futures behind that nobody awaits; their complaints would bury the reason.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(max(1, settings.parallel or 1) * 4)  # as many as the official host gives
    loop.set_default_executor(executor)
    try:
        return run(Path(job["program"]), loop)
    finally:
        executor.shutdown(wait=True)
        loop.close()


def put_in_place(job: Job) -> None:
    """Give a program the arguments and the import path that ``python PROGRAM`` would."""
    program, ours = Path(job["program"]), str(Path(__file__).resolve().parent)
    sys.argv = [str(program), *job["args"]]
    folder = program if program.is_dir() else program.parent
    # Our own folder goes: the program must not see its modules.
    sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != ours)]


def run(program: Path, loop: asyncio.AbstractEventLoop) -> int:
    """Run a program as the main module, await all its resources, and report a failure."""
    if not main_file(program).exists():
        pulumi.log.error(f"no program there: {main_file(program)}")
        return ALREADY_SAID
    try:
        loop.run_until_complete(pulumi.runtime.run_in_stack(lambda: run_module(program)))
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  the program's own, whatever it is
        pulumi.log.error(f"Program failed with an unhandled exception:\n{trace_of(error, program)}")
    else:
        return 0
    return ALREADY_SAID


def run_module(program: Path) -> None:
    """Run a program as ``__main__``."""
    runpy.run_path(str(program), run_name="__main__")


def main_file(program: Path) -> Path:
    """The file that holds the program's first line."""
    return program / "__main__.py" if program.is_dir() else program


def trace_of(error: Exception, program: Path) -> str:
    """The trace of an error from the program's first frame on; the whole one where it has no frame."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != str(main_file(program)):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame or error.__traceback__))


if __name__ == "__main__":
    sys.exit(main())
