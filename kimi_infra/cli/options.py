"""The options that name a choice, and faults of a choice in their words."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import shlex
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from kimi_infra.cli import common
from kimi_infra.config import choices, recipes
from kimi_infra.domain import names
from kimi_infra.domain.inventory import KV_TIER_BYTES, Choice, Instances, PoolChoice
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.recipe import BASELINE, POOLS, Catalogue, Value, ValueKind
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import defaults, partial, resolve

_BY_OPERATOR = frozenset({"COMMANDLINE", "ENVIRONMENT"})
"""Where typer says that such a parameter was not left at its default."""
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TIER = f"values.{KV_TIER_BYTES}"
"""Place of the size of the host-DRAM tier, which has an option of its own."""
_POOLS = "give prefill=NODES[:MODE],decode=NODES[:MODE]"
_NAMES = {"feature_modes": "feature_mode", "advanced_args": "arg", "values": "value"}
"""Fields of a choice whose option is called something else."""
_PAIRS = frozenset({"feature_modes", "values"})
"""Fields that are read pair by pair: one that is unreadable takes none of the others with it."""
_FIELDS = frozenset(it.name for it in dataclasses.fields(Choice))
_FIELD = re.compile("|".join(rf"\b{name}\b" for name in sorted(_FIELDS) if "_" in name))
"""Fields that no other word of a remedy can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options as they were given; each field is one."""

    model: Annotated[str, typer.Option(help="Recipe: ORG/REPO.")] = "moonshotai/Kimi-K3.1-Pro"
    hardware: Annotated[
        str | None, typer.Option(help="Hardware key, for example gb300. Default: the recipe's.")
    ] = None
    strategy: Annotated[str | None, typer.Option(help="Strategy. Default: the one for this hardware.")] = None
    nodes: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Number of nodes. Default: the one for hardware and strategy."),
    ] = None
    features: Annotated[
        str | None, typer.Option(help="Comma-separated; none for none. Default: the recipe's list.")
    ] = None
    variant: Annotated[str, typer.Option(help="Variant of the recipe.")] = "default"
    preset: Annotated[str | None, typer.Option(help="Tuned configuration; baseline for none.")] = None
    dcp: Annotated[str | None, typer.Option(metavar="NUMBER", help="Decode context parallel size.")] = None
    kv_offload: Annotated[str | None, typer.Option(help="KV offload option or KV store.")] = None
    kv_offload_bytes: Annotated[
        str | None, typer.Option(help="Host memory that each accelerator pins, for example 128GiB.")
    ] = None
    kv_instances: Annotated[
        str | None,
        typer.Option(help="Engines around a KV store: COUNT, or COUNT:CURRENT for one of them from 0."),
    ] = None
    pools: Annotated[
        str | None, typer.Option(help="Pools of pd_cluster: prefill=NODES[:MODE],decode=NODES[:MODE].")
    ] = None
    feature_mode: Annotated[
        list[str], typer.Option(metavar="FEATURE=MODE", help="Mode of a feature with several; repeat.")
    ] = field(default_factory=list)
    arg: Annotated[
        list[str], typer.Option(metavar="WORD", help="Further word of every command (--arg=WORD); repeat.")
    ] = field(default_factory=list)
    value: Annotated[
        list[str], typer.Option(metavar="NAME=TEXT", help="A value that nobody has published; repeat.")
    ] = field(default_factory=list)
    accept_preview: Annotated[bool, typer.Option(help="Accept hardware published as a preview.")] = False
    as_published: Annotated[
        bool,
        typer.Option(
            help="Leave out what does not fit, as the public page does, instead of refusing. "
            "Control characters are refused by --as shell and docker, and escaped by --as json."
        ),
    ] = False
    catalog: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Recipes in the public layout. Default: the shipped.")
    ] = None


def with_choice(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of a choice; it receives them as its parameter ``given``."""
    hints = typing.get_type_hints(verb, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(verb).parameters.items()
        if name != "given"
    ]
    parameters = [*own, *_parameters()]

    @functools.wraps(verb)
    def called(**values: Any) -> None:
        given = Given(**{it.name: values.pop(it.name) for it in dataclasses.fields(Given)})
        verb(given=given, **values)

    # What typer reads of a function.
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {it.name: it.annotation for it in parameters}
    return called


def refuse_given(context: typer.Context, because: str, *, allowed: tuple[str, ...] = ()) -> None:
    """Refuse options of a choice that would have no effect.

    Raises:
        SpecError: names each of them.
    """
    asked = [it.name for it in dataclasses.fields(Given) if it.name not in allowed]
    sources = {name: context.get_parameter_source(name) for name in asked}
    given = [name for name, source in sources.items() if source and source.name in _BY_OPERATOR]
    if given:
        what, _, other = because.partition(": ")
        remedy = f"leave it out, or leave out {other}"
        raise SpecError(tuple(Fault(where=option(name), what=what, remedy=remedy) for name in given))


