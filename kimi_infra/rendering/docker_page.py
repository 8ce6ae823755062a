"""The recipe page's docker form, as published; hosts run :mod:`kimi_infra.rendering.docker` instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kimi_infra.domain.launch import Launch
from kimi_infra.rendering import shell

_PORT = 8000
"""vLLM's default, which the page publishes on every node."""
_CACHE = "~/.cache/huggingface:/root/.cache/huggingface"
"""The page's mount; the tilde stays bare, for the shell to expand."""


def page(launches: Sequence[Launch]) -> str:
    """Return the docker line of each node, under the page's heading for its node.

    Raises:
        UnsafeTextError: a value holds a control character.
    """
    return shell.blocks(launches, _block)


def _block(launch: Launch) -> Iterator[str]:
    devices = " ".join(shell.quote(word) for word in launch.device_flags)
    yield shell.command(
        (
            f"docker run {devices}".rstrip(),
            f"--privileged --ipc=host -p {_PORT}:{_PORT}",
            f"-v {_CACHE}",
            *(f"-e {shell.assignment(entry)}" for entry in launch.env),
            f"{shell.quote(launch.image)} {shell.quote(launch.model_id)}",
            *shell.flag_lines(launch.flags),
        )
    )
