"""What hosts run otherwise than the recipe page shows, and why; for people.

Both sides are compiled before they are compared here: a node's launch as the page has it, and its rank as
planned. A line is there because two values differ, or because the container's form is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kimi_infra.domain import fill_in
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import Deployment
from kimi_infra.domain.launch import IFACE_NAME, EnvEntry, Flag, Launch, Resolution
from kimi_infra.domain.plan import RankPlan

RDMA = "/dev/infiniband"
"""NIXL moves the cache between pools over RDMA; no name of a vendor's GPUs brings it along."""
_OPEN = "<"
"""How a placeholder begins; an image's name never does."""
_SERVED = "--served-model-name"
_HOST_IP = "VLLM_HOST_IP"
_BRANDS: Mapping[str, str] = {
    "NVIDIA": "CDI names survive a daemon-reload and open nothing else",
    "AMD": "nothing else is opened, and the container's root needs no group to open the device nodes",
}
_NODES = "the device nodes are given each by its name, and nothing else is opened"
_NO_DEVICE = "this hardware needs no device, and --ipc host brings the host's own shared memory"
_FLAGS: Mapping[str, str] = {
    "--master-port": "the port of the plan, the same for all ranks; the page leaves it to vLLM",
    "--shutdown-timeout": "without it a stop drops open requests without an answer",
    "--port": "the port of deployment.yml's api; the page leaves it to vLLM",
}
"""Why the plan writes a flag, where the flag's own provenance does not say it well."""
_FORM = (
    "the image by its ID, --pull never: what was verified is what runs",
    "--entrypoint vllm and the word serve: not every image's own entrypoint takes the page's words",
    "--name, --rm and --init: a unit stops its container by name, leaves none behind and no zombie in it",
    "--log-driver none: the journal has the engine's lines; docker's own copy grows without a bound",
)
"""The container's form, which is the same for every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """One node on both sides."""

    page: Launch
    host: RankPlan

    @property
    def flags(self) -> Iterator[tuple[Flag, Flag | None]]:
        """The host's flags that are not the page's, each with the page's own of that name."""
        page = {flag.name: flag for flag in self.page.flags}
        for flag in self.host.flags:
            theirs = page.get(flag.name)
            if theirs is None or not _filled_in(theirs.tokens, flag.tokens):
                yield flag, theirs

    @property
    def env(self) -> Iterator[tuple[EnvEntry, EnvEntry | None]]:
        """The same of variables."""
        page = {entry.name: entry for entry in self.page.env}
        for entry in self.host.env:
            theirs = page.get(entry.name)
            if theirs is None or not _filled_in((theirs.value,), (entry.value,)):
                yield entry, theirs


def listed(
    deployment: Deployment, profile: HardwareProfile, resolution: Resolution, ranks: Sequence[RankPlan]
) -> tuple[str, ...]:
    """Return each difference with its reason.

    Args:
        deployment: What the operator wrote.
        profile: The hardware of the hosts.
        resolution: The page's side.
        ranks: The hosts' side, one a launch and in the same order.
    """
    nodes = [_Compared(page=page, host=host) for page, host in zip(resolution.launches, ranks, strict=True)]
    lines = [
        *_images(deployment, profile, resolution),
        *_FORM,
        _network(nodes),
        *(line for node in nodes for line in _rights(profile, node)),
        *(line for node in nodes for line in _volumes(deployment, node)),
        *(line for node in nodes for line in _environment(node, alone=len(nodes) == 1)),
        *(line for node in nodes for line in _flags(deployment, node)),
    ]
    if resolution.router:
        lines.append(
            "the router on the engine address of the first prefill host, at the port of deployment.yml's api:"
            " the page leaves both open"
        )
    return tuple(dict.fromkeys(lines))


def image_notes(deployment: Deployment, profile: HardwareProfile, resolution: Resolution) -> tuple[str, ...]:
    """Return what has to stand out: on hardware in preview another image than the recipe's for it."""
    own = deployment.image.name
    if not profile.preview or fill_in.is_open(own):
        return ()
    named = dict.fromkeys(launch.image for launch in resolution.launches)
    return tuple(
        f"{profile.title} is served by an image of its own, {page}; deployment.yml names {own}"
        for page in named
        if page is not None and not page.startswith(_OPEN) and not _same(own, page)
    )


