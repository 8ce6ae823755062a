"""One recipe, from the format's models to domain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kimi_infra.config import origins, recipe_parts
from kimi_infra.config import recipe_extensions as ours
from kimi_infra.config import recipe_schema as schema
from kimi_infra.config.origins import Origins
from kimi_infra.domain import recipe as domain
from kimi_infra.domain.provenance import Provenance

_BRANDS = frozenset({"nvidia", "amd", "tpu", "intel"})
_CACHE_MAPS = ("latent_bytes", "index_bytes", "formats")


def recipe(key: str, read: schema.Recipe) -> domain.Recipe:
    """Return a recipe under the id that its path gives it."""
    known = origins.parse("", read.provenance)
    meta, model = read.meta, read.model
    return domain.Recipe(
        key=key,
        model_id=model.model_id,
        title=meta.title or key,
        tasks=tuple(meta.tasks),
        minimum_version=model.min_vllm_version,
        images=_images(model.docker_image),
        image_origins={place: known.of(place) for place in _image_places(read)},
        nightly=model.nightly_required,
        base=domain.Settings(
            args=known.words("model.base_args", model.base_args),
            env=known.env("model.base_env", model.base_env),
        ),
        supports_dcp=model.supports_dcp or read.dcp is not None,
        features={name: _feature(f"features.{name}", it, known) for name, it in read.features.items()},
        opt_in_features=frozenset(read.opt_in_features),
        hardware_opt_in_features={
            hardware: frozenset(features) for hardware, features in read.hardware_opt_in_features.items()
        },
        variants={name: _variant(f"variants.{name}", it, known) for name, it in read.variants.items()},
        strategies=tuple(read.compatible_strategies),
        default_strategy=read.default_strategy,
        default_hardware=meta.default_hardware,
        strategy_hardware=read.strategy_hardware,
        strategy_min_gpus={
            name: floor["*"] if floor.keys() == {"*"} else floor
            for name, floor in read.strategy_min_gpus.items()
        },
        hardware_marks=meta.hardware,
        hardware_overrides=_blocks("hardware_overrides", read.hardware_overrides, known),
        strategy_overrides={
            name: _strategy_override(f"strategy_overrides.{name}", it, known)
            for name, it in read.strategy_overrides.items()
        },
        kv_offload_support=read.kv_offload_support,
        kv_store_hardware=read.kv_cache_strategy_hardware,
        advanced_options=tuple(
            domain.AdvancedOption(
                id=it.id, label=it.label or it.id, args=known.words(f"advanced_options.{index}.args", it.args)
            )
            for index, it in enumerate(read.advanced_options)
        ),
        layouts=None if read.layouts is None else tuple(_layouts(read.layouts)),
        rules=tuple(_rule(it) for it in read.rules),
        reservations=tuple(
            domain.Reservation(when=domain.Terms(meets=it.when.meets), note=it.note)
            for it in read.reservations
        ),
        presets={name: _preset(name, it, known) for name, it in read.presets.items()},
        dcp=_context_parallel(read.dcp, known) if read.dcp else None,
        values=recipe_parts.values(read.values),
        cache=_cache(read.cache, known) if read.cache else None,
    )


def refused(key: str, read: schema.OmniRecipe) -> domain.Recipe:
    """Return a recipe of the page's other resolver, which a choice can name and no more."""
    return domain.Recipe(
        key=key,
        model_id=read.model.model_id or key,
        title=read.meta.title or key,
        tasks=tuple(read.meta.tasks),
    )


def _images(read: schema.Images | None) -> dict[str, str]:
    """Bring all spellings to brand -> image; of two CUDA builds the newer one is taken.

    Beside a brand, builds are nobody's.
    """
    if read is None:
        return {}
    builds = read.nvidia if read.model_fields_set & _BRANDS else read
    nvidia = (builds.cu130 or builds.cu129) if builds else None
    images = {"nvidia": nvidia, "amd": read.amd, "tpu": read.tpu, "intel": read.intel}
    return {brand: image for brand, image in images.items() if image is not None}


def _feature(path: str, read: schema.Feature, known: Origins) -> domain.Feature:
    modes = read.modes or {}
    silent = read.modes == {}  # a feature of which no mode is left has no arguments either
    args = () if silent else known.words(f"{path}.args", read.args)
    return domain.Feature(
        args=args,
        hardware_overrides={} if silent else _replacements(path, read.hardware_overrides, args, known),
        strategies=tuple(read.strategies),
        modes={name: _mode(f"{path}.modes.{name}", it, known) for name, it in modes.items()},
        default_mode=read.default_mode,
        companion=recipe_parts.companion(read.companion),
    )


def _mode(path: str, read: schema.Mode, known: Origins) -> domain.Mode:
    args = known.words(f"{path}.args", read.args)
    return domain.Mode(
        args=args,
        hardware_overrides=_replacements(path, read.hardware_overrides, args, known),
        variants=tuple(read.variants),
        unsupported_hardware=frozenset(key for key, mark in read.hardware.items() if mark == "unsupported"),
    )


def _replacements(
    path: str, read: Mapping[str, schema.ArgsBlock], plain: domain.Words, known: Origins
) -> dict[str, domain.Words]:
    """Return the arguments of each block; one without any keeps the plain ones and hides other blocks."""
    return {
        key: plain if block.args is None else known.words(f"{path}.hardware_overrides.{key}.args", block.args)
        for key, block in read.items()
    }