def catalogue(path: Path | None, *, as_published: bool = False) -> Catalogue:
    """Return the catalogue of a folder, or the shipped one; each recipe is read at its first lookup.

    Args:
        path: the folder; None for the shipped one.
        as_published: say what the public page ignores in a folder's files once each, instead of refusing it.

    Raises:
        SpecError: holds every fault of what its recipes share; a lookup raises every fault of its recipe.
    """
    if path is None:
        return recipes.load_catalogue()
    if not path.is_dir():
        remedy = "give a folder with models/, strategies/ and taxonomy.yaml"
        raise SpecError((Fault(where="--catalog", what="no such folder", got=str(path), remedy=remedy),))
    if not as_published:
        return recipes.judged_catalogue(path)
    return recipes.open_catalogue(path, lambda fault: common.tell(f"ignored: {fault}"))


def asked(given: Given) -> tuple[Catalogue, Choice]:
    """Return the catalogue and the choice that the options name, complete.

    Raises:
        SpecError: holds every fault, in the words of the options.
    """
    with in_words_of_options():
        try:
            known = catalogue(given.catalog, as_published=given.as_published)
        except SpecError as error:  # without it names cannot be judged, but options can be read
            raise SpecError((*error.faults, *_read(given, {})[1])) from error
        choice, faults = _read(given, _declared(known, given.model))
        part = partial.Given(
            choice=choice,
            absent={name for name in ("hardware", "strategy", "nodes") if getattr(given, name) is None},
            faults=faults,
            unread={fault.where for fault in faults if fault.where not in _PAIRS},
        )
        fill = defaults.filled if given.as_published else defaults.described
        return known, partial.completed(known, part, fill)


def resolution(given: Given, known: Catalogue, chosen: Choice) -> Resolution:
    """Compile a choice as the options ask for.

    Raises:
        SpecError: holds every fault, in the words of the options.
    """
    with in_words_of_options():
        return (resolve.as_published if given.as_published else resolve.resolve)(known, chosen)


@contextmanager
def in_words_of_options() -> Iterator[None]:
    """Name faults of a choice in the words of the command line instead of those of deployment.yml."""
    try:
        yield
    except SpecError as error:
        raise SpecError(tuple(map(worded, error.faults))) from error


def worded(fault: Fault) -> Fault:
    """Return a fault of a choice with its option as its place, and options in its text."""
    name, _, below = fault.where.partition(".")
    name = name.partition("[")[0]
    if name not in _FIELDS:  # an option, or a file
        return fault
    where = option(KV_TIER_BYTES) if below == KV_TIER_BYTES else option(_NAMES.get(name, name))
    if name in {"values", "feature_modes"} and below not in {"", KV_TIER_BYTES}:
        where = f"{where} {below}"
    remedy = fault.remedy.replace("write accept_preview: true", "give --accept-preview")
    got = None if name == "accept_preview" else fault.got
    return Fault(where=where, what=_optioned(fault.what), got=got, remedy=_optioned(remedy))


def _optioned(text: str) -> str:
    return _FIELD.sub(lambda found: option(_NAMES.get(found[0], found[0])), text)


def option(name: str) -> str:
    """Return the option of a parameter."""
    return f"--{name.replace('_', '-')}"


def _parameters() -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(Given, include_extras=True)
    for it in dataclasses.fields(Given):
        default = it.default if it.default_factory is dataclasses.MISSING else it.default_factory()
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(it.name, kind, default=default, annotation=hints[it.name])


def _read(given: Given, declared: Mapping[str, Value]) -> tuple[Choice, tuple[Fault, ...]]:
    """Read the options; a fault's place is a field of the choice, which holds a stand-in there."""
    faults: list[Fault] = []
    choice = Choice(
        model=given.model,
        hardware=given.hardware or "",
        strategy=given.strategy or "",
        nodes=_number(faults, "nodes", given.nodes) or 0,
        features=_features(given.features, faults),
        variant=given.variant,
        accept_preview=given.accept_preview,
        feature_modes=dict(_pairs("feature_modes", given.feature_mode, faults)),
        preset=None if given.preset == BASELINE else given.preset,
        dcp=_number(faults, "dcp", given.dcp),
        kv_offload=given.kv_offload,
        kv_instances=_instances(given.kv_instances, faults),
        pools=_pools(given.pools, faults),
        advanced_args=tuple(given.arg),
        values=_values(given, declared, faults),
    )
    return choice, tuple(dict.fromkeys(faults))


