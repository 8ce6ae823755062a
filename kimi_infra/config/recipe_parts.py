"""What recipes share, from the format's models to domain values: kinds of nodes, strategies, KV offload."""

from __future__ import annotations

from kimi_infra.config import origins
from kimi_infra.config import recipe_extensions as ours
from kimi_infra.config import recipe_shared as schema
from kimi_infra.config.origins import Origins
from kimi_infra.config.recipe_schema import Companion
from kimi_infra.domain import launch
from kimi_infra.domain import recipe as domain
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.provenance import Origin

_ROUTER_POLICY, _STORE_POLICY = "round_robin", "cache_aware"


def profiles(read: schema.Taxonomy) -> dict[str, HardwareProfile]:
    """Return the kinds of nodes by their keys."""
    return {key: _profile(key, profile) for key, profile in read.hardware_profiles.items()}


def options(read: schema.Taxonomy) -> dict[str, domain.KvOption]:
    """Return the KV offload options by their keys."""
    known = origins.parse("taxonomy: ", read.provenance)
    return {name: _option(name, option, known) for name, option in read.kv_offload.items()}


def values(read: ours.Values) -> dict[str, domain.Value]:
    """Return values that nobody has published, by their names."""
    return {
        name: domain.Value(
            name=name,
            what=value.what,
            find=value.find,
            kind=domain.ValueKind(value.kind),
            origin=Origin(value.origin),
        )
        for name, value in read.items()
    }


def strategy(read: schema.Strategy) -> domain.Strategy:
    """Return a strategy."""
    known = origins.parse(f"strategies/{read.name}: ", read.provenance)
    return domain.Strategy(
        name=read.name,
        title=read.display_name or read.name,
        deploy_type=domain.DeployType(read.deploy_type),
        settings=_settings("", read, known),
        parallel_flag=read.parallel_flag,
        parallelism=read.parallelism,
        roles={
            pool: _role(pool, it, known) for pool in domain.POOLS if (it := getattr(read, pool)) is not None
        },
        router_policy=(read.router and read.router.policy) or _ROUTER_POLICY,
    )


def store(read: schema.KvStore) -> domain.KvStore:
    """Return a KV store."""
    known = origins.parse(f"kv_store/{read.name}: ", read.provenance)
    engine = read.vllm or schema.Engine.model_validate({})
    return domain.KvStore(
        name=read.name,
        settings=_settings("vllm.", engine, known),
        pools={
            pool: known.words(f"pd.{pool}.args", it.args) if it else ()
            for pool, it in ((pool, getattr(read.pd, pool)) for pool in (domain.POOLS if read.pd else ()))
        },
        default_instances=read.default_instances,
        router_policy=(read.router and read.router.policy) or _STORE_POLICY,
        port=engine.port,
    )


def companion(read: Companion | None) -> launch.Companion | None:
    """Return a process beside the engines."""
    return None if read is None else launch.Companion(label=read.label, command=read.command)


def _profile(key: str, read: schema.HardwareProfile) -> HardwareProfile:
    return HardwareProfile(
        key=key,
        title=read.display_name or key,
        brand=read.brand,
        generation=read.generation[0],
        gpus_per_node=read.gpu_count,
        vram_gb=read.vram_gb,
        devices=tuple(read.devices),
        docker_flags=tuple(read.docker_flags),
        scalable=read.scalable,
        restricted=read.restricted,
        preview=read.preview,
    )


def _option(name: str, read: schema.KvOption, known: Origins) -> domain.KvOption:
    path = f"kv_offload.{name}"
    return domain.KvOption(
        name=name,
        settings=domain.Settings(
            args=known.words(f"{path}.args", read.args), env=known.env(f"{path}.env", read.env)
        ),
        strategies=tuple(read.strategies),
        brands=tuple(read.brands),
        requires_opt_in=read.requires_opt_in,
        companion=companion(read.companion),
        pools=tuple(read.pools),
    )


def _role(pool: str, read: schema.Role, known: Origins) -> domain.RoleSettings:
    return domain.RoleSettings(
        settings=_settings(f"{pool}.", read, known),
        parallelism=read.parallelism,
        parallel_flag=read.parallel_flag,
        tp=read.tp,
    )


def _settings(
    path: str, read: schema.Strategy | schema.Role | schema.Engine, known: Origins
) -> domain.Settings:
    return domain.Settings(
        args=known.words(f"{path}vllm_args", read.vllm_args), env=known.env(f"{path}env", read.env)
    )
