"""KV connectors as values: several are composed and written once.

vLLM takes the last ``--kv-transfer-config`` of a command (vllm: argparse's rule), so that a second one
drops the first without a word. Several connectors work together only as children of a MultiConnector
(vllm: kv_connector/v1/multi_connector.py): it loads from the first child with a hit and saves to all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Word, Words

FLAG = "--kv-transfer-config"
_MULTI = "MultiConnector"
_EXTRA = "kv_connector_extra_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """One connector's configuration."""

    fields: Mapping[str, object]
    """As vLLM's KVTransferConfig names them, in the order of writing."""

    @property
    def name(self) -> str:
        """Its class's name."""
        return str(self.fields.get("kv_connector", ""))

    @property
    def children(self) -> tuple[Connector, ...]:
        """The connectors of a MultiConnector, else itself."""
        extra = self.fields.get(_EXTRA)
        listed = extra.get("connectors") if self.name == _MULTI and isinstance(extra, dict) else None
        if not isinstance(listed, list):
            return (self,)
        return tuple(Connector(fields=child) for child in listed if isinstance(child, dict))

    @property
    def text(self) -> str:
        """The one word that vLLM reads."""
        return json.dumps(dict(self.fields), separators=(",", ":"), ensure_ascii=False)


def parse(text: str) -> Connector | None:
    """Read a word; None when it is not a JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return Connector(fields=found) if isinstance(found, dict) else None


def compose(connectors: Sequence[Connector]) -> Connector:
    """Return one connector that does the work of all, in their order; equal ones count once."""
    children: list[Connector] = []
    for connector in connectors:
        children += [child for child in connector.children if child not in children]
    if len(children) == 1:
        return children[0]
    listed = [dict(child.fields) for child in children]
    return Connector(fields={"kv_connector": _MULTI, "kv_role": "kv_both", _EXTRA: {"connectors": listed}})


def composed(words: Sequence[Word]) -> Words:
    """Replace several ``--kv-transfer-config`` by one that holds them all, at the place of the last.

    Words that are not JSON objects are left to vLLM's own rule.
    """
    places = [index for index, word in enumerate(words[:-1]) if word.text == FLAG]
    read = [parse(words[index + 1].text) for index in places]
    found = [connector for connector in read if connector is not None]
    if len(places) < 2 or len(found) < len(places):
        return tuple(words)
    whole = compose(found)
    sources = dict.fromkeys(str(words[index].provenance) for index in places)
    names = " and ".join(child.name for child in whole.children)
    origin = Provenance(origin=Origin.DERIVED, source=f"{names} composed ({'; '.join(sources)})")
    dropped = {step for index in places[:-1] for step in (index, index + 1)}
    last = places[-1]
    return tuple(
        Word(text=whole.text if index == last + 1 else word.text, provenance=origin)
        if index in (last, last + 1)
        else word
        for index, word in enumerate(words)
        if index not in dropped
    )
