"""A value that the operator is still to give, as it stands in what we show."""

from __future__ import annotations

from kimi_infra.domain.inventory import ImageChoice

_BEGIN = "<fill in: "


def is_open(text: str) -> bool:
    """Tell whether a text is a ``<fill in: ...>`` of an inventory."""
    return text.startswith(_BEGIN)


def placeholder(text: str) -> str:
    """Return a ``<fill in: ...>`` in the form that commands have for it, any other text as it is."""
    return f"<operator: {text.removeprefix(_BEGIN)}" if is_open(text) else text


def image(choice: ImageChoice) -> str:
    """Return the reference by which an image runs: its name, or its name's digest once it is pinned."""
    return placeholder(choice.name) if is_open(choice.name) else choice.reference
