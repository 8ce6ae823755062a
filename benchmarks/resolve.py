"""How fast choices are compiled: strictly, as published through the batch, and how soon a plan is on screen.

One core, no host and no network. The choices are all of the shipped Kimi-K3.1-Pro that can be written down:
hardware x strategy x features x context parallelism x KV offload, refused ones included.

    .venv/bin/python benchmarks/resolve.py [ROUNDS]

The measurements alternate, round by round, so that a machine that slows down slows all of them;
each ratio is taken within the rounds of one run.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kimi_infra.config import recipes
from kimi_infra.deploy import batch
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Catalogue, DeployType
from kimi_infra.errors import SpecError
from kimi_infra.planning import resolve

ROOT = Path(__file__).parents[1]
MODEL = "moonshotai/Kimi-K3.1-Pro"
PLAN = (str(Path(sys.executable).with_name("kimi-infra")), "plan", "inventories/gb300-2node")
BARE = (sys.executable, "-c", "pass")


def choices(catalogue: Catalogue) -> Iterator[Choice]:
    """Yield the whole product."""
    recipe = catalogue.recipe(MODEL)
    default = tuple(name for name in recipe.features if name not in recipe.opt_in_features)
    opted = [name for name in recipe.features if name in recipe.opt_in_features]
    features = [
        (*default, *chosen)
        for size in range(len(opted) + 1)
        for chosen in itertools.combinations(opted, size)
    ]
    sizes = (None, *(recipe.dcp.sizes if recipe.dcp else ()))
    offload = (None, *catalogue.kv_options)
    kinds = dict.fromkeys(layout.hardware for layout in recipe.layouts or ())
    for hardware, strategy in itertools.product(kinds, recipe.offered_strategies):
        nodes = _nodes(catalogue, strategy, hardware)
        for chosen, dcp, option in itertools.product(features, sizes, offload):
            yield Choice(
                model=MODEL,
                hardware=hardware,
                strategy=strategy,
                nodes=nodes,
                features=chosen,
                dcp=dcp,
                kv_offload=option,
                accept_preview=True,
            )


def _nodes(catalogue: Catalogue, strategy: str, hardware: str) -> int:
    """Return the placement's nodes, else the fewest that the strategy could do with."""
    for layout in catalogue.recipe(MODEL).layouts or ():
        if (layout.strategy, layout.hardware) == (strategy, hardware):
            return layout.nodes[0]
    return 1 if catalogue.strategies[strategy].deploy_type is DeployType.SINGLE_NODE else 2


def compiled(catalogue: Catalogue, asked: Sequence[Choice]) -> list[Choice]:
    """Compile every choice strictly; return those that render."""
    renders = []
    for choice in asked:
        try:
            resolve.resolve(catalogue, choice)
        except SpecError:
            continue
        renders.append(choice)
    return renders


def answered(catalogue: Catalogue, lines: Sequence[bytes]) -> int:
    """Answer every line of a batch; return the bytes written."""
    return sum(map(len, batch.answers(catalogue, lines)))


def started(command: Sequence[str]) -> None:
    """Run a command to its end."""
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def seconds(work: Callable[[], object]) -> float:
    """Return how long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def line(choice: Choice) -> bytes:
    """Return a choice as the batch reads it; what the public format has no key for is left out."""
    written = {
        "recipe": choice.model,
        "hardware": choice.hardware,
        "strategy": choice.strategy,
        "nodes": choice.nodes,
        "features": choice.features,
        "kv_offload": choice.kv_offload,
    }
    return json.dumps(written).encode() + b"\n"


def main() -> None:
    """Measure in rounds and print one row a measurement."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    catalogue = recipes.load_catalogue()
    asked = list(choices(catalogue))
    lines = [line(choice) for choice in asked]
    renders = compiled(catalogue, asked)
    work: dict[str, Callable[[], object]] = {
        "strict": lambda: compiled(catalogue, asked),
        "renders": lambda: compiled(catalogue, renders),
        "batch": lambda: answered(catalogue, lines),
        "plan": lambda: started(PLAN),
        "bare": lambda: started(BARE),
    }
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, each in work.items():
            taken[name].append(seconds(each))
    median = {name: statistics.median(values) for name, values in taken.items()}
    print(f"{len(asked)} choices, {len(renders)} of them render; medians of {rounds} rounds")
    print(f"resolve, strict      {len(asked) / median['strict']:8.0f} choices/s")
    print(f"  those that render  {len(renders) / median['renders']:8.0f} choices/s")
    print(f"batch, as published  {len(lines) / median['batch']:8.0f} lines/s")
    print(f"kimi-infra plan      {median['plan']:8.2f} s to the printed plan")
    print(f"python -c pass       {median['bare']:8.2f} s")
    print(f"batch / strict       {median['batch'] / median['strict']:8.2f}  time of one choice")
    print(f"plan / bare          {median['plan'] / median['bare']:8.1f}")


main()
