"""The process that the engine starts: ``pulumi-resource-kimi [FLAGS] ENGINE_ADDRESS``."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

# gRPC would stop all its threads for each child process; ours go through asyncio, which needs none of that.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import grpc.aio
from pulumi.runtime.proto import engine_pb2_grpc, provider_pb2_grpc

from kimi_infra.cloud.context import Context
from kimi_infra.cloud.provider import Provider

_OPTIONS = (("grpc.max_receive_message_length", 400 << 20), ("grpc.max_send_message_length", 400 << 20))
"""The engine's own limit (pulumi, sdk/go/common/util/rpcutil)."""
_STOP_SECONDS = 4.0
"""For calls to answer; the engine kills after five."""
_PARENT_SECONDS = 1.0


async def serve(engine: str, context: Context) -> None:
    """Serve until the engine asks for the end, or is gone."""
    async with grpc.aio.insecure_channel(engine, options=_OPTIONS) as channel:
        provider = Provider(engine_pb2_grpc.EngineStub(channel), context)
        server = grpc.aio.server(options=_OPTIONS)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await _until_the_end()
        provider.stop()
        await server.stop(_STOP_SECONDS)


async def _until_the_end() -> None:
    """Wait for a signal, or for the engine's death, which sends none."""
    stop, parent = asyncio.Event(), os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not stop.is_set() and os.getppid() == parent:
        try:
            await asyncio.wait_for(stop.wait(), _PARENT_SECONDS)
        except TimeoutError:
            continue


def main(arguments: Sequence[str]) -> None:
    """Parse and serve."""
    # The engine's own flags may come first (--tracing URL, -v=9): the address is the last word.
    parser = argparse.ArgumentParser(prog="pulumi-resource-kimi", allow_abbrev=False)
    parser.add_argument("--tree", type=Path, help="folder of playbooks and roles; this checkout's by default")
    options, rest = parser.parse_known_args(arguments)
    context = Context.take(os.environ, options.tree and options.tree.resolve())
    asyncio.run(serve(rest[-1], context))


if __name__ == "__main__":
    main(sys.argv[1:])