def _variant(path: str, read: schema.Variant, known: Origins) -> domain.Variant:
    needed = read.precision_hardware
    return domain.Variant(
        precision=read.precision,
        vram_minimum_gb=read.vram_minimum_gb,
        model_id=read.model_id,
        settings=_block(path, read, known),
        images=_images(read.docker_image),
        tp=read.tp,
        supported_hardware=tuple(read.supported_hardware),
        precision_hardware=(
            domain.Constraint(brand=needed.brand, generation=needed.generation) if needed else None
        ),
        default_modes=read.default_modes,
        hardware_overrides={
            key: domain.HardwareOverride(
                settings=_block(f"{path}.hardware_overrides.{key}", block, known), image=block.docker_image
            )
            for key, block in read.hardware_overrides.items()
        },
    )


def _strategy_override(path: str, read: schema.StrategyOverride, known: Origins) -> domain.StrategyOverride:
    return domain.StrategyOverride(
        extra_args=known.words(f"{path}.extra_args", read.extra_args),
        vllm_args=known.words(f"{path}.vllm_args", read.vllm_args),
        env=known.env(f"{path}.env", read.env),
        extra_env=known.env(f"{path}.extra_env", read.extra_env),
        hardware_overrides=_blocks(f"{path}.hardware_overrides", read.hardware_overrides, known),
        tp=read.tp,
        roles={
            pool: _role(f"{path}.{pool}", it, known)
            for pool in domain.POOLS
            if (it := getattr(read, pool)) is not None
        },
        router_dp=read.router.intra_node_data_parallel_size if read.router else None,
        pool_modes=tuple(read.pool_modes),
        own_pool_modes={pool: tuple(modes) for pool, modes in read.own_pool_modes.items()},
    )


def _role(path: str, read: schema.RoleOverride, known: Origins) -> domain.RoleOverride:
    return domain.RoleOverride(
        parallelism=read.parallelism,
        parallel_flag=read.parallel_flag,
        tp=read.tp,
        nodes=read.nodes,
        args=(
            *known.words(f"{path}.extra_args", read.extra_args),
            *known.words(f"{path}.vllm_args", read.vllm_args),
        ),
        env=known.env(f"{path}.env", read.env),
        hardware_overrides=_blocks(f"{path}.hardware_overrides", read.hardware_overrides, known),
    )


def _blocks(
    path: str, read: Mapping[str, schema.HardwareBlock], known: Origins
) -> dict[str, domain.Settings]:
    return {key: _block(f"{path}.{key}", block, known) for key, block in read.items()}


def _block(path: str, read: schema.HardwareBlock | schema.Variant, known: Origins) -> domain.Settings:
    return domain.Settings(
        args=known.words(f"{path}.extra_args", read.extra_args),
        env=known.env(f"{path}.extra_env", read.extra_env),
    )


def _layouts(read: ours.Layouts) -> Iterator[domain.Layout]:
    for strategy, kinds in read.items():
        for hardware, it in kinds.items():
            pools = {str(pool): nodes for pool, nodes in (it.pools or {}).items()}
            yield domain.Layout(
                strategy=strategy,
                hardware=hardware,
                nodes=tuple(sorted(it.nodes or [sum(pools.values())])),
                pools=pools,
                parallelism=it.parallelism,
                note=it.note,
                unless_preset=it.unless_preset,
            )


def _image_places(read: schema.Recipe) -> Iterator[str]:
    """Yield the dotted place of each image of a recipe, as :attr:`domain.Recipe.image_origins` has them."""
    yield from (f"model.docker_image.{brand}" for brand in _images(read.model.docker_image))
    for name, variant in read.variants.items():
        yield from (f"variants.{name}.docker_image.{brand}" for brand in _images(variant.docker_image))
        for key, block in variant.hardware_overrides.items():
            if block.docker_image:
                yield f"variants.{name}.hardware_overrides.{key}.docker_image"


def _rule(read: ours.Rule) -> domain.Rule:
    return domain.Rule(
        when=domain.Terms(meets=read.when.meets),
        needs=_terms(read.needs),
        excludes=_terms(read.excludes),
        because=read.because,
    )


def _terms(read: ours.Terms | None) -> domain.Terms | None:
    return None if read is None else domain.Terms(meets=read.meets)


def _preset(name: str, read: ours.Preset, known: Origins) -> domain.Preset:
    return domain.Preset(
        name=name,
        title=read.title,
        hardware=read.hardware,
        strategy=read.strategy,
        nodes=read.nodes,
        features=tuple(read.features),
        dcp=read.dcp,
        kv_offload=read.kv_offload,
        args=known.words(f"x-presets.{name}.args", read.args),
        provenance=known.of(f"x-presets.{name}"),
    )


def _context_parallel(read: ours.ContextParallel, known: Origins) -> domain.ContextParallel:
    return domain.ContextParallel(sizes=tuple(read.sizes), args=known.words("x-dcp.args", read.args))


def _cache(read: ours.Cache, known: Origins) -> domain.CacheFacts:
    return domain.CacheFacts(
        layers=read.layers,
        latent_bytes=read.latent_bytes,
        index_bytes=read.index_bytes,
        formats={feature: it.switched for feature, it in read.formats.items()},
        state_layers=read.state_layers,
        state_bytes=read.state_bytes,
        context=read.context,
        weights_bytes=read.weights_bytes,
        provenance=_vouchers(read, known),
    )


def _vouchers(read: ours.Cache, known: Origins) -> dict[str, Provenance]:
    fields = [name for name in type(read).model_fields if name not in _CACHE_MAPS]
    fields += [f"{name}.{key}" for name in _CACHE_MAPS for key in getattr(read, name)]
    return {name: known.of(f"x-cache.{name}") for name in fields}
