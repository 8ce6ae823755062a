"""Words that the operator adds: advanced arguments, and values that nobody has published."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kimi_infra.domain.recipe import Value, ValueKind
from kimi_infra.errors import Fault
from kimi_infra.planning.refusals import spelling, wording
from kimi_infra.planning.refusals.asked import Asked

_SPREAD = "choose strategy and nodes instead"
_PLANNED: Mapping[str, str] = {
    "--tensor-parallel-size": _SPREAD,
    "--pipeline-parallel-size": _SPREAD,
    "--data-parallel-": "choose strategy, nodes or pools instead",
    "--enable-expert-parallel": "choose a strategy with expert parallelism instead",
    "--decode-context-parallel-size": "set dcp instead",
    "--prefill-context-parallel-size": "leave it out: no strategy counts its ranks",
    "--nnodes": "set nodes instead",
    "--node-rank": "set nodes instead",
    "--headless": "set nodes instead",
    "--master-addr": "give the hosts' engine_address instead",
    "--master-port": "set ports.master of the deployment instead",
    "--port": "set api.port of the deployment instead",
    "--api-key": "set api.key of the deployment instead; here every user of the host could read it",
    "--served-model-name": "leave it out: the plan gives the model's own id",
    "--shutdown-timeout": "leave it out: the unit's deadlines rest on the plan's",
    "--model": "set model instead",
    "--config": "write its options as words: what is in the file is not seen",
}
"""Options that the plan decides -> what to do instead; one that ends in a dash is a family."""
_CONNECTORS: Mapping[str, str] = {
    "--kv-transfer-config": "choose kv_offload instead: a second one would drop the plan's",
    "--kv-offloading-size": "choose kv_offload instead: it would overwrite the plan's connector",
    "--kv-offloading-backend": "choose kv_offload instead: it would overwrite the plan's connector",
}
"""The same where the plan itself gives a connector."""
_PLACEHOLDERS = ("<operator:", "<measured:")
_ABBREVIATED = 6
"""Letters from which a beginning of an option's name is taken for it, as vLLM does."""
_WHOLE = re.compile("[1-9][0-9]*")


def advanced(asked: Asked) -> Iterator[Fault]:
    """Yield what is wrong with the operator's further words."""
    if asked.choice.advanced_args:
        yield from _words(asked, "advanced_args", asked.choice.advanced_args)


def values(asked: Asked) -> Iterator[Fault]:
    """Yield what is wrong with the values that the operator gives."""
    for name, given in asked.choice.values.items():
        where = f"values.{name}"
        value = asked.recipe.values.get(name) or asked.catalogue.values.get(name)
        if value is None:
            known = (*asked.recipe.values, *asked.catalogue.values)
            yield wording.unknown(where, f"value of {asked.choice.model}", name, known)
        elif value.kind is ValueKind.ARGS:
            yield from _args(asked, where, value, given)
        elif not isinstance(given, str):
            what = f"{value.what}: one text is needed"
            yield wording.fault(where, what, " ".join(given), "give one text")
        else:
            yield from _text(where, value, given)


def _args(asked: Asked, where: str, value: Value, given: str | Sequence[str]) -> Iterator[Fault]:
    if isinstance(given, str):
        what = f"{value.what}: a list of words is needed"
        yield wording.fault(where, what, _shown(given), "give each word by itself")
    else:
        yield from _words(asked, where, given)


def _text(where: str, value: Value, given: str) -> Iterator[Fault]:
    unsafe = _unsafe(where, given)
    if unsafe:
        yield unsafe
    elif given.startswith("-"):
        what = f"{value.what}: what begins with a dash would be read as a flag"
        yield wording.fault(where, what, given, "give it without the dash")
    elif value.kind is ValueKind.INTEGER and not _WHOLE.fullmatch(given):
        what = f"{value.what}: not a positive whole number"
        yield wording.fault(where, what, given, "write it in digits")


def _words(asked: Asked, where: str, words: Sequence[str]) -> Iterator[Fault]:
    if words and words[0] and (not words[0].startswith("-") or words[0] in ("-", "--")):
        what = "the first word is not a flag, so that it would become the value of the flag before it"
        yield wording.fault(f"{where}[0]", what, _shown(words[0]), "begin with a flag")
    for index, word in enumerate(words):
        place = f"{where}[{index}]"
        unsafe = _unsafe(place, word)
        if unsafe:
            yield unsafe
        elif word.startswith("-"):
            remedy = _planned(asked, word)
            if remedy:
                # No value behind "=": it may be a secret.
                what, got = "the plan itself decides this flag", word.partition("=")[0]
                yield wording.fault(place, what, got, remedy)


def _planned(asked: Asked, word: str) -> str | None:
    """Return what to do instead of a flag, None where it is the operator's own."""
    found = _listed(_PLANNED, spelling.option(word))
    if found is None and (asked.choice.kv_offload or asked.clustered):
        found = _listed(_CONNECTORS, spelling.option(word))
    return found


def _listed(planned: Mapping[str, str], name: str) -> str | None:
    if name in planned:
        return planned[name]
    for option, remedy in planned.items():
        family = option.endswith("-") and name.startswith(option)
        if family or (len(name) >= _ABBREVIATED + 2 and option.startswith(name)):
            return remedy
    return None


def _unsafe(where: str, text: str) -> Fault | None:
    if not text.strip():
        return wording.fault(where, "the text is empty", None, "give the text, or leave it out")
    if wording.UNWRITABLE.search(text):
        what = "a control character cannot be written in a command"
        return wording.fault(where, what, ascii(text), "take it out")
    if text.startswith(_PLACEHOLDERS):
        return wording.fault(where, "this is still the placeholder", text, "give what it asks for")
    return None


def _shown(text: str) -> str:
    return ascii(text) if wording.UNWRITABLE.search(text) else text
