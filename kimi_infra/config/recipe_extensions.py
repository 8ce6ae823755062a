"""Our extensions of the recipe format (docs/recipes.md): all keys that begin with ``x-``."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from kimi_infra.config.recipe_base import Count, Model, Named, OneOrMore, Words, either, vouched

Pool = Literal["prefill", "decode"]
Pools = Annotated[list[Pool], Field(default_factory=list)]
PoolModes = Annotated[dict[Pool, list[Literal["tp", "tep", "dep"]]], Field(default_factory=dict)]


class Layout(Model):
    """``x-layouts.<strategy>.<hardware>``."""

    nodes: Annotated[list[Count], Field(min_length=1)] | None = None
    pools: dict[Pool, Count] | None = None
    parallelism: Literal["tp_pp", "tp_dp"] | None = None
    note: str | None = None
    unless_preset: str | None = None

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if (self.nodes is None) == (self.pools is None):
            raise PydanticCustomError("placement", "a placement has either nodes or pools")
        if self.pools is not None and len(self.pools) != 2:
            raise PydanticCustomError("pools", "a cluster has a prefill and a decode pool")
        return self


Layouts = dict[
    str,
    dict[
        str,
        Annotated[
            Layout, either(list, lambda nodes: {"nodes": nodes}, dict, "a list of node counts, or a mapping")
        ],
    ],
]


class Value(Model):
    """``x-values.<name>``."""

    what: str
    find: str
    kind: Literal["text", "integer", "args"] = "text"
    origin: Literal["unknown", "measured"] = "unknown"


Values = Annotated[
    dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")], Value], Field(default_factory=dict)
]


_FLAG = r"--[a-z0-9]+(-[a-z0-9]+)*(\.[A-Za-z0-9_]+)*(=.+|>[0-9]+)?"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*=.*"
_SETTING = re.compile(f"{_FLAG}|{_VARIABLE}")


def _settings(words: list[str]) -> list[str]:
    """Hold the words of ``flags`` to what can be found in a command."""
    for word in words:
        if not _SETTING.fullmatch(word):
            what = "{word} is none of --flag, --flag=value, --flag.key=value, --flag.key>N and NAME=value"
            raise PydanticCustomError("setting", what, {"word": word})
    return words


class Terms(Model):
    """One side of ``x-rules``."""

    hardware: OneOrMore | None = None
    brand: OneOrMore | None = None
    strategy: OneOrMore | None = None
    variant: OneOrMore | None = None
    preset: OneOrMore | None = None
    kv_offload: OneOrMore | None = None
    dcp: OneOrMore | None = None
    features: OneOrMore | None = None
    flags: Annotated[OneOrMore, AfterValidator(_settings)] | None = None

    @property
    def meets(self) -> dict[str, tuple[str, ...]]:
        """Dimension -> words, as far as the file names them."""
        words = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: tuple(given) for name, given in words.items() if given is not None}

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.meets:
            raise PydanticCustomError("terms", "terms name at least one part of a choice")
        return self


class Rule(Model):
    """``x-rules[]``."""

    when: Terms
    needs: Terms | None = None
    excludes: Terms | None = None
    because: Annotated[str, AfterValidator(vouched)]

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.needs is None) == (self.excludes is None):
            raise PydanticCustomError("rule", "a rule either needs or excludes something")
        return self


Rules = Annotated[list[Rule], Field(default_factory=list)]


class Reservation(Model):
    """``x-notes[]``."""

    when: Terms
    note: str

    @model_validator(mode="after")
    def _before_compiling(self) -> Self:
        if self.when.flags is not None:
            raise PydanticCustomError("note", "a note does not depend on flags, a rule may")
        return self


Reservations = Annotated[list[Reservation], Field(default_factory=list)]


class Preset(Model):
    """``x-presets.<name>``."""

    title: str
    hardware: str
    strategy: str
    nodes: Count
    features: Words
    dcp: Count | None = None
    kv_offload: str | None = None
    args: Words


class ContextParallel(Model):
    """``x-dcp``."""

    sizes: Annotated[list[Count], Field(min_length=1)]
    args: Words


class Format(Model):
    """``x-cache.formats.<feature>``."""

    latent: str | None = None
    index: str | None = None

    @property
    def switched(self) -> tuple[str, str]:
        """What the feature switches, and to which format."""
        return ("latent", self.latent) if self.latent is not None else ("index", self.index or "")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.latent is None) == (self.index is None):
            raise PydanticCustomError("format", "a feature switches either latent or index")
        return self


class Cache(Model):
    """``x-cache``."""

    layers: Count
    latent_bytes: Annotated[dict[str, Count], Field(min_length=1)]
    index_bytes: Annotated[dict[str, Count], Field(min_length=1)]
    formats: Named[Format]
    state_layers: Annotated[int, Field(ge=0)]
    state_bytes: Count | None = None
    context: Count
    weights_bytes: Count
