"""Known secrets out of whatever is about to be shown: the second line behind ``no_log``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

MARK = "[secret]"
_LENGTH_MIN = 4
"""Shorter texts are no secrets and would eat harmless words."""

T = TypeVar("T")


class Redactor:
    """Replaces every known secret, and every line of one with several lines."""

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = {part for secret in secrets for part in (secret, *secret.splitlines())}
        # The longest first: one secret may contain another.
        self._texts = sorted((text for text in texts if len(text) >= _LENGTH_MIN), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._texts:
            text = text.replace(secret, MARK)
        return text

    def value(self, value: T) -> T:
        """Return a JSON value of the same shape, its texts without secrets, keys included."""
        return self._value(value)  # type: ignore[return-value] # the shape is the same

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self._value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._value(item) for item in value]
        return value
