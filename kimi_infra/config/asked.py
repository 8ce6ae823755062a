"""An entry of deployment.yml → what it asks of a recipe, as far as it could be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kimi_infra.config.agreement import DeploymentDraft
from kimi_infra.config.values import fill_in
from kimi_infra.config.yamlfile import Place
from kimi_infra.domain.inventory import KV_TIER, KV_TIER_BYTES, Choice, PoolChoice
from kimi_infra.domain.recipe import BASELINE, POOLS

_CHOSEN = ("features", "feature_modes", "preset", "dcp", "values", "advanced_args")
"""Keys of an entry that are a field of the choice, as they stand; all may be absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The readable part of an entry of deployment.yml that a catalogue of recipes can judge."""

    index: int
    choice: Choice
    hosts: tuple[str, ...]
    """Names of the hosts that serve; empty while they are not known."""
    waiting: tuple[str, ...]
    """Names of values that are still to be filled in."""
    unread: frozenset[str]
    """Fields of the choice that hold a stand-in, because their own value has a fault already."""


def of(drafts: Iterable[DeploymentDraft]) -> Iterator[Asked]:
    """Yield the entries of which enough could be read."""
    for draft in drafts:
        model = draft.model
        if None in (model.model, model.hardware, model.strategy, model.variant, model.accept_preview):
            continue
        yield Asked(
            index=draft.index,
            choice=choice(draft),
            hosts=tuple(host.name for host in draft.hosts or ()),
            waiting=tuple(name for name, given in (model.values or {}).items() if _waits(given)),
            unread=frozenset(_unread(draft)),
        )


def _unread(draft: DeploymentDraft) -> Iterator[str]:
    model, at = draft.model, draft.at
    if not (draft.hosts or model.nodes):
        yield "nodes"
    for name in _CHOSEN:
        if _faulty(getattr(model, name), at.under(name)):
            yield name
    if draft.clustered and (draft.pools is None or _unread_pools(draft)):
        yield from ("nodes", "pools")


def _unread_pools(draft: DeploymentDraft) -> bool:
    asked, at = draft.model.pools, draft.at.under("pools")
    pools = {name: getattr(asked, name, None) for name in POOLS}
    return any(
        _faulty(pool, at.under(name))
        or _faulty(getattr(pool, "parallelism", None), at.under(name, "parallelism"))
        for name, pool in pools.items()
    )


def _faulty(value: object, at: Place) -> bool:
    """Tell whether something stands at a place that could not be read."""
    return value is None and at.value is not None


def choice(draft: DeploymentDraft) -> Choice:
    """Return what an entry asks of its recipe; what could not be read is absent."""
    model = draft.model
    given = {name: value for name, value in (model.values or {}).items() if not _waits(value)}
    tier = tier_size(draft)
    return Choice(
        model=model.model,
        hardware=model.hardware,
        strategy=model.strategy,
        nodes=model.nodes or len(draft.hosts or ()) or 1,
        features=None if model.features is None else tuple(model.features),
        variant=model.variant,
        accept_preview=model.accept_preview,
        feature_modes=model.feature_modes or {},
        preset=None if model.preset == BASELINE else model.preset,
        dcp=model.dcp,
        kv_offload=KV_TIER if tier or _open_tier(draft) else None,
        pools=_pool_choices(draft),
        advanced_args=tuple(model.advanced_args or ()),
        values={**given, KV_TIER_BYTES: str(tier)} if tier else given,
    )


def _pool_choices(draft: DeploymentDraft) -> dict[str, PoolChoice] | None:
    if draft.pools is None:
        return None
    modes = {name: getattr(draft.model.pools, name, None) for name in draft.pools}
    return {
        name: PoolChoice(nodes=len(hosts), parallelism=getattr(modes[name], "parallelism", None))
        for name, hosts in draft.pools.items()
    }


def _waits(given: object) -> bool:
    return isinstance(given, str) and fill_in(given) is not None


def tier_size(draft: DeploymentDraft) -> int | None:
    """Return the bytes of a tier of a stated size; None without a tier, or while its size is to be given."""
    asked = draft.model.offload
    size = asked.per_rank if asked and asked.policy == "fixed" else None
    return size if isinstance(size, int) else None


def _open_tier(draft: DeploymentDraft) -> bool:
    """Tell whether there is a tier whose size is still to be filled in."""
    asked = draft.model.offload
    return bool(asked and asked.policy == "fixed" and _waits(asked.per_rank))
