"""The public rules: recipe + choice → what each node runs, in the recipe page's own terms.

Nothing is refused here: what is unknown or does not apply is left out, as on the public page
(:mod:`kimi_infra.planning.refusals` is what makes an error of it).
The order of the groups is the public format's: base, variant, strategy and parallel flags, the recipe's
override for the strategy, hardware, advanced, features, KV offload.
"""

from __future__ import annotations

from collections.abc import Iterator

from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.launch import Companion, Resolution
from kimi_infra.domain.recipe import Catalogue, DeployType
from kimi_infra.planning import cluster, engine
from kimi_infra.planning.selection import Selected, selected


def compose(catalogue: Catalogue, choice: Choice, *, strict: bool) -> Resolution:
    """Compile a choice.

    Raises:
        SpecError: the recipe is unknown or cannot be read.
    """
    chosen = selected(catalogue, choice, strict=strict)
    launches, router = cluster.cluster(chosen) if chosen.cluster else engine.engine(chosen)
    return Resolution(
        launches=launches,
        router=router,
        companions=tuple(_companions(chosen)),
        needs=chosen.filling.needs(),
        used=frozenset(chosen.filling.used),
    )


def _companions(chosen: Selected) -> Iterator[Companion]:
    """Yield helper processes: only an engine on one node has them."""
    multi = chosen.strategy.deploy_type is DeployType.MULTI_NODE and chosen.choice.nodes > 1
    if chosen.cluster or multi or chosen.kv_store:
        return
    for feature in chosen.features:
        if feature.companion:
            yield feature.companion
    if chosen.kv_option and chosen.kv_option.companion:
        yield chosen.kv_option.companion
