"""Files of a catalogue, held against the models of the format.

A fault names the file, the path in it and, for an unknown key, the closest key that belongs there.
"""

from __future__ import annotations

import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic
from pydantic_core import ErrorDetails

from kimi_infra.config import recipe_easing as easing
from kimi_infra.config import yamlfile
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names
from kimi_infra.errors import Fault

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
            warn: takes what the public page does without a word: it ignores keys that it does not know
                and does without some that we ask for. Without ``warn`` these are faults.
        """
        plain: Any = self.root.plain
        read, details = _validated(plain, model)
        while warn is not None and (
            eased := [detail for detail in details if easing.as_published(plain, detail)]
        ):
            for fault in self._faults(eased, model):
                warn(fault)
            read, details = _validated(plain, model)
        faults.extend(self._faults(details, model))
        while [detail for detail in details if easing.aside(plain, detail)]:
            read, details = _validated(plain, model)
        return read

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


def opened(file: pathlib.Path, name: str, faults: list[Fault]) -> Document | None:
    """Parse a file; None when nothing of it can be understood."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "unreadable").lower() if isinstance(error, OSError) else "not UTF-8"
        what = f"the file cannot be read: {reason}"
        faults.append(Fault(where=name, what=what, remedy="put a UTF-8 text file there"))
        return None
    root = yamlfile.parse(text, name, faults)
    return None if root is None else Document(root=root)


def spot(root: Place, steps: Steps) -> Place:
    """Follow a path as far as the file goes; steps that only a key's whole spelling has are left out."""
    at = root
    for step in steps:
        below = at.under(step)
        at = below if below.line else at
    return at


def _validated(plain: Any, model: type[M]) -> tuple[M | None, list[ErrorDetails]]:
    try:
        return model.model_validate(plain), []
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