def _declared(known: Catalogue, model: str) -> Mapping[str, Value]:
    """Return the values that can be given; a recipe's file that cannot be read is told elsewhere."""
    try:
        own = known.recipe(model).values
    except SpecError:
        own = {}
    return {**known.values, **own}


def _number(
    faults: list[Fault],
    where: str,
    text: str | None,
    *,
    least: int = 1,
    remedy: str = "give such a number in digits",
) -> int | None:
    """Read a number of nodes, engines or ranks."""
    if text is None:
        return None
    if re.fullmatch(r"\d{1,9}", text, re.ASCII) and least <= int(text) <= choices.COUNT_MAX:
        return int(text)
    what = f"a whole number from {least} to {choices.COUNT_MAX} is expected"
    faults.append(Fault(where=where, what=what, got=repr(text), remedy=remedy))
    return None


def _features(text: str | None, faults: list[Fault]) -> tuple[str, ...] | None:
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(","))
    remedy = "give none for no feature, or names with a comma between two"
    faults.extend(
        Fault(where=f"features[{index}]", what="an empty name", got=repr(text), remedy=remedy)
        for index, name in enumerate(found)
        if not name
    )
    return () if found == ("none",) else found


def _pairs(name: str, texts: list[str], faults: list[Fault]) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, equals, value = text.partition("=")
        if equals and key:
            yield key, value
        else:
            remedy = f"give {option(_NAMES[name])} NAME=TEXT"
            faults.append(Fault(where=name, what="no NAME=TEXT", got=repr(text), remedy=remedy))


def _values(
    given: Given, declared: Mapping[str, Value], faults: list[Fault]
) -> Mapping[str, str | tuple[str, ...]]:
    """Read values; those that stand for several words are split as a shell would, and may be repeated."""
    found: dict[str, str | tuple[str, ...]] = {}
    for name, text in _pairs("values", given.value, faults):
        before = found.get(name)
        if name in declared and declared[name].kind is ValueKind.ARGS:
            found[name] = (*(before or ()), *_split(name, text, faults))
        elif before is None:
            found[name] = text
        else:
            what, remedy = f"{name} is given twice", "give it once"
            faults.append(Fault(where="values", what=what, got=repr(text), remedy=remedy))
    if given.kv_offload_bytes is not None:
        if KV_TIER_BYTES in found:
            what = f"the value {KV_TIER_BYTES} is given by --value too"
            faults.append(Fault(where=_TIER, what=what, remedy="give one of both"))
        found[KV_TIER_BYTES] = _bytes(given.kv_offload_bytes, faults)
    return found


def _split(name: str, text: str, faults: list[Fault]) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        what, remedy = f"words that cannot be told apart: {error}", "close every quote"
        faults.append(Fault(where=f"values.{name}", what=what, got=repr(text), remedy=remedy))
        return []


def _bytes(text: str, faults: list[Fault]) -> str:
    match = re.fullmatch(r"(\d{1,15}) ?([A-Za-z]*)", text, re.ASCII)
    if match is None or match[2] not in _UNITS:
        remedy = f"give a number, or one with a unit ({', '.join(filter(None, _UNITS))})"
        faults.append(Fault(where=_TIER, what="not a size", got=repr(text), remedy=remedy))
        return "0"
    return str(int(match[1]) * _UNITS[match[2]])


def _instances(text: str | None, faults: list[Fault]) -> Instances | None:
    if text is None:
        return None
    count, colon, current = text.partition(":")
    remedy = "give COUNT, or COUNT:CURRENT with the first engine as 0"
    return Instances(
        count=_number(faults, "kv_instances.count", count, remedy=remedy),
        current=_number(faults, "kv_instances.current", current if colon else "0", least=0, remedy=remedy)
        or 0,
    )


def _pools(text: str | None, faults: list[Fault]) -> Mapping[str, PoolChoice] | None:
    if text is None:
        return None
    found: dict[str, PoolChoice] = {}
    for part in text.split(","):
        name, equals, rest = (word.strip() for word in part.partition("="))
        if not equals or name in found:
            faults.append(Fault(where="pools", what="not one pool each", got=repr(part), remedy=_POOLS))
        elif name not in POOLS:
            remedy = names.closest(name, POOLS)
            faults.append(Fault(where="pools", what="no such pool", got=repr(part), remedy=remedy))
        else:
            found[name] = _pool(f"pools.{name}", rest, faults)
    return found


def _pool(where: str, text: str, faults: list[Fault]) -> PoolChoice:
    nodes, colon, mode = text.partition(":")
    if colon and not mode:
        faults.append(Fault(where=where, what="an empty mode", got=repr(text), remedy=_POOLS))
    return PoolChoice(
        nodes=_number(faults, where, nodes or None, least=0, remedy=_POOLS), parallelism=mode or None
    )
