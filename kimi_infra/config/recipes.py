"""Reads a catalogue in the public layout: ``models/``, ``strategies/``, ``kv_store/``, ``taxonomy.yaml``.

A recipe is read when it is first looked up, unless a whole catalogue is to be judged.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, TypeVar

import pydantic

from kimi_infra.config import (
    recipe_building,
    recipe_files,
    recipe_names,
    recipe_parts,
    recipe_references,
    recipe_vouching,
)
from kimi_infra.config import recipe_schema as schema
from kimi_infra.config import recipe_shared as shared
from kimi_infra.config.recipe_files import Warn
from kimi_infra.config.recipe_names import Known
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain.recipe import Catalogue, Recipe
from kimi_infra.errors import Fault, SpecError

M = TypeVar("M", bound=pydantic.BaseModel)

_SHIPPED = pathlib.Path(__file__).parents[1] / "recipes"


@functools.cache
def load_catalogue() -> Catalogue:
    """Return the catalogue that is shipped with the package.

    Each recipe is read and judged at its first lookup.
    """
    return judged_catalogue(_SHIPPED)


def judged_catalogue(root: pathlib.Path) -> Catalogue:
    """Open a catalogue in the public layout; each recipe is read and judged at its first lookup.

    Raises:
        SpecError: every fault of the files that recipes share; a lookup raises every fault of its recipe.
    """
    return _Reading(root=root).lazy()


def read_catalogue(root: pathlib.Path) -> Catalogue:
    """Read all of a catalogue in the public layout, and judge it.

    Raises:
        SpecError: every fault of every file: keys that nobody reads, wrong types, names of what is not there.
    """
    return _Reading(root=root).whole()


def open_catalogue(root: pathlib.Path, warn: Warn) -> Catalogue:
    """Open a catalogue in the public layout as the public page does; each recipe is read at its first lookup.

    Args:
        root: the folder.
        warn: takes, once each, what the page ignores or makes something of: unknown keys, values of
            wrong types, names of what is not there.

    Raises:
        SpecError: every file that recipes share of which nothing can be used. A recipe of which nothing
            can be used, for example because it is not YAML, raises at its lookup.
    """
    return _Reading(root=root, warn=warn).lazy()


class _Recipes(Mapping[str, Recipe]):
    """Recipes by id; each is read once, at its first lookup."""

    def __init__(
        self, files: Mapping[str, pathlib.Path], read: Callable[[str, pathlib.Path], Recipe]
    ) -> None:
        self._files, self._read = files, read
        self._known: dict[str, Recipe | tuple[Fault, ...]] = {}

    def __getitem__(self, key: str) -> Recipe:
        if key not in self._known:
            try:
                self._known[key] = self._read(key, self._files[key])
            except SpecError as error:
                self._known[key] = error.faults
        known = self._known[key]
        if isinstance(known, Recipe):
            return known
        raise SpecError(known)

    def __contains__(self, key: object) -> bool:
        return key in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(Generic[M]):
    """A file that recipes share, with as much of its content as has no fault."""

    root: Place
    content: M


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """All that recipes share."""

    taxonomy: _File[shared.Taxonomy] | None
    strategies: Mapping[str, _File[shared.Strategy] | None]
    """By the name of the file; None where nothing of it is left."""
    stores: Mapping[str, _File[shared.KvStore] | None]

    def known(self) -> Known:
        """Return what recipes can name; a file of which nothing is left counts by its own name."""
        taxonomy = self.taxonomy.content if self.taxonomy else None
        return Known(
            strategies={it.content.name if it else file for file, it in self.strategies.items()},
            profiles=taxonomy.hardware_profiles if taxonomy else {},
            options=taxonomy.kv_offload if taxonomy else {},
            stores={it.content.name if it else file for file, it in self.stores.items()},
        )

    def faults(self, known: Known) -> Iterator[Fault]:
        """Yield names and values that are not there."""
        declared = self.taxonomy.content.values if self.taxonomy else {}
        if self.taxonomy:
            yield from recipe_names.of_taxonomy(self.taxonomy.root, self.taxonomy.content, known)
            yield from recipe_references.faults(self.taxonomy.root, declared)
        for strategy in filter(None, self.strategies.values()):
            yield from recipe_names.of_strategy(strategy.root, strategy.content, known)
            yield from recipe_references.faults(strategy.root, declared)
        for store in filter(None, self.stores.values()):
            yield from recipe_references.faults(store.root, declared)

    @property
    def roots(self) -> Iterator[Place]:
        """All files that were read."""
        if self.taxonomy:
            yield self.taxonomy.root
        yield from (it.root for it in (*self.strategies.values(), *self.stores.values()) if it)

    def catalogue(self, recipes: Mapping[str, Recipe]) -> Catalogue:
        """Return the catalogue of these recipes."""
        taxonomy = (
            self.taxonomy.content
            if self.taxonomy
            else shared.Taxonomy.model_validate({"hardware_profiles": {}})
        )
        strategies = (recipe_parts.strategy(it.content) for it in self.strategies.values() if it)
        stores = (recipe_parts.store(it.content) for it in self.stores.values() if it)
        return Catalogue(
            recipes=recipes,
            strategies={strategy.name: strategy for strategy in strategies},
            profiles=recipe_parts.profiles(taxonomy),
            kv_options=recipe_parts.options(taxonomy),
            kv_stores={store.name: store for store in stores},
            values=recipe_parts.values(taxonomy.values),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One catalogue's folder, and how its faults are met."""

    root: pathlib.Path
    warn: Warn | None = None
    """Takes what the public page ignores; without it that is a fault too."""
    _told: set[str] = field(default_factory=set)
    """Places of which :attr:`warn` has heard."""

    def whole(self) -> Catalogue:
        """Return the catalogue with all of its recipes."""
        faults: list[Fault] = []
        common, known, files = self._common(faults)
        recipes = {key: self._recipe(key, file, known, faults) for key, file in files.items()}
        if faults:
            raise SpecError(tuple(faults))
        return common.catalogue({key: recipe for key, recipe in recipes.items() if recipe})

    def lazy(self) -> Catalogue:
        """Return the catalogue before any of its recipes is read."""
        faults: list[Fault] = []
        common, known, files = self._common(faults)
        if faults:
            raise SpecError(tuple(faults))

        def read(key: str, file: pathlib.Path) -> Recipe:
            faults: list[Fault] = []
            recipe = self._recipe(key, file, known, faults)
            if recipe is None or faults:
                raise SpecError(tuple(faults))
            return recipe

        return common.catalogue(_Recipes(files, read))

    def _common(self, faults: list[Fault]) -> tuple[_Shared, Known, Mapping[str, pathlib.Path]]:
        common = _Shared(
            taxonomy=self._file(shared.Taxonomy, "taxonomy", faults),
            strategies=self._folder(shared.Strategy, "strategies", faults),
            stores=self._folder(shared.KvStore, "kv_store", faults),
        )
        known = common.known()
        self._judged(common.faults(known), faults)
        self._vouched(common.roots, faults, before=0)
        files = recipe_files.listed(self.root / "models")
        if not files:
            remedy = "give a folder with models/, strategies/ and taxonomy.yaml"
            faults.append(Fault(where="models", what="the folder holds no recipe", remedy=remedy))
        return common, known, files

    def _folder(self, model: type[M], name: str, faults: list[Fault]) -> dict[str, _File[M] | None]:
        files = recipe_files.listed(self.root / name)
        return {stem: self._file(model, f"{name}/{stem}", faults) for stem in files}

    def _file(self, model: type[M], name: str, faults: list[Fault]) -> _File[M] | None:
        warn = self.warn and self._tell
        document = recipe_files.opened(self.root / f"{name}.yaml", f"{name}.yaml", faults, warn)
        content = document and document.read(model, faults, warn)
        return _File(root=document.root, content=content) if document and content else None

    def _recipe(self, key: str, file: pathlib.Path, known: Known, faults: list[Fault]) -> Recipe | None:
        warn, before = self.warn and self._tell, len(faults)
        document = recipe_files.opened(file, f"models/{key}.yaml", faults, warn)
        if document is None:
            return None
        if _omni(document.root.plain):
            omni = document.read(schema.OmniRecipe, faults, warn)
            return None if omni is None else recipe_building.refused(key, omni)
        read = document.read(schema.Recipe, faults, warn)
        if read is None:
            return None
        names = recipe_names.of_recipe(document.root, read, known)
        references = recipe_references.faults(document.root, read.values)
        self._judged(chain(names, references), faults)
        self._vouched((document.root,), faults, before=before)
        return recipe_building.recipe(key, read)

    def _judged(self, found: Iterable[Fault], faults: list[Fault]) -> None:
        """Say what is named and not there, unless something else is wrong with the same place."""
        said = self._told | {fault.where for fault in faults}
        for fault in found:
            if fault.where not in said:
                (self.warn or faults.append)(fault)

    def _vouched(self, roots: Iterable[Place], faults: list[Fault], *, before: int) -> None:
        """Hold origins to what is there, once nothing else is wrong with it; the page knows of none."""
        if self.warn is None and len(faults) == before:
            faults.extend(chain.from_iterable(map(recipe_vouching.faults, roots)))

    def _tell(self, fault: Fault) -> None:
        self._told.add(fault.where)
        if self.warn:
            self.warn(fault)


def _omni(plain: Any) -> bool:
    """Tell whether a recipe is for the page's other resolver, whatever else is in it."""
    meta = plain.get("meta") if isinstance(plain, dict) else None
    tasks = meta.get("tasks") if isinstance(meta, dict) else None
    return isinstance(tasks, list) and "omni" in tasks