def _images(deployment: Deployment, profile: HardwareProfile, resolution: Resolution) -> Iterator[str]:
    own = deployment.image.name
    if fill_in.is_open(own):
        return
    for page in dict.fromkeys(launch.image for launch in resolution.launches):
        if page is None:
            yield f"image {own}: deployment.yml names it, the recipe has none for {profile.title}"
        elif page.startswith(_OPEN):
            yield f"image {own}: deployment.yml names it, the recipe's for {profile.title} is not published"
        elif page != own:
            why = "deployment.yml names it"
            why += ", the same name and tag in another registry" if _same(own, page) else ""
            yield f"image {own} instead of {page}, the recipe's for {profile.title}: {why}"


def _same(own: str, page: str) -> bool:
    """Tell whether an image is the recipe's by name and tag, from whatever registry."""
    return own == page or own.endswith(f"/{page}")


def _network(nodes: Sequence[_Compared]) -> str:
    ports = dict.fromkeys(f"-p {node.page.port}:{node.page.port}" for node in nodes)
    why = (
        "ranks also meet on ephemeral ports, in both directions"
        if len(nodes) > 1
        else "the API listens at the host's own port, with no proxy of docker's in between"
    )
    return f"--network host instead of {' and '.join(ports)}: {why}"


def _rights(profile: HardwareProfile, node: _Compared) -> Iterator[str]:
    container, page = node.host.container, node.page.device_flags
    own = [
        *(f"--device {device}" for device in container.devices if device != RDMA),
        *(f"--cap-add {capability}" for capability in container.capabilities),
        *(f"--security-opt {option}" for option in container.security_options),
    ]
    # Two ways of writing an option, with a blank and with an equals sign, are one.
    theirs = [*_options(page), "--privileged"]
    added = " ".join(option for option in own if option not in theirs)
    dropped = " ".join(option for option in theirs if option not in own)
    why = _BRANDS.get(profile.brand, _NODES) if container.devices else _NO_DEVICE
    yield f"{added} instead of {dropped}: {why}" if added else f"no {dropped}: {why}"
    if RDMA in container.devices:
        yield f"--device {RDMA}: NIXL moves the cache between the pools over RDMA"
    limits = " ".join(f"--ulimit {limit}" for limit in container.ulimits)
    if limits:
        yield f"{limits}: RDMA and pinned memory need more than docker's own limits"


def _options(words: Sequence[str]) -> Iterator[str]:
    """Yield options, each with its value behind a blank."""
    found: list[str] = []
    for word in words:
        if word.startswith("-") or not found:
            found.append(word.replace("=", " ", 1))
        else:
            found[-1] = f"{found[-1]} {word}"
    yield from found


def _volumes(deployment: Deployment, node: _Compared) -> Iterator[str]:
    weights, model = deployment.model_path, node.page.model_id
    if weights != model:
        yield (
            f"{weights}, read-only, and {_SERVED} {model} instead of a download into the container:"
            " what was checked is what is loaded, and the page's client call works"
        )
    for volume in node.host.container.volumes:
        if not volume.read_only:
            yield (
                f"{volume.source} at {volume.target} instead of ~/.cache/huggingface:"
                " compile and graph caches outlive the container, a restart does not compile again"
            )
        elif volume.source != weights:
            yield f"{volume.source}, read-only: a mount of deployment.yml"


def _environment(node: _Compared, *, alone: bool) -> Iterator[str]:
    secrets = node.host.secret_names
    hidden = f", {' and '.join(secrets)} in one of mode 0600" if secrets else ""
    instead = " instead of -e" if node.page.env else ""
    yield f"--env-file{instead}{hidden}: a flag would show values in ps"
    devices = [entry.name for entry in node.page.env if IFACE_NAME in entry.value]
    if devices:
        yield f"{' and '.join(devices)} with each host's own device: names differ between hosts"
    for entry, theirs in node.env:
        if entry.name == _HOST_IP:
            who = "the engine takes" if alone else "two hosts advertise"
            yield f"{_HOST_IP} by engine_address: without it {who} the address of the default route"
        elif theirs is None:
            yield f"{entry.name}={entry.value}, which the recipe does not set: {entry.provenance}"
        else:
            yield f"{entry.name}={entry.value} instead of {theirs.value}: {entry.provenance}"


def _flags(deployment: Deployment, node: _Compared) -> Iterator[str]:
    for flag, theirs in node.flags:
        if flag.name == _SERVED and deployment.model_path != node.page.model_id:
            continue
        instead = f" instead of {' '.join(theirs.tokens)}" if theirs else ""
        yield f"{' '.join(flag.tokens)}{instead}: {_FLAGS.get(flag.name, flag.vouched)}"


def _filled_in(page: Sequence[str], own: Sequence[str]) -> bool:
    """Tell whether words are the page's, but for the placeholders that a reader of the page fills in too."""
    same = (ours == theirs or "$" in theirs for theirs, ours in zip(page, own, strict=False))
    return len(page) == len(own) and all(same)
