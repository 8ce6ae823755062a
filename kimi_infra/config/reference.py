"""docs/inventory-reference.md, written from the models: ``python -m kimi_infra.config.reference``."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kimi_infra.config.models import DeploymentFile, HostModel
from kimi_infra.config.values import Shape

_INTRODUCTION = """\
# Inventory reference

Written by `python -m kimi_infra.config.reference`; a test holds it to the models.

An inventory is a directory of two files.
`hosts.yml` is an ordinary Ansible inventory, `deployment.yml` says what runs on which of its groups.
Both are read as a whole and every fault of both is reported at once.

`<fill in: ...>`, in quotes, may stand where *fill-in* is allowed:
such an inventory can be planned, not applied.

A secret is never written here, only its place:

| Reference | Place |
|---|---|
| `{env: NAME}` | environment variable of whoever runs kimi-infra |
| `{file: PATH}` | file of one line that only its owner may use; relative to the inventory |
| `{vault: "PATH#KEY"}` | top-level key of an Ansible vault; relative to the inventory |

## hosts.yml

Groups, `children`, `vars` and the precedence of variables are Ansible's; host ranges are not read.
Files under `group_vars/` and `host_vars/` are Ansible's alone: the keys below are refused there.
A secret of Ansible's own, such as `ansible_become_password`, is a `!vault` value or one lookup.
"""


_MANY = {list: "list of", dict: "mapping of a name to"}


def page() -> str:
    """Return the page in Markdown."""
    lines = [_INTRODUCTION, *_table(HostModel), "", "## deployment.yml", ""]
    return "\n".join((*lines, *_section(DeploymentFile, ""))) + "\n"


def _section(model: type[BaseModel], path: str) -> Iterator[str]:
    if path:
        yield from ("", f"### {path}", "")
    yield from _table(model)
    for name, info in model.model_fields.items():
        for nested in _models(info.annotation):
            many = "[]" if typing.get_origin(info.annotation) is list else ""
            yield from _section(nested, f"{path}.{name}{many}".lstrip("."))


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield from (
        _markdown(inspect.cleandoc(model.__doc__ or "")),
        "",
        "| Key | Value | Default | Meaning |",
        "|---|---|---|---|",
    )
    for name, info in model.model_fields.items():
        meaning = _markdown(info.description or "")
        yield f"| `{name}` | {_kind(info)} | {_default(info)} | {meaning} |"


def _markdown(text: str) -> str:
    return text.replace("``", "`")


def _kind(info: FieldInfo) -> str:
    inner = next(iter(_models(info.annotation)), None)
    kind = typing.get_origin(_without_none(info.annotation))
    if inner is not None:
        return "list of mappings" if kind is list else "mapping"
    shape = next(_shapes(info.rebuild_annotation()), None)
    text = shape.text if shape else "true or false"
    return f"{_MANY[kind]}: {text}" if kind in _MANY else text


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    size = isinstance(value, int) and value > 1 << 30
    return f"`{value >> 30} GiB`" if size else f"`{value}`"


def _without_none(annotation: object) -> object:
    inner = [each for each in typing.get_args(annotation) if each is not type(None)]
    return inner[0] if type(None) in typing.get_args(annotation) else annotation


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    for each in (annotation, *typing.get_args(annotation)):
        if inspect.isclass(each) and issubclass(each, BaseModel):
            yield each


def _shapes(annotation: object) -> Iterator[Shape]:
    yield from (each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Shape))
    for each in typing.get_args(annotation):
        yield from _shapes(each)


if __name__ == "__main__":
    sys.stdout.write(page())
