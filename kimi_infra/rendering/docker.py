"""The ``docker run`` that a host's unit executes, as a tuple of strings."""

from __future__ import annotations

from kimi_infra.domain.plan import Container, RankPlan, Volume

DOCKER = "/usr/bin/docker"


def run_argv(rank: RankPlan) -> tuple[str, ...]:
    """Return the whole command of a rank's container, in the foreground and without pulling.

    What the engine prints goes to the attached client, and so to the journal, under any log driver
    (docker docs: "none"); the default one would write a second copy without a bound.
    The entrypoint is stated: not every image's own one understands ``--headless``.
    """
    container = rank.container
    return (
        *(DOCKER, "run", "--rm", "--init", "--pull", "never", "--log-driver", "none"),
        *("--name", container.name),
        *("--network", "host", "--ipc", "host"),
        *_options(container),
        *("--entrypoint", "vllm", container.image_id),
        "serve",
        *rank.serve_args,
    )


def _options(container: Container) -> tuple[str, ...]:
    pairs = (
        *(("--device", device) for device in container.devices),
        *(("--ulimit", limit) for limit in container.ulimits),
        *(("--cap-add", capability) for capability in container.capabilities),
        *(("--security-opt", option) for option in container.security_options),
        *(("--volume", _volume(volume)) for volume in container.volumes),
        *(("--env-file", path) for path in container.env_files),
    )
    return tuple(word for pair in pairs for word in pair)


def _volume(volume: Volume) -> str:
    suffix = ":ro" if volume.read_only else ""
    return f"{volume.source}:{volume.target}{suffix}"
