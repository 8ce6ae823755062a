"""The address at which an engine answers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The head's API."""

    host: str
    """The head's name, for messages."""
    address: str
    port: int
    model: str
    """Served model id."""
    key: str | None = field(default=None, repr=False)
    """The API key in clear; None for an open API."""

    @property
    def url(self) -> str:
        """Base URL, IPv6 addresses in brackets."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{address}:{self.port}"
