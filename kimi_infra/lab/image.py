"""The serving image: one layer of system libraries, kept as a registry's storage."""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from kimi_infra.lab import layout, run, services
from kimi_infra.lab.filesystems import Cached, key

REPOSITORY = "vllm/vllm-openai"
TAG = "lab"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = f"{layout.SHARED_PATH}/runtime/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the image is called, whoever holds it."""

    digest: str
    """Of the manifest: what a reference pins."""
    image_id: str
    """Of the configuration: what docker calls the image ID."""


def cached(cache: Path, root: Cached) -> Cached:
    """The registry's storage with the image in it, and ``image.json``."""
    return Cached(path=cache / f"registry-{key(root.path.name, _PATH)}", title="the serving image")


def build(part: Path, root: Path) -> None:
    """Write the image as an OCI layout and let skopeo put it into a registry's storage."""
    layout_folder = part / "oci"
    identity = write_oci(layout_folder, root / "layer.tar")
    with services.temporary_registry(part / "storage") as address:
        run.output(
            [
                "skopeo",
                "--insecure-policy",
                "copy",
                "--quiet",
                "--preserve-digests",
                "--dest-tls-verify=false",
                f"oci:{layout_folder}:{TAG}",
                f"docker://{address}/{REPOSITORY}:{TAG}",
            ]
        )
    shutil.rmtree(layout_folder)
    (part / "image.json").write_text(
        json.dumps({"digest": identity.digest, "image_id": identity.image_id}), encoding="ascii"
    )


def identity(folder: Path) -> Identity:
    """Read back what `build` has noted."""
    data = json.loads((folder / "image.json").read_text(encoding="ascii"))
    return Identity(digest=data["digest"], image_id=data["image_id"])


def write_oci(folder: Path, layer: Path) -> Identity:
    """An OCI image layout with one compressed layer; the same layer gives the same digests."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    packed = blobs / "layer"
    # No name and no time in the header, or each build has another digest.
    with (
        layer.open("rb") as source,
        packed.open("wb") as target,
        gzip.GzipFile(filename="", mode="wb", compresslevel=4, fileobj=target, mtime=0) as zipped,
    ):
        shutil.copyfileobj(source, zipped, 1 << 20)
    layer_digest = _digest_of(packed)
    packed.rename(blobs / layer_digest)
    config = _blob(
        blobs,
        {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Env": [f"PATH={_PATH}"], "Entrypoint": ["vllm", "serve"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest_of(layer)}"]},
            "history": [{"created_by": "kimi-infra lab: Debian's system libraries for vLLM's CPU build"}],
        },
    )
    manifest = _blob(
        blobs,
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor(blobs / config, "application/vnd.oci.image.config.v1+json"),
            "layers": [
                _descriptor(blobs / layer_digest, "application/vnd.oci.image.layer.v1.tar+gzip"),
            ],
        },
    )
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                **_descriptor(blobs / manifest, "application/vnd.oci.image.manifest.v1+json"),
                "annotations": {"org.opencontainers.image.ref.name": TAG},
            }
        ],
    }
    (folder / "index.json").write_text(json.dumps(index), encoding="ascii")
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', encoding="ascii")
    return Identity(digest=f"sha256:{manifest}", image_id=f"sha256:{config}")


def _blob(blobs: Path, value: object) -> str:
    content = json.dumps(value, sort_keys=True).encode()
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return digest


def _descriptor(path: Path, media_type: str) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{path.name}", "size": path.stat().st_size}


def _digest_of(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
