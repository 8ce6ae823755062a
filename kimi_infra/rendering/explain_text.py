"""Where one flag, variable or image comes from, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one node runs."""

    node: str
    text: str
    """Flag with value, ``NAME=value``, or image."""
    provenance: str
    replaced: tuple[str, ...] = ()
    """What the same name was before, each with its origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything that is known of a word."""

    word: str
    uses: tuple[Use, ...]
    bringers: tuple[str, ...] = ()
    """Of a word that is not in the command: what would bring it."""
    closest: str | None = None
    """Of a word that nothing brings: the nearest one that something does."""

    @property
    def known(self) -> bool:
        """Whether the recipe can bring the word at all."""
        return bool(self.uses or self.bringers)


def text(found: Explanation) -> str:
    """Return an explanation, equal nodes together."""
    if found.uses:
        return "\n".join(_used(found.uses)) + "\n"
    if found.bringers:
        lines = (f"  {bringer}\n" for bringer in found.bringers)
        return f"{found.word} is not in this command; it would come with\n{''.join(lines)}"
    near = f"; did you mean {found.closest}?" if found.closest else ""
    return f"{found.word} is not in this command, and nothing in the recipe brings it{near}\n"


def _used(uses: Sequence[Use]) -> Iterator[str]:
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for use in uses:
        alike.setdefault((use.text, use.provenance, use.replaced), []).append(use.node)
    for (shown, provenance, replaced), nodes in alike.items():
        yield shown
        yield f"  on    {', '.join(nodes)}"
        yield f"  from  {provenance}"
        yield from (f"  replaced {before}" for before in replaced)
