"""Words that the operator adds: advanced arguments, and values that nobody has published."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kimi_infra.domain.recipe import Value, ValueKind
from kimi_infra.errors import Fault
from kimi_infra.planning.refusals import spelling, terms, wording
from kimi_infra.planning.refusals.asked import Asked

_API = "leave it out: the plan's checks and its router would look for the API elsewhere"
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
    "--host": _API,
    "--uds": _API,
    "--ssl-": _API,
    "--root-path": _API,
    "--grpc": _API,
    "--grpc-port": "leave it out: the plan keeps no such port free, and no firewall rule knows it",
    "--api-server-count": "leave it out: which nodes hold an API, and how many, is the plan's",
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
_LOOKED_AT = ("--enable-prefix-caching",)
"""Options that a later check looks for by their name."""
_PLACEHOLDERS = ("<operator:", "<measured:", "<value:")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.ASCII)
_ADDRESS = re.compile(
    r"\$(HEAD_IP|IFACE_NAME|ROUTER_(HOST|PORT)|(PREFILL|DECODE)_(NODE_[0-9]+|DP_RPC_PORT))(?![A-Z0-9_])"
)
"""Placeholders of the page, which the plan replaces wherever they stand in a word."""
_IMAGE = re.compile(
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[\w][\w.-]{0,127}", re.ASCII
)
"""Repository and tag, as image.name of a deployment is checked."""
_OTHER = re.compile("<value:[A-Za-z0-9_]+>")
"""A value beside the one in question."""
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
            yield from _image(asked, where, value, given)


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


def _image(asked: Asked, where: str, value: Value, given: str) -> Iterator[Fault]:
    """Yield what is wrong with a value of which an image's name is made."""
    mark = f"<value:{value.name}>"
    if _unsafe(where, given) or given.startswith("-"):
        return
    names = [_OTHER.sub("x", name.replace(mark, given)) for name in _images(asked) if mark in name]
    if not all(map(_IMAGE.fullmatch, names)):
        what = f"{value.what}: not an image name with a tag"
        yield wording.fault(where, what, given, "write for example vllm/vllm-openai:kimi-k31")


def _images(asked: Asked) -> Iterator[str]:
    yield from asked.recipe.images.values()
    for variant in asked.recipe.variants.values():
        yield from variant.images.values()
        yield from (it.image for it in variant.hardware_overrides.values() if it.image)


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
            yield from _flag(asked, place, word)


def _flag(asked: Asked, place: str, word: str) -> Iterator[Fault]:
    remedy = _planned(asked, word)
    whole = None if remedy else spelling.cut(word, _names(asked))
    # No value behind "=": it may be a secret.
    got = word.partition("=")[0]
    if remedy:
        yield wording.fault(place, "the plan itself decides this flag", got, remedy)
    elif whole:
        yield beginning(place, whole, got)


def beginning(place: str, whole: str, got: str) -> Fault:
    """Build the fault of a word that is only the beginning of a flag."""
    family = "..." if whole.endswith("-") else ""
    what = f"this is a mere beginning of {whole}{family}, for which vLLM may take it"
    return wording.fault(place, what, got, "spell the flag out")


def _names(asked: Asked) -> Sequence[str]:
    """Return the options, and the families of them, that the checks know by their whole names."""
    return (*_PLANNED, *_CONNECTORS, *_LOOKED_AT, *_ruled(asked))


def _ruled(asked: Asked) -> Iterator[str]:
    for rule in asked.recipe.rules:
        for side in terms.sides(rule):
            flags = (word for word in side.meets.get(terms.FLAGS, ()) if word.startswith("-"))
            yield from (spelling.option(word.partition(">")[0]) for word in flags)


def _planned(asked: Asked, word: str) -> str | None:
    """Return what to do instead of a flag, None where it is the operator's own."""
    found = _listed(_PLANNED, spelling.option(word))
    if found is None and (asked.choice.kv_offload or asked.clustered):
        found = _listed(_CONNECTORS, spelling.option(word))
    return found


def _listed(planned: Mapping[str, str], name: str) -> str | None:
    if name in planned:
        return planned[name]
    families = (option for option in planned if option.endswith("-") and name.startswith(option))
    return next((planned[option] for option in families), None)


def _unsafe(where: str, text: str) -> Fault | None:
    if not text.strip():
        return wording.fault(where, "the text is empty", None, "give the text, or leave it out")
    if wording.UNWRITABLE.search(text):
        what = "a control character cannot be written in a command"
        return wording.fault(where, what, ascii(text), "take it out")
    if any(mark in text for mark in _PLACEHOLDERS):
        return wording.fault(where, "this is still the placeholder", text, "give what it asks for")
    if _VARIABLE.fullmatch(text) or _ADDRESS.search(text):
        what = "what stands here would differ: a shell or the plan puts something in its place"
        return wording.fault(where, what, text, "write what it stands for")
    return None


def _shown(text: str) -> str:
    return ascii(text) if wording.UNWRITABLE.search(text) else text
