"""Places of a file → a pydantic model, each field by itself, so that one fault hides no other."""

from __future__ import annotations

import functools
import inspect
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kimi_infra.config.values import REFUSED, Ask, fill_in
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names
from kimi_infra.domain.inventory import SecretRef
from kimi_infra.errors import Fault, Need

M = TypeVar("M", bound=BaseModel)

_TYPE_FAULTS = {
    "string_type": ("text is expected", "write one text, in quotes if it looks like a number"),
    "int_type": ("a whole number is expected", "write digits without quotes"),
    "bool_type": ("true or false is expected", "write true or false without quotes"),
    "dict_type": ("a mapping is expected", "write {name: value} or one name: value a line"),
    "list_type": ("a list is expected", "write [one, two] or one item a line after a dash"),
}


@dataclass(slots=True)
class Findings:
    """What reading has found so far."""

    faults: list[Fault] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)


def read(model: type[M], at: Place, found: Findings) -> M | None:
    """Return the model at a place, None unless a mapping stands there.

    A field with a fault, and a required one that is missing, is None in the result
    whatever its type says; nothing but checks may read a result with faults.
    """
    if not isinstance(at.value, dict):
        keys = ", ".join(model.model_fields)
        remedy = f"write key: value pairs; keys are {keys}"
        found.faults.append(at.fault("a mapping is expected", remedy, got=not _holds_secret(model)))
        return None
    found.faults.extend(_unknown(model, key, at) for key in at.value if key not in model.model_fields)
    return fields(model, at, found)


def _unknown(model: type[BaseModel], key: str, at: Place) -> Fault:
    remedy = names.closest(key, model.model_fields)
    if at.under(key).value is None and _holds_secret(model):
        # {sk-...} is YAML for a key without a value: the key may be the secret.
        return at.fault("an unknown key without a value", remedy, got=False)
    return at.under(key).fault("unknown key", remedy, got=False)


def fields(model: type[M], at: Place, found: Findings) -> M:
    """Return the model from the known keys of a mapping; other keys are the caller's business."""
    values: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        values[name] = _field(model, name, at.under(name), found)
        _ask(info, at.under(name), values, found)
    return model.model_construct(**values)


def _field(model: type[BaseModel], name: str, place: Place, found: Findings) -> Any:
    info = model.model_fields[name]
    if place.value is None and not info.is_required():
        nested = _nested(info)
        return fields(nested, place, found) if nested else info.get_default(call_default_factory=True)
    if place.value is None:
        what = "the key is there without a value" if place.line else "missing key"
        found.faults.append(place.fault(what, f"give it: {_lowered(info)}", got=False))
        return None
    nested = _nested(info)
    if nested and typing.get_origin(info.annotation) is list:
        return _entries(nested, place, found)
    return read(nested, place, found) if nested else _leaf(model, name, place, found)


def _entries(model: type[M], place: Place, found: Findings) -> list[M | None]:
    if not isinstance(place.value, list) or not place.value:
        what, remedy = "a list of entries is expected", "write each entry after a dash"
        found.faults.append(place.fault(what, remedy, got=not _holds_secret(model)))
        return []
    return [read(model, item, found) for item in place.value]


def _leaf(model: type[BaseModel], name: str, place: Place, found: Findings) -> Any:
    try:
        value = _adapter(model, name).validate_python(place.plain, strict=True)
    except ValidationError as error:
        found.faults.extend(_fault(detail, place) for detail in error.errors(include_url=False))
        return None
    asks = any(isinstance(item, Ask) for item in model.model_fields[name].metadata)
    for step, text in enumerate(value) if isinstance(value, list) else ((None, value),):
        wanted = fill_in(text) if isinstance(text, str) and not asks else None
        if wanted:
            where = place.where if step is None else place.under(step).where
            found.needs.append(Need(where=where, what=wanted))
    return value


def _ask(info: FieldInfo, place: Place, values: dict[str, Any], found: Findings) -> None:
    absent = place.value is None or (isinstance(place.value, str) and fill_in(place.value))
    for item in info.metadata:
        if isinstance(item, Ask) and absent:
            name = values.get("name") or ""
            what = item.text.format(name="NAME" if not name or fill_in(name) else name)
            found.needs.append(Need(where=place.where, what=what))


def _fault(detail: ErrorDetails, place: Place) -> Fault:
    at = place.under(*detail["loc"])
    if detail["type"] == REFUSED:
        told = detail["ctx"]
        return at.fault(told["what"], told["remedy"], got=not told["secret"])
    what, remedy = _TYPE_FAULTS[detail["type"]]
    return at.fault(what, remedy)


@functools.cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(model.model_fields[name].rebuild_annotation())


def _nested(info: FieldInfo) -> type[BaseModel] | None:
    annotation: Any = info.annotation
    inner = typing.get_args(annotation)[0] if typing.get_origin(annotation) is list else annotation
    return inner if inspect.isclass(inner) and issubclass(inner, BaseModel) else None


@functools.cache
def _holds_secret(model: type[BaseModel]) -> bool:
    """Tell whether a secret belongs somewhere below: what stands there instead may be one."""
    infos = model.model_fields.values()
    nested = (each for info in infos if (each := _nested(info)))
    return any(_mentions(info.annotation, SecretRef) for info in infos) or any(map(_holds_secret, nested))


def _mentions(annotation: Any, wanted: type) -> bool:
    return annotation is wanted or any(_mentions(each, wanted) for each in typing.get_args(annotation))


def _lowered(info: FieldInfo) -> str:
    text = (info.description or "").rstrip(".")
    first, _, rest = text.partition(" ")
    return text if first.isupper() else f"{first[:1].lower()}{first[1:]} {rest}"
