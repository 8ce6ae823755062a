"""Hardware profiles of the recipe taxonomy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """One kind of node."""

    key: str
    """Id in recipes and in deployment.yml, for example ``gb300``."""
    title: str
    brand: str
    """As the taxonomy writes it: ``NVIDIA``, ``AMD``, ``PPU``, ``CPU``, ..."""
    generation: str
    """Key of generation-wide overrides in recipes, for example ``blackwell``."""
    gpus_per_node: int
    """Accelerators (ranks of a node's engine) in one node; the CPU build counts one."""
    vram_gb: float | None = None
    """GB of accelerator memory of the whole node, None where nobody has published it."""
    devices: tuple[str, ...] = ()
    """What the engine's container is given: CDI names or device nodes."""
    docker_flags: tuple[str, ...] = ()
    """Ours (``x-docker-flags``): for the page's ``docker run``, where the public rules know no brand."""
    scalable: bool = True
    """Whether nodes can be joined into one engine."""
    restricted: bool = False
    """Offered only by recipes that name it."""
    preview: bool = False
    """Published as not tuned and not verified; needs ``accept_preview: true``."""
