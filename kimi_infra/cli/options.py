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
from kimi_infra.config import recipes
from kimi_infra.domain import names
from kimi_infra.domain.inventory import Choice, Instances, PoolChoice
from kimi_infra.domain.launch import Resolution
from kimi_infra.domain.recipe import BASELINE, POOLS, Catalogue, ValueKind
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import defaults, resolve

_BY_OPERATOR = frozenset({"COMMANDLINE", "ENVIRONMENT"})
"""Where typer says that such a parameter was not left at its default."""
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_OFFLOAD_BYTES = "kv_offload_bytes"
_NAMES = {"feature_modes": "feature_mode", "advanced_args": "arg", "values": "value"}
"""Fields of a choice whose option is called something else."""
_FIELD = re.compile("|".join(rf"\b{it.name}\b" for it in dataclasses.fields(Choice) if "_" in it.name))
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
        int | None, typer.Option(help="Number of nodes. Default: the one for hardware and strategy.")
    ] = None
    features: Annotated[
        str | None, typer.Option(help="Comma-separated; none for none. Default: the recipe's list.")
    ] = None
    variant: Annotated[str, typer.Option(help="Variant of the recipe.")] = "default"
    preset: Annotated[str | None, typer.Option(help="Tuned configuration; baseline for none.")] = None
    dcp: Annotated[int | None, typer.Option(help="Decode context parallel size.")] = None
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
        bool, typer.Option(help="Leave out what does not fit, as the public page does, instead of refusing.")
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


def catalogue(path: Path | None) -> Catalogue:
    """Return the catalogue of a folder, or the shipped one.

    What the public page ignores in a folder's files is said once each.

    Raises:
        SpecError: holds every fault of what its recipes share.
    """
    if path is None:
        return recipes.load_catalogue()
    if not path.is_dir():
        remedy = "give a folder with models/, strategies/ and taxonomy.yaml"
        raise SpecError((Fault(where="--catalog", what="no such folder", got=str(path), remedy=remedy),))
    return recipes.open_catalogue(path, lambda fault: common.tell(f"ignored: {fault}"))


def choice(given: Given, known: Catalogue) -> Choice:
    """Return the choice that the options name, complete.

    Raises:
        SpecError: holds every fault, in the words of the options.
    """
    faults: list[Fault] = []
    read = _read(given, known, faults)
    if faults:
        raise SpecError(tuple(faults))
    absent = {name for name in ("hardware", "strategy", "nodes") if getattr(given, name) is None}
    with in_words_of_options():
        complete = defaults.filled if given.as_published else defaults.described
        return complete(known, read, absent)


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
    """Return a fault of a choice with its option as its place, and options in its remedy."""
    name, _, below = fault.where.partition(".")
    name = name.partition("[")[0]
    where = option(_OFFLOAD_BYTES) if below == _OFFLOAD_BYTES else option(_NAMES.get(name, name))
    if name in {"values", "feature_modes"} and below not in {"", _OFFLOAD_BYTES}:
        where = f"{where} {below}"
    remedy = fault.remedy.replace("write accept_preview: true", "give --accept-preview")
    remedy = _FIELD.sub(lambda found: option(_NAMES.get(found[0], found[0])), remedy)
    got = None if name == "accept_preview" else fault.got
    return dataclasses.replace(fault, where=where, got=got, remedy=remedy)


def option(name: str) -> str:
    """Return the option of a parameter."""
    return f"--{name.replace('_', '-')}"


def _parameters() -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(Given, include_extras=True)
    for it in dataclasses.fields(Given):
        default = it.default if it.default_factory is dataclasses.MISSING else it.default_factory()
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(it.name, kind, default=default, annotation=hints[it.name])


def _read(given: Given, known: Catalogue, faults: list[Fault]) -> Choice:
    return Choice(
        model=given.model,
        hardware=given.hardware or "",
        strategy=given.strategy or "",
        nodes=given.nodes or 0,
        features=_features(given.features, faults),
        variant=given.variant,
        accept_preview=given.accept_preview,
        feature_modes=dict(_pairs("feature_mode", given.feature_mode, faults)),
        preset=None if given.preset == BASELINE else given.preset,
        dcp=given.dcp,
        kv_offload=given.kv_offload,
        kv_instances=_instances(given.kv_instances, faults),
        pools=_pools(given.pools, faults),
        advanced_args=tuple(given.arg),
        values=_values(given, known, faults),
    )


