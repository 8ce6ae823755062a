"""The pools of a prefill/decode cluster: names, sizes, modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.inventory import PoolChoice
from kimi_infra.domain.recipe import POOLS, DeployType, Strategy
from kimi_infra.errors import Fault
from kimi_infra.planning import defaults, parallel
from kimi_infra.planning.refusals import nearest, placement, terms, wording
from kimi_infra.planning.refusals.asked import Asked

MODES = ("tp", "tep", "dep")
_NOTHING_ASKED = PoolChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """A choice of two pools on hardware that takes them."""

    asked: Asked
    strategy: Strategy
    profile: HardwareProfile
    facts: terms.Facts

    @property
    def sizes(self) -> Mapping[str, int | None]:
        """Nodes by pool as asked for, else as the public rules share them out."""
        pools = self.asked.pools
        if pools:
            return {role: pools.get(role, _NOTHING_ASKED).nodes for role in POOLS}
        return dict.fromkeys(POOLS, 1 if self.asked.choice.nodes > 1 else 0)

    @property
    def said(self) -> str:
        """What the publisher says about it, in brackets."""
        return wording.said(terms.sentences(self.asked.recipe, self.facts))

    def wanted(self, role: str) -> int:
        """Return the nodes that a pool should have."""
        described = self.asked.layouts[0].pools if self.asked.layouts else {}
        return described.get(role) or nearest.pool_nodes(self.asked, self.strategy, self.profile, role)


def faults(asked: Asked, facts: terms.Facts) -> Iterator[Fault]:
    """Yield what is wrong with the pools."""
    yield from names(asked)
    if asked.strategy is None:
        return
    if not asked.clustered:
        if asked.pools:
            what = f"pools are given, and strategy {asked.strategy.name} runs one engine"
            yield wording.fault("pools", what, ", ".join(asked.pools), _one_engine(asked))
    elif asked.profile is not None and asked.described:
        yield from _pools(_Cluster(asked=asked, strategy=asked.strategy, profile=asked.profile, facts=facts))


def names(asked: Asked) -> Iterator[Fault]:
    """Yield what is wrong with the pools in any cluster."""
    for name, pool in asked.pools.items():
        if name not in POOLS:
            yield wording.unknown(f"pools.{name}", "pool", name, POOLS)
        elif pool.nodes is not None and pool.nodes < 0:
            what = f"pool {name} cannot have less than no nodes"
            yield wording.fault(f"pools.{name}.nodes", what, str(pool.nodes), "give at least 1")


def _one_engine(asked: Asked) -> str:
    for name in asked.recipe.offered_strategies:
        found = asked.catalogue.strategies.get(name)
        if found and found.deploy_type is DeployType.PD_CLUSTER:
            return f"leave them out, or choose strategy {name}"
    return "leave them out"


def _pools(cluster: _Cluster) -> Iterator[Fault]:
    sizes = {role: nodes for role, nodes in cluster.sizes.items() if nodes is not None and nodes >= 0}
    wrong = tuple(_sizes(cluster, sizes))
    yield from wrong
    for role in POOLS:
        yield from _one(cluster, role, None if wrong else sizes.get(role))


def _sizes(cluster: _Cluster, sizes: Mapping[str, int]) -> Iterator[Fault]:
    """Yield what is wrong with the sizes of the pools as such."""
    for role, nodes in cluster.sizes.items():
        if nodes is None:
            what = f"the number of nodes of pool {role} is missing"
            yield wording.fault(f"pools.{role}.nodes", what, None, f"give {cluster.wanted(role)}")
    if cluster.asked.layouts:
        yield from _not_described(cluster, sizes)
    elif not cluster.asked.pools and cluster.asked.choice.nodes > len(POOLS):
        what = "without pools there is one node for each of them, or one for both"
        yield wording.fault("pools", what, _counted(cluster), f"give {_both(cluster)}")
    elif len(sizes) == len(POOLS):
        yield from _together(cluster, sizes)


def _not_described(cluster: _Cluster, sizes: Mapping[str, int]) -> Iterator[Fault]:
    """Yield how the sizes differ from those that the publisher describes."""
    layouts, place = cluster.asked.layouts, f"hardware {cluster.profile.key}"
    described = layouts[0].pools
    if any(layout.pools == sizes for layout in layouts):
        return
    if not cluster.asked.pools:
        what = f"{wording.pools(described)} are described on {place}, and no pools are given{cluster.said}"
        yield wording.fault("pools", what, _counted(cluster), f"give {_both(cluster)}")
        return
    for role, nodes in sizes.items():
        if nodes != described.get(role):
            what = f"pool {role} with {wording.counted(nodes, 'node')} is not described on {place}"
            remedy = f"give {described.get(role)}"
            yield wording.fault(f"pools.{role}.nodes", f"{what}{cluster.said}", str(nodes), remedy)


def _together(cluster: _Cluster, sizes: Mapping[str, int]) -> Iterator[Fault]:
    """Yield what is wrong with the sizes of both pools together."""
    profile, name = cluster.profile, cluster.strategy.name
    shared = [role for role, nodes in sizes.items() if nodes == 0]
    floor = defaults.floor(cluster.asked.recipe, name, profile.key)
    gpus = max(1, sum(sizes.values())) * profile.gpus_per_node
    if len(shared) == 1:
        what = f"pool {shared[0]} shares one node with the other pool, which has nodes of its own"
        yield wording.fault(f"pools.{shared[0]}.nodes", what, "0", f"give {cluster.wanted(shared[0])}")
    elif not shared and not profile.scalable:
        what = f"hardware {profile.key} is one node by itself, and two pools take several"
        yield wording.fault("pools", what, wording.pools(sizes), nearest.remedy(cluster.asked))
    elif gpus < floor:
        what = f"strategy {name} needs {floor} GPUs, more than the {gpus} of both pools"
        needed = nearest.fitting_nodes(cluster.asked, profile, name)
        yield wording.fault("pools", what, wording.pools(sizes), f"give {needed} nodes in all")


def _counted(cluster: _Cluster) -> str:
    return wording.counted(cluster.asked.choice.nodes, "node")


def _both(cluster: _Cluster) -> str:
    return wording.all_of([f"pools.{role}.nodes {cluster.wanted(role)}" for role in POOLS])


def _one(cluster: _Cluster, role: str, nodes: int | None) -> Iterator[Fault]:
    """Yield what is wrong with one pool's mode, and with its size for that mode."""
    where = f"pools.{role}.parallelism"
    mode = nearest.pool_mode(cluster.asked, cluster.strategy, role)
    allowed = parallel.pool_modes(cluster.asked.recipe, role)
    if mode not in MODES:
        yield wording.unknown(where, "mode of a pool", mode, allowed)
    elif mode not in allowed:
        what = f"pool {role} does not take mode {mode}{cluster.said}"
        yield wording.fault(where, what, mode, f"choose {wording.any_of(allowed)}")
    elif nodes is not None:
        if nodes == 0 and mode == "dep":
            what = (
                f"pool {role} shares a node, for half of whose GPUs the public rules write a wrong DEP size"
            )
            others = "".join(f", or choose {other}" for other in allowed if other != mode)
            yield wording.fault(where, what, mode, f"give it nodes of its own{others}")
        yield from _held(cluster, role, mode, nodes)


def _held(cluster: _Cluster, role: str, mode: str, nodes: int) -> Iterator[Fault]:
    """Yield what is wrong with a pool's GPUs and memory; of a shared node each pool has half."""
    asked, profile = cluster.asked, cluster.profile
    where, got = f"pools.{role}.nodes", str(nodes)
    remedy = f"give {nearest.fitting_nodes(asked, profile, mode)}"
    floor = defaults.floor(asked.recipe, mode, profile.key) if asked.recipe.strategy_min_gpus else 0
    gpus = nodes * profile.gpus_per_node or profile.gpus_per_node // 2
    if gpus < floor:
        what = f"mode {mode} of pool {role} needs {floor} GPUs, more than its {gpus}"
        yield wording.fault(where, what, got, remedy)
    least = asked.variant.vram_minimum_gb if asked.variant else 0
    have = (profile.vram_gb or 0) * nodes or (profile.vram_gb or 0) // 2
    if have and have < least:
        share = wording.counted(nodes, "node") if nodes else "half a node"
        whose = f"pool {role} on {share} of {profile.key}"
        what = placement.lacking(asked.choice.variant, least, whose, have)
        yield wording.fault(where, what, got, remedy)
