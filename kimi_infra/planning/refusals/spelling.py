"""The spellings of one and the same option of ``vllm serve`` (vllm: FlexibleArgumentParser, arg_utils.py)."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection

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
    "-O": "--optimization-level",
}
_GLUED = re.compile(r"(-[nr](?=[0-9])|-O(?=.))=?(.*)")
"""A one-letter option takes its value without a space, too."""
_NO = "--no-"
_BEGINNINGS = frozenset(
    {
        *("--chat-template", "--config", "--data-parallel-size", "--grpc", "--kv-cache-dtype"),
        *("--kv-cache-metrics", "--long-prefill-token-threshold", "--model", "--numa-bind"),
        *("--quantization", "--reasoning-parser", "--tokenizer", "--watermark", "-dc", "-dp"),
    }
)
"""Options that are whole although another one begins like them (vllm: make_arg_parser of 0.32.0)."""


@functools.lru_cache(4096)
def option(word: str) -> str:
    """Return an option's long name, without a value, without ``no-`` and without a key inside it."""
    name = word.partition("=")[0]
    if not name.startswith("--"):
        glued = _GLUED.fullmatch(name)
        bare = glued[1] if glued else name.partition(".")[0]
        return _SHORT.get(bare, bare)
    name = name.partition(".")[0].replace("_", "-")
    return f"--{name.removeprefix(_NO)}" if name.startswith(_NO) else name


def cut(word: str, known: Collection[str]) -> str | None:
    """Return the known option of which a flag is a mere beginning; a known family ends in a dash.

    vLLM takes such a beginning for the whole option where no other one begins like it.
    """
    name = option(word)
    if name in known or name in _BEGINNINGS or not word.strip("-"):
        return None
    if name.startswith("--"):
        return next(
            (it for it in known if any(whole.startswith(name) for whole in (it, _opposite(it)))), None
        )
    for short, whole in _SHORT.items():
        if short.startswith(name) and any(_is(whole, it) for it in known):
            return short
    return None


def beginnings(known: Collection[str]) -> frozenset[str]:
    """Return everything that one of the options, or a short one, begins with and is not all of."""
    shorts = (short for short, whole in _SHORT.items() if any(_is(whole, it) for it in known))
    wholes = (whole for it in known for whole in (it, _opposite(it)))
    return frozenset(whole[:end] for whole in (*wholes, *shorts) for end in range(1, len(whole)))


def _is(name: str, known: str) -> bool:
    return name == known or (known.endswith("-") and name.startswith(known))


def _opposite(name: str) -> str:
    return f"{_NO}{name.removeprefix('--')}"


def negative(word: str) -> bool:
    """Tell whether a flag switches its option off."""
    return word.startswith((_NO, "--no_"))


def dotted(word: str) -> bool:
    """Tell whether a flag sets one key inside its option's JSON object."""
    return bool(key(word))


def key(word: str) -> str:
    """Return the key inside its option's JSON object that a flag sets, empty where it sets the whole."""
    return word.partition("=")[0].partition(".")[2]


def attached(word: str) -> str:
    """Return the value that stands in the same word as its flag, empty where none does."""
    glued = None if word.startswith("--") else _GLUED.fullmatch(word)
    return glued[2] if glued else word.partition("=")[2]
