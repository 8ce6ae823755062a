"""Which image runs on which hardware, and how the page's ``docker run`` hands over the accelerators."""

from __future__ import annotations

from collections.abc import Mapping

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.recipe import Recipe, Variant

_AMD = ("--device=/dev/kfd", "--device=/dev/dri", "--security-opt", "seccomp=unconfined")
_DEVICE_FLAGS: Mapping[str, tuple[str, ...]] = {
    "nvidia": ("--gpus", "all"),
    "amd": (*_AMD, "--group-add", "video"),
    "intel": ("--shm-size=16g",),
}
_UNPINNED: Mapping[str, str] = {
    "nvidia": "vllm/vllm-openai:latest",
    "amd": "vllm/vllm-openai-rocm:latest",
    "intel": "vllm/vllm-openai-cpu:latest-x86_64",
}
"""What the public rules take for a recipe without a pin; the plan asks for a digest in any case."""
_NIGHTLY_BRANDS = ("nvidia", "amd")
"""The CPU build has no nightly tag; the public rules leave a recipe that needs one without an image."""

_BRAND_KEYS: Mapping[str, str] = {"NVIDIA": "nvidia", "AMD": "amd", "CPU": "intel"}
"""Brand of a profile -> key of ``docker_image`` and of the tables here.

The public format files the CPU build under ``intel``. It would take an unknown brand for NVIDIA;
``--gpus all`` is wrong on a PPU, so there is no entry for it.
"""


def compiled(profile: HardwareProfile) -> bool:
    """Tell whether image and devices of this brand are known."""
    return profile.brand in _BRAND_KEYS


def image(recipe: Recipe, variant: Variant, profile: HardwareProfile) -> str:
    """Return name and tag: the exact hardware's own, else the brand's, else the public default.

    Raises:
        KeyError: nothing is known of the brand (see :func:`compiled`).
    """
    override = variant.hardware_overrides.get(profile.key)
    if override and override.image:
        return override.image
    key = _BRAND_KEYS[profile.brand]
    default = _UNPINNED[key]
    if recipe.nightly and key in _NIGHTLY_BRANDS:
        default = default.replace(":latest", ":nightly")
    return recipe.images.get(key, default)


def device_flags(profile: HardwareProfile) -> tuple[str, ...]:
    """Return the page's device flags; raises as :func:`image` does."""
    return _DEVICE_FLAGS[_BRAND_KEYS[profile.brand]]