def _features(text: str | None, faults: list[Fault]) -> tuple[str, ...] | None:
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(","))
    if "" in found:
        remedy = "give none for no feature, or names with a comma between two"
        faults.append(Fault(where="--features", what="an empty name", got=repr(text), remedy=remedy))
    return () if found == ("none",) else found


def _pairs(name: str, texts: list[str], faults: list[Fault]) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, equals, value = text.partition("=")
        if equals and key:
            yield key, value
        else:
            remedy = f"give {option(name)} NAME=TEXT"
            faults.append(Fault(where=option(name), what="no NAME=TEXT", got=repr(text), remedy=remedy))


def _values(given: Given, known: Catalogue, faults: list[Fault]) -> Mapping[str, str | tuple[str, ...]]:
    """Read values; those that stand for several words are split as a shell would, and may be repeated."""
    recipe = known.recipe(given.model) if given.model in known.recipes else None
    declared = {**known.values, **(recipe.values if recipe else {})}
    found: dict[str, str | tuple[str, ...]] = {}
    for name, text in _pairs("value", given.value, faults):
        before = found.get(name)
        if name in declared and declared[name].kind is ValueKind.ARGS:
            found[name] = (*(before or ()), *_split(text, faults))
        elif before is None:
            found[name] = text
        else:
            what, remedy = f"{name} is given twice", "give it once"
            faults.append(Fault(where="--value", what=what, got=repr(text), remedy=remedy))
    if given.kv_offload_bytes is not None:
        if _OFFLOAD_BYTES in found:
            what = f"the value {_OFFLOAD_BYTES} is given by --value too"
            faults.append(Fault(where=option(_OFFLOAD_BYTES), what=what, remedy="give one of both"))
        found[_OFFLOAD_BYTES] = _bytes(given.kv_offload_bytes, faults)
    return found


def _split(text: str, faults: list[Fault]) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        what, remedy = f"words that cannot be told apart: {error}", "close every quote"
        faults.append(Fault(where="--value", what=what, got=repr(text), remedy=remedy))
        return []


def _bytes(text: str, faults: list[Fault]) -> str:
    match = re.fullmatch(r"(\d{1,15}) ?([A-Za-z]*)", text, re.ASCII)
    if match is None or match[2] not in _UNITS:
        remedy = f"give a number, or one with a unit ({', '.join(filter(None, _UNITS))})"
        where = option(_OFFLOAD_BYTES)
        faults.append(Fault(where=where, what="not a size", got=repr(text), remedy=remedy))
        return ""
    return str(int(match[1]) * _UNITS[match[2]])


def _instances(text: str | None, faults: list[Fault]) -> Instances | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,4})(?::(\d{1,4}))?", text, re.ASCII)
    if match is None:
        remedy = "give COUNT, or COUNT:CURRENT with the first engine as 0"
        faults.append(Fault(where="--kv-instances", what="no number", got=repr(text), remedy=remedy))
        return None
    return Instances(count=int(match[1]), current=int(match[2] or 0))


def _pools(text: str | None, faults: list[Fault]) -> Mapping[str, PoolChoice] | None:
    if text is None:
        return None
    found: dict[str, PoolChoice] = {}
    for part in text.split(","):
        match = re.fullmatch(r" ?(\w+)=(\d{1,4})?(?::([a-z]+))? ?", part, re.ASCII)
        if match is None or match[1] not in POOLS or match[1] in found:
            what, remedy = "not one pool each", "give prefill=NODES[:MODE],decode=NODES[:MODE]"
            if match and match[1] not in POOLS:
                what, remedy = "no such pool", names.closest(match[1], POOLS)
            faults.append(Fault(where="--pools", what=what, got=repr(part), remedy=remedy))
        else:
            nodes = None if match[2] is None else int(match[2])
            found[match[1]] = PoolChoice(nodes=nodes, parallelism=match[3])
    return found
