"""Reads a catalogue in the public layout: ``models/ORG/REPO.yaml``, ``strategies/``, ``taxonomy.yaml``."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import TypeVar

import pydantic
from pydantic_core import ErrorDetails

from kimi_infra.config import origins, yamlfile
from kimi_infra.config import recipe_schema as schema
from kimi_infra.config.origins import Origins
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain import names
from kimi_infra.domain import recipe as domain
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.errors import Fault, SpecError

M = TypeVar("M", bound=pydantic.BaseModel)


@functools.cache
def load_catalogue() -> domain.Catalogue:
    """Return the catalogue that is shipped with the package."""
    return read_catalogue(importlib.resources.files("kimi_infra").joinpath("recipes"))


def read_catalogue(root: Traversable) -> domain.Catalogue:
    """Read a catalogue from any folder in the public layout.

    Raises:
        SpecError: every fault of every file.
    """
    reading = _Reading()
    taxonomy = reading.file(root.joinpath("taxonomy.yaml"), "taxonomy.yaml", schema.Taxonomy)
    strategies = [
        _strategy(read, origins.parse(f"strategies/{read.name}: ", read.provenance))
        for _, read in reading.folder(root.joinpath("strategies"), "strategies", schema.Strategy)
    ]
    recipes = {
        # The public format names a recipe by its path; model_id inside is what is served.
        name.removeprefix("models/").removesuffix(".yaml"): _recipe(read, origins.parse("", read.provenance))
        for name, read in reading.folder(root.joinpath("models"), "models", schema.Recipe)
    }
    if reading.faults:
        raise SpecError(tuple(reading.faults))
    return domain.Catalogue(
        recipes=recipes,
        strategies={strategy.name: strategy for strategy in strategies},
        profiles={key: _profile(key, it) for key, it in taxonomy.hardware_profiles.items()}
        if taxonomy
        else {},
    )


@dataclass(slots=True)
class _Reading:
    """The faults of all files so far."""

    faults: list[Fault] = field(default_factory=list)

    def folder(self, folder: Traversable, name: str, model: type[M]) -> Iterator[tuple[str, M]]:
        """Read all YAML files below a folder, in the order of their names."""
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            path = f"{name}/{entry.name}"
            if entry.is_dir():
                yield from self.folder(entry, path, model)
            elif entry.name.endswith(".yaml") and (read := self.file(entry, path, model)):
                yield path, read

    def file(self, file: Traversable, name: str, model: type[M]) -> M | None:
        """Read one file; None when it has faults."""
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            remedy = "put a UTF-8 text file there"
            self.faults.append(Fault(where=name, what=f"the file cannot be read: {error}", remedy=remedy))
            return None
        root = yamlfile.parse(text, name, self.faults)
        if root is None:
            return None
        try:
            return model.model_validate(root.plain)
        except pydantic.ValidationError as error:
            self.faults.extend(_fault(root, detail, model) for detail in error.errors(include_url=False))
            return None


def _fault(root: Place, detail: ErrorDetails, model: type[pydantic.BaseModel]) -> Fault:
    at = _place(root, detail)
    if detail["type"] == "extra_forbidden":
        remedy = names.closest(str(detail["loc"][-1]), _keys(model))
        return at.fault("this version compiles no such key", remedy, got=False)
    if detail["type"] == "missing":
        return at.fault("missing key", "give it, as docs/recipes.md says", got=False)
    return at.fault(detail["msg"], "write it as docs/recipes.md says")


def _place(root: Place, detail: ErrorDetails) -> Place:
    """Follow pydantic's path as far as the file goes: it also names the members of a union."""
    at = root
    for step in detail["loc"]:
        below = at.under(step)
        if not below.line and detail["type"] != "missing":
            break
        at = below
    return at


def _keys(model: type[pydantic.BaseModel]) -> tuple[str, ...]:
    """All keys of a model and of the models below it, as files write them."""
    definitions = model.model_json_schema().get("$defs", {})
    properties = [
        model.model_json_schema()["properties"],
        *(it.get("properties", {}) for it in definitions.values()),
    ]
    return tuple(key for keys in properties for key in keys)


def _profile(key: str, read: schema.HardwareProfile) -> HardwareProfile:
    return HardwareProfile(
        key=key,
        title=read.display_name or key,
        brand=read.brand,
        generation=read.generation,
        gpus_per_node=read.gpu_count,
        vram_gb=read.vram_gb,
        devices=tuple(read.devices),
        preview=read.preview,
    )


