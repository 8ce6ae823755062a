"""The spellings of one and the same option of ``vllm serve`` (vllm: FlexibleArgumentParser, arg_utils.py)."""

from __future__ import annotations

import functools
import re

_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
    "-dpl": "--data-parallel-size-local",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-dpb": "--data-parallel-backend",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpe": "--data-parallel-external-lb",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dcp": "--decode-context-parallel-size",
    "-pcp": "--prefill-context-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-r": "--node-rank",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-dc": "--diffusion-config",
    "-cc": "--compilation-config",
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
}
_NUMBERED = re.compile(r"(-[nr])[0-9].*")
"""A one-letter option takes its value without a space, too."""
_NO = "--no-"


@functools.lru_cache(4096)
def option(word: str) -> str:
    """Return an option's long name, without a value, without ``no-`` and without a key inside it."""
    name = word.partition("=")[0]
    if not name.startswith("--"):
        numbered = _NUMBERED.fullmatch(name)
        bare = numbered[1] if numbered else name.partition(".")[0]
        return _SHORT.get(bare, bare)
    name = name.partition(".")[0].replace("_", "-")
    return f"--{name.removeprefix(_NO)}" if name.startswith(_NO) else name


def negative(word: str) -> bool:
    """Tell whether a flag switches its option off."""
    return word.startswith((_NO, "--no_"))


def dotted(word: str) -> bool:
    """Tell whether a flag sets one key inside its option's JSON object."""
    return "." in word.partition("=")[0]
