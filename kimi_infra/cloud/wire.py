"""Property values between the engine's form (google.protobuf.Struct) and Python's.

Secrets and values that are not known yet survive both ways. Signatures: pulumi, sdk/go/common/resource/sig
and sdk/go/common/resource/plugin/rpc.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from google.protobuf import struct_pb2

_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a signature, no secret
_OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_UNKNOWN_STRING = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_UNKNOWNS = frozenset(
    {
        _UNKNOWN_STRING,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # boolean
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)
_EXACT = 2**53
"""Integers below it survive the engine's floating point."""


class Unknown:
    """A value that only the apply will show."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN = Unknown()
Values = dict[str, object]
"""Properties by name: texts, numbers, truths, None, lists, dicts, :class:`Secret`, :data:`UNKNOWN`."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that no message may show."""

    value: object = field(repr=False)

    def __repr__(self) -> str:
        return "[secret]"


def load(struct: struct_pb2.Struct) -> Values:
    """Return the properties of a message."""
    return {name: _load(value) for name, value in struct.fields.items()}


def dump(values: Mapping[str, object]) -> struct_pb2.Struct:
    """Return properties for a message."""
    return struct_pb2.Struct(fields={name: _dump(value) for name, value in values.items()})


def reveal(value: object) -> object:
    """Return a value with its secrets in clear."""
    if isinstance(value, Secret):
        return reveal(value.value)
    if isinstance(value, dict):
        return {name: reveal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [reveal(item) for item in value]
    return value


def has_unknown(value: object) -> bool:
    """Whether anything in a value is not known yet."""
    if isinstance(value, Secret):
        return has_unknown(value.value)
    return isinstance(value, Unknown) or any(has_unknown(item) for item in _items(value))


def has_secret(value: object) -> bool:
    """Whether anything in a value is secret."""
    return isinstance(value, Secret) or any(has_secret(item) for item in _items(value))


def marked(value: object, source: object) -> object:
    """Return a value that was made from ``source``: secret when anything of that is."""
    return Secret(value) if has_secret(source) else value


def secret_texts(value: object, *, inside: bool = False) -> Iterator[str]:
    """Yield every text that is, or is part of, a secret."""
    if isinstance(value, Secret):
        yield from secret_texts(value.value, inside=True)
    elif isinstance(value, str):
        if inside:
            yield value
    else:
        for item in _items(value):
            yield from secret_texts(item, inside=inside)


def _items(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _load(value: struct_pb2.Value) -> object:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return UNKNOWN if value.string_value in _UNKNOWNS else value.string_value
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) < _EXACT else number
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_load(item) for item in value.list_value.values]
    if kind == "struct_value":
        return _load_struct(value.struct_value)
    return None


def _load_struct(struct: struct_pb2.Struct) -> object:
    fields = struct.fields
    signature = fields[_SIGNATURE].string_value if _SIGNATURE in fields else None
    if signature == _SECRET:
        return Secret(_load(fields["value"]))
    if signature == _OUTPUT:
        inner = _load(fields["value"]) if "value" in fields else UNKNOWN
        return Secret(inner) if "secret" in fields and fields["secret"].bool_value else inner
    return load(struct)


def _dump(value: object) -> struct_pb2.Value:  # noqa: PLR0911 - one line a kind of value
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(value, Unknown):
        return struct_pb2.Value(string_value=_UNKNOWN_STRING)
    if isinstance(value, Secret):
        marked = {_SIGNATURE: struct_pb2.Value(string_value=_SECRET), "value": _dump(value.value)}
        return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=marked))
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, (int, float)):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, (list, tuple)):
        return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_dump(item) for item in value]))
    if isinstance(value, Mapping):
        return struct_pb2.Value(struct_value=dump(value))
    raise TypeError(f"{type(value).__name__} has no form on the wire")
