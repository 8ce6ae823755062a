"""What a refusal says to do does away with it, and breaks nothing that was right before."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice, PoolChoice
from kimi_infra.errors import Fault
from kimi_infra.planning import refusals
from tests.unit.test_refusals_example import choice, told

pytestmark = pytest.mark.compiler

K31 = "moonshotai/Kimi-K3.1-Pro"
HARDWARE = ("b300", "gb300", "vr200", "mi355x", "810e", "m890")
PLACED = re.compile(
    r"choose (?:hardware (?P<hardware>\S+) with )?(?:strategy )?(?P<strategy>[a-z]+_[a-z_]+)"
    r"(?: (?:with|and) (?:(?P<nodes>\d+) nodes?|(?P<prefill>\d+) prefill and (?P<decode>\d+) decode nodes?))?"
)
SIZES = re.compile(r"give pools\.prefill\.nodes (?P<prefill>\d+) and pools\.decode\.nodes (?P<decode>\d+)")


def changes(before: Choice, fault: Fault) -> dict[str, Any]:
    """Read the first remedy of a fault as changes of the choice."""
    first = fault.remedy
    placed, sizes = PLACED.match(first), SIZES.match(first)
    if first.startswith("leave dcp out"):
        return {"dcp": None}
    if first.startswith("leave ") and fault.where.startswith("features["):
        return {"features": tuple(name for name in before.features or () if name != first.split()[1])}
    if first.startswith("give ") and fault.where in ("dcp", "nodes"):
        return {fault.where: int(first.split()[1].rstrip(","))}
    match = placed or sizes
    assert match, f"a remedy that this test cannot read: {fault}"
    found = {name: word for name, word in match.groupdict().items() if word}
    if "prefill" in found:
        pools = {role: PoolChoice(nodes=int(found.pop(role))) for role in ("prefill", "decode")}
        return {**found, "pools": pools, "nodes": sum(pool.nodes or 0 for pool in pools.values())}
    nodes = {"nodes": int(found.pop("nodes"))} if "nodes" in found else {}
    return {**found, **nodes, "pools": None}


def asked() -> Iterator[Choice]:
    """Yield K3.1 on each hardware of its own, by each strategy that there is."""
    for hardware, strategy, nodes, dcp, features in itertools.product(
        HARDWARE,
        recipes.load_catalogue().strategies,
        range(1, 7),
        (1, 2, 8, 16),
        ((), ("low_latency_decode",)),
    ):
        yield Choice(
            model=K31,
            hardware=hardware,
            strategy=strategy,
            nodes=nodes,
            features=features,
            accept_preview=True,
            dcp=dcp,
        )


def test_each_remedy_mends_its_fault() -> None:
    """Applied, it leaves a fault less at its place, and none at a place where there was none."""
    catalogue, refused = recipes.load_catalogue(), 0
    for before in asked():
        faults = refusals.faults(catalogue, before)
        for fault in faults:
            after = dataclasses.replace(before, **changes(before, fault))
            before_it, after_it = (
                Counter(it.where for it in found) for found in (faults, refusals.faults(catalogue, after))
            )
            assert after_it[fault.where] < before_it[fault.where], (before, str(fault), after_it)
            assert set(after_it) <= set(before_it), (before, str(fault), after_it)
            refused += 1
    assert refused > 4000


def test_a_strategy_is_advised_that_the_rest_of_the_choice_takes() -> None:
    """Where a feature leaves one of two strategies, only that one is named, with its nodes."""
    odd = choice(hardware="gb300", strategy="multi_node_dep", nodes=6, features=("latency",))
    assert told(odd) == [
        (
            "strategy: org/described does not offer strategy multi_node_dep (got multi_node_dep); "
            "choose multi_node_tp with 2 nodes"
        )
    ]
    free = told(dataclasses.replace(odd, features=()))
    assert "multi_node_tp with 2 nodes" in free[0]
    assert "pd_cluster with 2 prefill and 4 decode nodes" in free[0]
