"""Files of a catalogue, held against the models of the format.

A fault names the file, the path in it and, for an unknown key, the closest key that belongs there.
"""

from __future__ import annotations

import io
import pathlib
import stat
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic
from pydantic_core import ErrorDetails

from kimi_infra.config import recipe_easing as easing
from kimi_infra.config import yamlfile
from kimi_infra.config.recipe_base import AS_PUBLISHED
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names
from kimi_infra.errors import Fault

FILE_MAX = 4 << 20
"""Bytes of a file; the largest that anybody has published is a hundredth of it."""

M = TypeVar("M", bound=pydantic.BaseModel)
Warn = Callable[[Fault], None]
Steps = Sequence[str | int]


def listed(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return the YAML files below a folder by their path in it without ``.yaml``, in the order of names."""
    files = sorted(folder.rglob("*.yaml")) if folder.is_dir() else []
    return {file.relative_to(folder).as_posix().removesuffix(".yaml"): file for file in files}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file, parsed."""

    root: Place

    def read(self, model: type[M], faults: list[Fault], warn: Warn | None = None) -> M | None:
        """Return the content as a model, or as much of it as has no fault.

        Args:
            model: of the whole file.
            faults: takes every fault.
            warn: takes, one for each place, what the public page does without a word: it ignores keys
                that it does not know, does without some that we ask for, and makes something of values
                of other types. Without ``warn`` these are faults.
        """
        plain: Any = self.root.plain if warn is None else _as_the_page_reads(self.root)
        read, details = _validated(plain, model)
        if warn is not None and details:
            read, details = self._as_published(plain, details, model, warn)
        faults.extend(self._faults(details, model))
        while [detail for detail in details if easing.aside(plain, detail)]:
            read, details = _validated(plain, model)
        return read

    def _as_published(
        self, plain: Any, details: list[ErrorDetails], model: type[M], warn: Warn
    ) -> tuple[M | None, list[ErrorDetails]]:
        """Take away all that the page does without, and say each place of it once."""
        said: list[tuple[str | int, ...]] = []

        def tell(eased: Sequence[ErrorDetails]) -> None:
            for detail, fault in zip(eased, self._faults(eased, model), strict=True):
                path = _path(self.root, detail)
                if not any(path[: len(place)] == place for place in said):
                    said.append(path)
                    warn(fault)

        read, left = _validated(plain, model, AS_PUBLISHED)
        tolerated = {detail["loc"] for detail in details} - {detail["loc"] for detail in left}
        tell([detail for detail in details if detail["loc"] in tolerated])
        while left and (eased := easing.as_published(plain, left)):
            tell(eased)
            read, left = _validated(plain, model, AS_PUBLISHED)
        return read, left

    def _faults(self, details: Iterable[ErrorDetails], model: type[pydantic.BaseModel]) -> Iterator[Fault]:
        for detail in details:
            steps = detail["loc"]
            if detail["type"] == easing.UNKNOWN:
                remedy = names.closest(str(steps[-1]), _keys(model, steps[:-1]))
                yield spot(self.root, steps).fault("unknown key", remedy, got=False)
            elif detail["type"] == easing.MISSING:
                at = spot(self.root, steps[:-1]).under(steps[-1])
                yield at.fault("missing key", "give it, as docs/recipes.md says", got=False)
            else:
                yield spot(self.root, steps).fault(detail["msg"], "write it as docs/recipes.md says")


def opened(file: pathlib.Path, name: str, faults: list[Fault], warn: Warn | None = None) -> Document | None:
    """Parse a file; None when nothing of it can be understood.

    With ``warn`` keys that are no text are taken as they are written, as the public page does.
    """
    try:
        text = _text(file)
    except (OSError, UnicodeDecodeError, _UnfitError) as error:
        what = f"the file cannot be read: {_reason(error)}"
        faults.append(Fault(where=name, what=what, remedy="put a UTF-8 text file there"))
        return None
    root = yamlfile.parse(text, name, faults, warn)
    return None if root is None else Document(root=root)


class _UnfitError(Exception):
    """What is there is no file that can be read whole."""


def _text(file: pathlib.Path) -> str:
    """Return a file's text; reading a pipe or a device might never end."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise _UnfitError("not a regular file")
    with file.open("rb") as stream:
        content = stream.read(FILE_MAX + 1)
    if len(content) > FILE_MAX:
        raise _UnfitError(f"more than {FILE_MAX} bytes")
    # Line ends as in text files.
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or "unreadable").lower()
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def spot(root: Place, steps: Steps) -> Place:
    """Follow a path as far as the file goes; steps that only a key's whole spelling has are left out."""
    at = root
    for step in steps:
        below = at.under(step)
        at = below if below.line else at
    return at


def _path(root: Place, detail: ErrorDetails) -> tuple[str | int, ...]:
    """Return where in the file a fault is; what is missing is where it would be."""
    steps = detail["loc"]
    if detail["type"] == easing.MISSING:
        return (*spot(root, steps[:-1]).path, steps[-1])
    return spot(root, steps).path


def _as_the_page_reads(at: Place) -> Any:
    """Return a value without its places; the page's YAML knows no ``yes`` and ``off``: they are texts."""
    if isinstance(at.value, dict):
        return {key: _as_the_page_reads(child) for key, child in at.value.items()}
    if isinstance(at.value, list):
        return [_as_the_page_reads(child) for child in at.value]
    plain = isinstance(at.value, bool) and at.source.lower() not in {"true", "false"}
    return at.source if plain else at.value


def _validated(plain: Any, model: type[M], context: str | None = None) -> tuple[M | None, list[ErrorDetails]]:
    try:
        return model.model_validate(plain, context=context), []
    except pydantic.ValidationError as error:
        return None, error.errors(include_url=False)


def _keys(model: type[pydantic.BaseModel], steps: Steps) -> list[str]:
    """Return the keys that belong at a path, as files write them."""
    at: Any = model
    for step in steps:
        at = _below(_bare(at), step)
    return [field.alias or name for name, field in _bare(at).model_fields.items()]


def _below(at: Any, step: str | int) -> Any:
    if isinstance(at, type) and issubclass(at, pydantic.BaseModel):
        return next(it.annotation for name, it in at.model_fields.items() if step in {it.alias, name})
    return typing.get_args(at)[-1]


def _bare(annotation: Any) -> Any:
    """Take away what a type is annotated with, and that it may be None."""
    while typing.get_origin(annotation) in {typing.Annotated, typing.Union, types.UnionType}:
        annotation = typing.get_args(annotation)[0]
    return annotation
