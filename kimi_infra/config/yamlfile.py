"""One YAML file as a tree that remembers where each value stands and how it was written.

Reads the YAML that Ansible reads (anchors, merge keys, ``!vault``, ``!unsafe``); unlike Ansible it
reports duplicate keys and never takes ``1:30`` for the number 90 or ``2026-01-01`` for a date.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

from kimi_infra.errors import Fault

_TAG = "tag:yaml.org,2002:"
_NODES_MAX = 20_000
"""Nodes of one file with its aliases written out; far above any inventory, far below a bomb."""
_GOT_MAX = 80
EMPTY = "the file is empty"
_PLAIN_KEY = re.compile(r"[\w-]+", re.ASCII)

Scalar = str | int | float | bool | None


class Encrypted:
    """An inline ``!vault`` value; only Ansible reads what is inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One value of a file."""

    file: str
    path: tuple[str | int, ...]
    value: Scalar | Encrypted | dict[str, Place] | list[Place]
    source: str = ""
    """As the operator wrote it, quotes included; empty for a value that is not there."""
    line: int = 0
    """Counted from 1; 0 for a value that is not there."""

    @property
    def where(self) -> str:
        """File and path, for example ``hosts.yml: kimi.hosts.tray-a.node_rank``."""
        path = ""
        for step in self.path:
            plain = isinstance(step, str) and _PLAIN_KEY.fullmatch(step)
            path += f".{step}" if plain else f"[{_shown(step)}]"
        return f"{self.file}: {path.lstrip('.')}" if path else self.file

    @property
    def got(self) -> str | None:
        """The value for a message: one short printable line."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list"
        return _shown_text(self.source) if self.line else None

    @property
    def fields(self) -> dict[str, Place]:
        """The children by key; none unless this is a mapping."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def plain(self) -> object:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: child.plain for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain for child in self.value]
        return self.value

    def under(self, *steps: str | int) -> Place:
        """Return the value at ``steps`` below this one; one that is not there has line 0."""
        place = self
        for step in steps:
            place = place._child(step)
        return place

    def _child(self, step: str | int) -> Place:
        if isinstance(self.value, dict) and step in self.value:
            return self.value[str(step)]
        if isinstance(self.value, list) and isinstance(step, int) and step < len(self.value):
            return self.value[step]
        return Place(file=self.file, path=(*self.path, step), value=None)

    def fault(self, what: str, remedy: str, *, got: bool = True) -> Fault:
        """Return a fault at this place; ``got=False`` keeps the value out of it."""
        return Fault(where=self.where, what=what, got=self.got if got else None, remedy=remedy)


def read(path: pathlib.Path, faults: list[Fault]) -> Place | None:
    """Return the root of a file, None when nothing of it can be understood."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        what = f"the file cannot be read: {reason}"
        faults.append(Fault(where=path.name, what=what, remedy=f"write {path.name} in {path.parent}"))
        return None
    except UnicodeDecodeError:
        faults.append(Fault(where=path.name, what="the file is not UTF-8", remedy="save it as UTF-8 text"))
        return None
    return parse(text, path.name, faults)


def parse(
    text: str, file: str, faults: list[Fault], odd_key: Callable[[Fault], None] | None = None
) -> Place | None:
    """Return the root of a text, None when nothing of it can be understood.

    Args:
        text: the file.
        file: its name, for messages.
        faults: takes every fault.
        odd_key: takes what is wrong with keys that are no text; they are then read as they are written.
            Without it each is a fault.
    """
    try:
        node = _composed(text)
        if node is None:
            faults.append(Fault(where=file, what=EMPTY, remedy="write what it should hold"))
            return None
        return _Builder(file, faults, odd_key).build(node, ())
    except yaml.YAMLError as error:
        faults.append(_syntax_fault(error, file))
    except RecursionError:
        faults.append(Fault(where=file, what="nested too deeply", remedy="nest less deeply"))
    except _TooLargeError:
        faults.append(Fault(where=file, what="too many values", remedy="write fewer aliases"))
    return None


def _composed(text: str) -> yaml.Node | None:
    """Return the root node; libyaml is ten times as fast, PyYAML's own parser says more of faults."""
    if yaml.__with_libyaml__:
        with contextlib.suppress(yaml.YAMLError, UnicodeError):
            return yaml.compose(text, Loader=yaml.CSafeLoader)
    return yaml.compose(text, Loader=yaml.SafeLoader)


class _TooLargeError(Exception):
    """A file with its aliases written out is larger than any inventory."""


class _UnknownTagError(Exception):
    """A tag that neither YAML nor Ansible defines."""