def _strategy(read: schema.Strategy, known: Origins) -> domain.Strategy:
    return domain.Strategy(
        name=read.name,
        title=read.display_name or read.name,
        deploy_type=domain.DeployType(read.deploy_type),
        settings=domain.Settings(
            args=known.words("vllm_args", read.vllm_args), env=known.env("env", read.env)
        ),
    )


def _recipe(read: schema.Recipe, known: Origins) -> domain.Recipe:
    base = domain.Settings(
        args=known.words("model.base_args", read.model.base_args),
        env=known.env("model.base_env", read.model.base_env),
    )
    return domain.Recipe(
        model_id=read.model.model_id,
        title=read.meta.title,
        images=_images(read.model.docker_image),
        nightly=read.model.nightly_required,
        base=base,
        features={name: _feature(f"features.{name}", it, known) for name, it in read.features.items()},
        opt_in_features=frozenset(read.opt_in_features),
        variants={name: _variant(f"variants.{name}", it, known) for name, it in read.variants.items()},
        strategies=tuple(read.compatible_strategies),
        unsupported_hardware=frozenset(
            key for key, mark in read.meta.hardware.items() if mark == "unsupported"
        ),
        hardware_overrides=_blocks("hardware_overrides", read.hardware_overrides, known),
        strategy_overrides={
            name: _strategy_override(f"strategy_overrides.{name}", it, known)
            for name, it in read.strategy_overrides.items()
        },
        layouts=None if read.layouts is None else tuple(_layouts(read.layouts)),
    )


def _images(written: str | dict[str, str | dict[str, str]]) -> dict[str, str]:
    """Bring the three public spellings to brand key -> image; of two CUDA builds the newer one is taken."""
    if isinstance(written, str):
        return {"nvidia": written}
    if "cu130" in written:
        return _images({"nvidia": {key: image for key, image in written.items() if isinstance(image, str)}})
    return {brand: image if isinstance(image, str) else image["cu130"] for brand, image in written.items()}


def _feature(path: str, read: schema.Feature, known: Origins) -> domain.Feature:
    overrides = {
        key: known.words(f"{path}.hardware_overrides.{key}.args", block.args)
        for key, block in read.hardware_overrides.items()
    }
    return domain.Feature(
        args=known.words(f"{path}.args", read.args),
        hardware_overrides=overrides,
        strategies=None if read.strategies is None else tuple(read.strategies),
        unknown=read.unknown,
    )


def _variant(path: str, read: schema.Variant, known: Origins) -> domain.Variant:
    overrides = {
        key: domain.HardwareOverride(
            settings=_block(f"{path}.hardware_overrides.{key}", block, known), image=block.docker_image
        )
        for key, block in read.hardware_overrides.items()
    }
    settings = domain.Settings(
        args=known.words(f"{path}.extra_args", read.extra_args),
        env=known.env(f"{path}.extra_env", read.extra_env),
    )
    return domain.Variant(
        precision=read.precision,
        vram_minimum_gb=read.vram_minimum_gb,
        model_id=read.model_id,
        settings=settings,
        supported_hardware=tuple(read.supported_hardware),
        hardware_overrides=overrides,
    )


def _strategy_override(path: str, read: schema.StrategyOverride, known: Origins) -> domain.StrategyOverride:
    args = (
        *known.words(f"{path}.extra_args", read.extra_args),
        *known.words(f"{path}.vllm_args", read.vllm_args),
    )
    env = (*known.env(f"{path}.env", read.env), *known.env(f"{path}.extra_env", read.extra_env))
    return domain.StrategyOverride(
        settings=domain.Settings(args=args, env=env),
        hardware_overrides=_blocks(f"{path}.hardware_overrides", read.hardware_overrides, known),
    )


def _blocks(
    path: str, read: Mapping[str, schema.HardwareBlock], known: Origins
) -> dict[str, domain.Settings]:
    return {key: _block(f"{path}.{key}", block, known) for key, block in read.items()}


def _block(path: str, read: schema.HardwareBlock, known: Origins) -> domain.Settings:
    return domain.Settings(
        args=known.words(f"{path}.extra_args", read.extra_args),
        env=known.env(f"{path}.extra_env", read.extra_env),
    )


def _layouts(read: Mapping[str, Mapping[str, list[int]]]) -> Iterator[domain.Layout]:
    for strategy, kinds in read.items():
        for hardware, nodes in kinds.items():
            yield domain.Layout(strategy=strategy, hardware=hardware, nodes=tuple(sorted(nodes)))
