"""What all models of the recipe format share: strictness, and the spellings that several keys allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError, PydanticKnownError

from kimi_infra.domain.provenance import Origin

T = TypeVar("T")

AS_PUBLISHED = "as published"
"""Context of a validation that takes sizes which are none, as the public page does."""


class Model(BaseModel):
    """Base of all: strict, closed, frozen.

    A model is built when it is first needed, as part of the one that holds it: start-up pays for one
    file's model instead of for all.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


def vouched(text: str) -> str:
    """Hold a text to ``ORIGIN`` or ``ORIGIN: where in it``."""
    allowed = [origin.value for origin in Origin]
    if text.partition(":")[0] not in allowed:
        raise PydanticCustomError(
            "origin", "the origin is none of {allowed}", {"allowed": ", ".join(allowed)}
        )
    return text


def either(short: type, wrap: Callable[[Any], Any], whole: type, what: str) -> BeforeValidator:
    """Take a key's short spelling for the whole one.

    Args:
        short: type of the short spelling.
        wrap: makes the whole spelling of it.
        whole: type of the whole spelling.
        what: both, for people.
    """

    def spelled(value: object) -> object:
        if type(value) is short:
            return wrap(value)
        if isinstance(value, whole):
            return value
        raise PydanticCustomError("spelling", "Input should be {what}", {"what": what})

    return BeforeValidator(spelled)


def _text(value: object) -> object:
    if type(value) is int:
        return str(value)
    if type(value) is float:  # as the public page writes it, which has one type of numbers
        return str(int(value)) if value.is_integer() else str(value)
    return value


def _size(value: int, info: ValidationInfo) -> int:
    if value <= 0 and info.context != AS_PUBLISHED:
        raise PydanticKnownError("greater_than", {"gt": 0})
    return value


def _gigabytes(value: float, info: ValidationInfo) -> float:
    if value < 0 and info.context != AS_PUBLISHED:
        raise PydanticKnownError("greater_than_equal", {"ge": 0})
    return int(value) if value.is_integer() else value


def _one(value: object) -> object:
    return value if isinstance(value, list) else [value]


Text = Annotated[str, BeforeValidator(_text)]
"""Text that files also write as a number."""

Words = Annotated[list[str], Field(default_factory=list)]
"""Any number of words; none where the key is absent."""

Named = Annotated[dict[str, T], Field(default_factory=dict)]
"""Things by name, in the order of the file; none where the key is absent."""

OneOrMore = Annotated[list[Text], BeforeValidator(_one), Field(min_length=1)]
"""One word, or a list of them."""

Env = Named[Text]
"""Environment; the public files write some values as numbers."""

Count = Annotated[int, Field(gt=0)]

Size = Annotated[int, AfterValidator(_size)]
"""A count; read as published also one that is not above 0, which decides nothing."""

Gigabytes = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_gigabytes)]
"""Memory; a whole number stays one."""

_EVERYWHERE = either(
    int, lambda count: {"default": count}, dict, "a whole number, or a map of hardware to them"
)

HardwareCounts = Annotated[Named[Count], _EVERYWHERE]
"""A hardware map of numbers; a plain number holds everywhere."""

HardwareSizes = Annotated[Named[Size], _EVERYWHERE]
"""The same of sizes."""

Vouchers = Named[Annotated[str, AfterValidator(vouched)]]
"""``x-provenance``: a dotted path in the file, or ``default``, to who vouches for it."""

PageText = Any
"""Read by the public page only; never part of a command."""
