"""The recipe page's docker form, as published; hosts run :mod:`kimi_infra.rendering.docker` instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kimi_infra.domain.launch import Launch, Resolution
from kimi_infra.rendering import shell

_CACHE = "~/.cache/huggingface:/root/.cache/huggingface"
"""The page's mount; the tilde stays bare, for the shell to expand."""
_RUN = ("docker", "run")
_RIGHTS = ("--privileged", "--ipc=host")
_NO_IMAGE = "<operator: image; the public rules have none for this hardware>"


def resolution(found: Resolution) -> str:
    """Return all commands of a choice, those of the nodes in docker; raises as :func:`page` does."""
    return shell.whole(found, _block)


def page(launches: Sequence[Launch]) -> str:
    """Return the docker line of each node, under the page's heading for its node.

    Raises:
        UnsafeTextError: a value holds a control character.
    """
    return shell.blocks(launches, _block)


def argv(launch: Launch) -> tuple[str, ...] | None:
    """Return a node's docker command as words, placeholders in place; None where it has no image."""
    if launch.image is None:
        return None
    mounts = (word for mount in _mounts(launch) for word in ("-v", mount))
    env = (word for entry in launch.env for word in ("-e", f"{entry.name}={entry.value}"))
    before = (*_RUN, *launch.device_flags, *_RIGHTS, *_port(launch), "-v", _CACHE)
    return (*before, *mounts, *env, launch.image, launch.model_id, *launch.args)


def _block(launch: Launch) -> Iterator[str]:
    devices = " ".join(shell.quote(word) for word in launch.device_flags)
    yield shell.command(
        (
            f"{' '.join(_RUN)} {devices}".rstrip(),
            " ".join((*_RIGHTS, *_port(launch))),
            f"-v {_CACHE}",
            *(f"-v {shell.placed(mount)}" for mount in _mounts(launch)),
            *(f"-e {shell.assignment(entry)}" for entry in launch.env),
            f"{shell.quote(launch.image or _NO_IMAGE)} {shell.quote(launch.model_id)}",
            *shell.flag_lines(launch.flags),
        )
    )


def _port(launch: Launch) -> tuple[str, str]:
    return "-p", f"{launch.port}:{launch.port}"


def _mounts(launch: Launch) -> Iterator[str]:
    """Yield the read-only mounts: of weights that are a path, and of files that variables point to."""
    if launch.model_id.startswith("/"):
        yield f"{launch.model_id}:{launch.model_id}:ro"
    for entry in launch.env:
        if entry.name.endswith("_CONFIG_PATH"):
            yield f"{entry.value}:{entry.value}:ro"
