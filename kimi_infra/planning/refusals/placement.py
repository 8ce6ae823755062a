"""Whether a strategy on a number of nodes is described, fits its deploy type, and holds the model."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.recipe import DeployType, Strategy
from kimi_infra.errors import Fault
from kimi_infra.planning import defaults
from kimi_infra.planning.refusals import nearest, terms, wording
from kimi_infra.planning.refusals.asked import Asked


def faults(asked: Asked, facts: terms.Facts) -> Iterator[Fault]:
    """Yield what speaks against the placement; pools are looked at by themselves."""
    profile, strategy = asked.profile, asked.strategy
    if profile is None:
        yield from anywhere(asked)
        return
    if profile.preview and not asked.choice.accept_preview:
        yield _preview(profile)
    if strategy is None:
        return
    if not asked.described:
        yield _not_described(asked, profile, facts)
    elif asked.choice.nodes > 0 and not asked.clustered:
        wrong = _nodes(asked, strategy, profile, facts)
        if wrong:
            yield wrong
        else:
            yield from _held(asked, strategy, profile)


def anywhere(asked: Asked) -> Iterator[Fault]:
    """Yield what is wrong with the number of nodes on any hardware."""
    nodes, strategy = asked.choice.nodes, asked.strategy
    if strategy is None or nodes < 1 or asked.clustered:
        return
    layouts = [it for it in asked.recipe.layouts or () if it.strategy == strategy.name]
    described = sorted({number for layout in layouts for number in layout.nodes})
    if not described:
        wrong = _spread(strategy, nodes)
        yield from (wrong,) if wrong else ()
    elif nodes not in described:
        remedy = f"give {wording.any_of(map(str, described))}"
        yield wording.fault("nodes", f"{_do_not_fit(nodes)} strategy {strategy.name}", str(nodes), remedy)


def _preview(profile: HardwareProfile) -> Fault:
    what = f"hardware {profile.key} is a preview, published as neither tuned nor verified"
    remedy = "write accept_preview: true, or choose other hardware"
    return wording.fault("accept_preview", what, "false", remedy)


def _not_described(asked: Asked, profile: HardwareProfile, facts: terms.Facts) -> Fault:
    choice = asked.choice
    what = f"strategy {choice.strategy} on hardware {choice.hardware} is not described for {choice.model}"
    if not asked.clustered and choice.nodes > 0:
        what += "".join(f", and {lack}" for lack in _lacking(asked, profile, choice.nodes))
    what += wording.said(terms.sentences(asked.recipe, facts))
    return wording.fault("strategy", what, choice.strategy, nearest.remedy(asked))


def _nodes(asked: Asked, strategy: Strategy, profile: HardwareProfile, facts: terms.Facts) -> Fault | None:
    """Return what is wrong with the number of nodes as such."""
    nodes = asked.choice.nodes
    if asked.layouts:
        described = sorted({number for layout in asked.layouts for number in layout.nodes})
        if nodes in described:
            return None
        said = wording.said(terms.sentences(asked.recipe, facts))
        what = f"{_do_not_fit(nodes)} strategy {strategy.name} on hardware {profile.key}"
        near = min(described, key=lambda number: abs(number - nodes))
        return wording.fault("nodes", f"{what}{said}", str(nodes), f"give {near}")
    single = strategy.deploy_type is DeployType.SINGLE_NODE
    if not single and not profile.scalable:
        what = f"strategy {strategy.name} takes several nodes, and hardware {profile.key} is one by itself"
        return wording.fault("strategy", what, strategy.name, nearest.remedy(asked))
    return _spread(strategy, nodes)


def _spread(strategy: Strategy, nodes: int) -> Fault | None:
    """Return why a strategy of one node, or of several, does not take a number of them."""
    single = strategy.deploy_type is DeployType.SINGLE_NODE
    if single == (nodes == 1):
        return None
    what = f"{_do_not_fit(nodes)} strategy {strategy.name}"
    remedy = "give 1, or choose a multi-node strategy" if single else "give at least 2"
    return wording.fault("nodes", what, str(nodes), remedy)


def _held(asked: Asked, strategy: Strategy, profile: HardwareProfile) -> Iterator[Fault]:
    nodes = asked.choice.nodes
    floor = defaults.floor(asked.recipe, strategy.name, profile.key) if asked.recipe.strategy_min_gpus else 0
    if nodes * profile.gpus_per_node < floor:
        have = f"{nodes * profile.gpus_per_node} of {wording.counted(nodes, 'node')} of {profile.key}"
        what = f"strategy {strategy.name} needs {floor} GPUs, more than the {have}"
        yield wording.fault("nodes", what, str(nodes), _more(asked, strategy, profile))
    for what in _lacking(asked, profile, nodes):
        yield wording.fault("nodes", what, str(nodes), _more(asked, strategy, profile))


def _lacking(asked: Asked, profile: HardwareProfile, nodes: int) -> Iterator[str]:
    least = asked.variant.vram_minimum_gb if asked.variant else 0
    if profile.vram_gb and nodes * profile.vram_gb < least:
        whose = f"{wording.counted(nodes, 'node')} of {profile.key}"
        yield lacking(asked.choice.variant, least, whose, nodes * profile.vram_gb)


def _do_not_fit(nodes: int) -> str:
    return "1 node does not fit" if nodes == 1 else f"{nodes} nodes do not fit"


def lacking(variant: str, least: float, whose: str, have: float) -> str:
    """Say that the weights do not fit."""
    return f"variant {variant} needs {least} GB of accelerator memory, more than the {have} GB of {whose}"


def _more(asked: Asked, strategy: Strategy, profile: HardwareProfile) -> str:
    """Say how many nodes would do, or what else where the strategy takes no more."""
    needed = nearest.fitting_nodes(asked, profile, strategy.name)
    several = strategy.deploy_type is DeployType.MULTI_NODE and profile.scalable
    return f"give {needed}" if several and not asked.layouts else nearest.remedy(asked)
