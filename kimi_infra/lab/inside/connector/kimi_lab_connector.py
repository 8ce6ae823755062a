"""vLLM's SimpleCPUOffloadConnector for a machine without CUDA: runs in the lab's engines only.

The scheduler's side, the argument rules, the log lines and the metrics are vLLM's own.
Three things are replaced on the worker's side: streams and events (a copy is done when it returns),
pinning (every page of the tier is written once, so that free memory falls as it does when pages are
pinned) and the copies themselves (by index, between ordinary tensors).
Installed as a plug-in it takes the built-in class's place under the built-in name, so that a
rendered --kv-transfer-config is the one of GPU hosts.
"""
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002, ANN003, INP001 - signatures are vLLM's, which is not installed where this is linted

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest import mock

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import simple_cpu_offload_connector as builtin
from vllm.logger import init_logger
from vllm.v1.simple_kv_offload import worker

logger = init_logger("vllm.kimi_lab_connector")

RESERVE = int(os.environ.get("KIMI_LAB_RESERVE_BYTES", str(512 << 20)))
"""Bytes that the tier leaves free on the host."""
_STRIDE = 64 << 20
"""Bytes written between two looks at free memory: ranks of one host take theirs side by side."""


def free_bytes(meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int:
    """What can still be taken: MemAvailable, or what the control group's limit leaves of it."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) << 10
    limit, used = group / "memory.max", group / "memory.current"
    if limit.is_file() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(used.read_text()))
    return free


def require(left: int, total: int) -> None:
    """Refuse a tier whose remaining bytes do not fit any more."""
    free = free_bytes()
    if left > free - RESERVE:
        raise MemoryError(
            f"the KV offload tier of {total} bytes per rank does not fit on this host: {left} bytes are "
            f"still to be taken, {free} are available and {RESERVE} of these stay free; "
            "lower cpu_bytes_to_use_per_rank"
        )


class PastEvent:
    """An event of work that was over when it was recorded."""

    def query(self) -> bool:
        """Over."""
        return True

    def record(self, *_stream) -> None:
        """Nothing is under way."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


class NoStream:
    """Accepted where a CUDA stream is asked for."""

    def __init__(self, **_options) -> None:
        """Priorities mean nothing here."""

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """One priority."""
        return 0, 0


class IndexCopies:
    """The interface of vLLM's copy backends over plain tensors."""

    def __init__(self, engine, tier) -> None:
        self.engine, self.tier = engine, tier

    def launch_copy(self, src_blocks, dst_blocks, is_store, event_idx, events_list, wait_event=None) -> None:  # noqa: PLR0913, PLR0917
        """Copy whole blocks and report the event as past."""
        del wait_event  # the compute that it stands for ran in this thread
        source, target = (self.engine, self.tier) if is_store else (self.tier, self.engine)
        rows, places = torch.tensor(src_blocks), torch.tensor(dst_blocks)
        for name, blocks in source.items():
            target[name].index_copy_(0, places, blocks.index_select(0, rows))
        events_list.append((event_idx, PastEvent()))

    def shutdown(self) -> None:
        """Holds no thread and no handle."""


class LabOffloadWorker(worker.SimpleCPUOffloadWorker):
    """The worker's side without CUDA."""

    def register_kv_caches(self, kv_caches) -> None:
        """As vLLM's, which asks CUDA for two streams on the way."""
        if self.disk_mode:
            raise ValueError("the lab's connector has no disk tier; leave kv_offload_backend out")
        with mock.patch.object(torch.cuda, "Stream", NoStream):
            super().register_kv_caches(kv_caches)

    def _init_cpu_mode(self, unique_gpu_caches, total_bytes_per_block, device) -> None:
        del device
        total = left = self.num_cpu_blocks * total_bytes_per_block
        worker.logger.info(
            "SimpleCPUOffloadWorker [CPU]: %d tensors, %d CPU blocks (%.2f GB)",
            len(unique_gpu_caches),
            self.num_cpu_blocks,
            total / (1 << 30),
        )
        before, start = free_bytes(), time.monotonic()
        require(left, total)
        self.cpu_kv_caches = {}
        for name, blocks in unique_gpu_caches.items():
            tier = torch.empty((self.num_cpu_blocks, *blocks.shape[1:]), dtype=blocks.dtype)
            for part in tier.view(-1).view(torch.uint8).split(_STRIDE):
                require(left, total)
                part.zero_()  # an untouched page takes no memory
                left -= part.numel()
            self.cpu_kv_caches[name] = tier
        logger.info(
            "lab tier: %d bytes taken in %.1f s, available %d -> %d",
            total,
            time.monotonic() - start,
            before,
            free_bytes(),
        )
        self._backend = IndexCopies(unique_gpu_caches, self.cpu_kv_caches)

    def wait_for_save(self) -> None:
        """As vLLM's, which records an event on CUDA's current stream on the way."""
        self._store_compute_done = PastEvent()
        with mock.patch.object(torch.cuda, "current_stream", return_value=None):
            super().wait_for_save()


class SimpleCPUOffloadConnector(builtin.SimpleCPUOffloadConnector):
    """vLLM's own, with the worker above."""

    def __init__(self, vllm_config, role, kv_cache_config) -> None:
        with mock.patch.object(builtin, "SimpleCPUOffloadWorker", LabOffloadWorker):
            super().__init__(vllm_config, role, kv_cache_config)


def register() -> None:
    """Take the built-in connector's place; vLLM calls this in each of its processes."""
    name = SimpleCPUOffloadConnector.__name__
    KVConnectorFactory._registry.pop(name, None)  # noqa: SLF001 - register_connector refuses a known name
    KVConnectorFactory.register_connector(name, __name__, name)
