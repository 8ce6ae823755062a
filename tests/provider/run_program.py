"""Run one Pulumi program as a language host would: job on stdin, the SDK's own runtime, exit code."""

from __future__ import annotations

import asyncio
import json
import runpy
import sys

import pulumi


def main() -> None:
    """Run the program of a job."""
    job = json.load(sys.stdin)
    pulumi.runtime.set_all_config(job["config"], job["secret_keys"])
    pulumi.runtime.configure(pulumi.runtime.Settings(**job["settings"]))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    def program() -> None:
        runpy.run_path(job["program"])

    loop.run_until_complete(pulumi.runtime.run_in_stack(program))


if __name__ == "__main__":
    main()