class _Builder:
    """Places out of PyYAML's nodes."""

    def __init__(self, file: str, faults: list[Fault], odd_key: Callable[[Fault], None] | None) -> None:
        self.file, self.faults, self.odd_key = file, faults, odd_key
        self.constructor = SafeConstructor()
        self.open: set[int] = set()
        self.count = 0

    def build(self, node: yaml.Node, path: tuple[str | int, ...]) -> Place:
        self.count += 1
        if self.count > _NODES_MAX:
            raise _TooLargeError
        place = self._place(node, path, None)
        if id(node) in self.open:
            self.faults.append(place.fault("the value holds itself", "write it out without the alias"))
            return place
        self.open.add(id(node))
        built = self._place(node, path, self._value(node, path, place))
        self.open.remove(id(node))
        return built

    def _place(
        self,
        node: yaml.Node,
        path: tuple[str | int, ...],
        value: Scalar | Encrypted | dict[str, Place] | list[Place],
    ) -> Place:
        line = node.start_mark.line + 1
        return Place(file=self.file, path=path, value=value, source=_source(node), line=line)

    def _value(
        self, node: yaml.Node, path: tuple[str | int, ...], place: Place
    ) -> Scalar | Encrypted | dict[str, Place] | list[Place]:
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path, place)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        self.faults.append(place.fault("a YAML tag that is not known here", "remove the tag", got=False))
        return None

    def _mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...], place: Place) -> dict[str, Place]:
        merged: dict[str, Place] = {}
        own: dict[str, Place] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == f"{_TAG}merge":
                merged = self._merged(value_node, path, place) | merged
                continue
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
                what = f"the key in line {line} is not text"
                scalar = isinstance(key_node, yaml.ScalarNode)
                told = self.odd_key if scalar and self.odd_key else self.faults.append
                told(place.fault(what, "write the key in quotes", got=False))
                if told == self.faults.append:
                    continue
            key = key_node.value
            child = self.build(value_node, (*path, key))
            if key in own:
                what = f"the key is given twice, in lines {lines[key]} and {line}"
                self.faults.append(child.fault(what, "keep one of them", got=False))
            own[key], lines[key] = child, line
        return merged | own

    def _merged(self, node: yaml.Node, path: tuple[str | int, ...], place: Place) -> dict[str, Place]:
        sources = list(node.value) if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Place] = {}
        for source in sources:
            built = self.build(source, path)
            if not isinstance(built.value, dict):
                self.faults.append(place.fault("<< merges something else than a mapping", "write an alias"))
            merged = built.fields | merged  # the first of several wins, as YAML says
        return merged

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Scalar | Encrypted:
        kind, text = node.tag.removeprefix(_TAG), str(node.value)
        if node.tag == "!vault":
            return Encrypted()
        if kind in {"str", "timestamp", "value"} or node.tag == "!unsafe":
            return text
        if kind in {"int", "float"} and ":" in text:
            return text
        try:
            return self._typed(kind, node)
        except _UnknownTagError:
            self.faults.append(place.fault("a YAML tag that is not known here", "remove the tag", got=False))
            return None
        except (ConstructorError, ValueError, IndexError, KeyError):
            remedy = "write plain text, a number, true or false"
            self.faults.append(place.fault("a value that YAML cannot read", remedy, got=False))
            return None

    def _typed(self, kind: str, node: yaml.ScalarNode) -> Scalar:
        construct: dict[str, Callable[[yaml.ScalarNode], Scalar]] = {
            "null": lambda _: None,
            "bool": self.constructor.construct_yaml_bool,
            "int": self.constructor.construct_yaml_int,
            "float": self.constructor.construct_yaml_float,
        }
        if kind not in construct:
            raise _UnknownTagError
        return construct[kind](node)


def _source(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        return ""
    return f'"{node.value}"' if node.style in {'"', "'"} else str(node.value)


def _syntax_fault(error: yaml.YAMLError, file: str) -> Fault:
    mark = getattr(error, "problem_mark", None)
    where = f"{file}: line {mark.line + 1}, column {mark.column + 1}" if mark else file
    # PyYAML quotes aliases and tags, and an unquoted secret may begin with * or !.
    problem = re.sub(r"'[^']{2,}'|\"[^\"]{2,}\"", "...", str(getattr(error, "problem", None) or "unreadable"))
    remedy = "correct it there; a value that holds ': ' or ' #' or begins with a sign needs quotes"
    return Fault(where=where, what=f"not YAML: {problem.splitlines()[0]}", remedy=remedy)


def _shown(step: str | int) -> str:
    return str(step) if isinstance(step, int) else f'"{_shown_text(step)}"'


def _shown_text(text: str) -> str:
    line = text if text.isprintable() else ascii(text)[1:-1]
    return line if len(line) <= _GOT_MAX else f"{line[:_GOT_MAX]}..."
