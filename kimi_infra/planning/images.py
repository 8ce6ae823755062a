"""Which image runs on which hardware, and how the page's ``docker run`` hands over the accelerators."""

from __future__ import annotations

from collections.abc import Mapping

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.recipe import Recipe, Variant

_AMD = ("--device=/dev/kfd", "--device=/dev/dri", "--security-opt", "seccomp=unconfined")
_XPU = ("--device", "/dev/dri", "-v", "/dev/dri/by-path:/dev/dri/by-path", "--shm-size=16g")
_DEVICE_FLAGS: Mapping[str, tuple[str, ...]] = {
    "nvidia": ("--gpus", "all"),
    "amd": (*_AMD, "--group-add", "video"),
    "intel": ("--shm-size=16g",),
    "tpu": ("--privileged", "--network", "host", "-v", "/dev/shm:/dev/shm"),  # noqa: S108 - the page's own
}
_RELEASED: Mapping[str, str] = {
    "nvidia": "vllm/vllm-openai:latest",
    "amd": "vllm/vllm-openai-rocm:latest",
    "tpu": "vllm/vllm-tpu:latest",
    "intel": "vllm/vllm-openai-cpu:latest-x86_64",
}
"""What the public rules take for a recipe without a pin; the plan asks for a digest in any case."""
_NIGHTLY: Mapping[str, str] = {
    "nvidia": "vllm/vllm-openai:nightly",
    "amd": "vllm/vllm-openai-rocm:nightly",
    "tpu": "vllm/vllm-tpu:nightly",
}
"""The same where no release serves the model; the public rules leave a CPU without an image then."""
_XPU_IMAGE = "vllm/vllm-openai-xpu:latest"


def compiled(profile: HardwareProfile) -> bool:
    """Tell whether it is known how a container is given this hardware."""
    return bool(profile.docker_flags) or profile.brand in {"NVIDIA", "AMD", "CPU", "Intel", "Google"}


def brand_key(profile: HardwareProfile) -> str | None:
    """Return the key of ``docker_image``; None for a brand that only our extension knows.

    The public rules take every brand that they do not know for NVIDIA.
    """
    if profile.docker_flags:
        return None
    if profile.generation == "tpu":
        return "tpu"
    if profile.brand == "AMD":
        return "amd"
    return "intel" if profile.generation in {"cpu", "xpu"} or profile.brand == "Intel" else "nvidia"


def image(recipe: Recipe, variant: Variant, profile: HardwareProfile) -> str | None:
    """Return name and tag: the exact hardware's own, else variant's, else recipe's, else the public default.

    None where the public rules have no image for the hardware.
    """
    override = variant.hardware_overrides.get(profile.key)
    if override and override.image:
        return override.image
    key = brand_key(profile)
    if key is None:
        return None
    pinned = variant.images.get(key) or recipe.images.get(key)
    if pinned:
        return pinned
    if profile.generation == "xpu":
        return _XPU_IMAGE
    return (_NIGHTLY if recipe.nightly else _RELEASED).get(key)


def device_flags(profile: HardwareProfile) -> tuple[str, ...]:
    """Return the page's device flags, or those that our extension gives the hardware."""
    key = brand_key(profile)
    if key is None:
        return profile.docker_flags
    return _XPU if profile.generation == "xpu" else _DEVICE_FLAGS[key]
