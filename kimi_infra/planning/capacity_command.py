"""What one command says of its engine's memory: parallel sizes, formats of the cache, full context."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kimi_infra.domain.capacity import Sharding
from kimi_infra.domain.launch import Flag, Launch
from kimi_infra.domain.recipe import CacheFacts
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning.footprint import UTILISATION

TENSOR = "--tensor-parallel-size"
CONTEXT = "--decode-context-parallel-size"
SHARE = "--gpu-memory-utilization"
DRAFT = "--speculative-config"
BY_HAND = ("--kv-cache-memory-bytes", "--num-gpu-blocks-override")
"""Flags that take the size of the cache out of the engine's own reckoning."""
_PIPELINE, _DATA, _EXPERT = "--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel"
_FORMAT, _LENGTH = "--kv-cache-dtype", "--max-model-len"
_SHORT = {"-tp": TENSOR, "-pp": _PIPELINE, "-dp": _DATA, "-dcp": CONTEXT, "-ep": _EXPERT, "-sc": DRAFT}
_OPEN = "<"
"""How a placeholder begins."""
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SUFFIXES |= {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""Of ``--max-model-len`` (vllm: utils/argparse_utils.py)."""
_TOKENS = re.compile(r"(\d{1,15})([KMGT]?)|(\d{1,15}(?:\.\d{1,15})?)([kmgt])", re.ASCII)
"""The same: a part of a whole goes with the decimal suffixes alone."""
_GOT_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What one command says of its engine's memory."""

    flags: Mapping[str, Flag]
    """By full name; of a repeated one the last, as vLLM takes it."""
    values: Mapping[str, str]
    """The first value of each flag, empty where it takes none."""
    features: tuple[str, ...]
    open: bool
    """Whether a word that may change the memory is still to be given."""

    @property
    def sharding(self) -> Sharding:
        """The parallel sizes; raises SpecError for one that is no number."""
        return Sharding(
            tensor=self._ranks(TENSOR),
            pipeline=self._ranks(_PIPELINE),
            data=self._ranks(_DATA),
            context=self._ranks(CONTEXT),
            expert=_EXPERT in self.flags,
        )

    @property
    def utilisation(self) -> Fraction:
        """The part of an accelerator's memory that the engine takes; raises SpecError for no such part."""
        text = self.values.get(SHARE)
        if text is None:
            return UTILISATION
        try:
            part = float(text)
        except ValueError:
            part = math.nan
        if not 0 < part <= 1:
            remedy = "give a number above 0 and up to 1: vLLM refuses any other"
            raise _refused(SHARE, "not a part of the memory", text, remedy)
        # By its shortest form: a long one may have more digits than Python turns into a whole number.
        return Fraction(repr(part))

    def context(self, facts: CacheFacts) -> int:
        """Return the tokens of a full context: the model's, or fewer where the command says so."""
        # The public rules take the value -1 for a flag of its own, which leaves none here.
        text = self.values.get(_LENGTH) or "auto"
        if text.lower() in {"auto", "-1"}:
            return facts.context
        match = _TOKENS.fullmatch(text)
        tokens = int(Fraction(match[1] or match[3]) * _SUFFIXES[match[2] or match[4] or ""]) if match else 0
        if tokens < 1:
            raise _refused(_LENGTH, "not a number of tokens", text, "give a whole number, or auto")
        return tokens

    def formats(self, facts: CacheFacts) -> tuple[str, str]:
        """Return the formats of latent and index keys: a feature's, else the flag's, else the model's own."""
        found = dict(facts.formats[name] for name in self.features if name in facts.formats)
        latent = self.stated_latent(facts) or next(iter(facts.latent_bytes))
        return latent, found.get("index", next(iter(facts.index_bytes)))

    def stated_latent(self, facts: CacheFacts) -> str | None:
        """Return the latent's format where a feature or the flag says it."""
        found = dict(facts.formats[name] for name in self.features if name in facts.formats)
        # Both spellings of FP8 take one byte; other variants of a name have a layout of their own.
        stated = re.sub(r"_e[45]m[23]$", "", self.values.get(_FORMAT, "auto"))
        return found.get("latent", None if stated == "auto" else stated)

    def _ranks(self, name: str) -> int:
        text = self.values.get(name, "1")
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
            raise _refused(name, "not a number of ranks", text, "give a whole number above 0")
        return int(text)


def read(launch: Launch, features: Sequence[str]) -> Command:
    """Return what a command says; a word that is still a placeholder says nothing."""
    flags: dict[str, Flag] = {}
    values: dict[str, str] = {}
    still_open = False
    for flag in launch.flags:
        word, _, inline = flag.name.partition("=")
        name = _SHORT.get(word, word.replace("_", "-"))
        value = inline or "".join(flag.tokens[1:2])
        if word.startswith(_OPEN) or value.startswith(_OPEN):
            still_open = still_open or name != _FORMAT  # its feature says what it will be
            continue
        flags[name], values[name] = flag, value
    return Command(flags=flags, values=values, features=tuple(features), open=still_open)


def _refused(flag: str, what: str, got: str, remedy: str) -> SpecError:
    shown = got if len(got) <= _GOT_MAX else f"{got[: _GOT_MAX - 3]}..."
    return SpecError((Fault(where=flag, what=what, got=shown, remedy=remedy),))
