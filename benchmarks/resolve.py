"""How fast choices are compiled: strictly, as published through the batch, and how soon a plan is on screen.

    .venv/bin/python benchmarks/resolve.py [ROUNDS]

Needs the clone with its .venv and nothing else: no host, no network, no development tools.
The choices are those of the shipped Kimi-K3.1-Pro without a preset: hardware x strategy x features x
context parallelism x KV offload option, refused ones included. Each row is the median of ROUNDS (default 5)
rounds, on one core in one process unless said otherwise:

- ``resolve, strict``: choices a second through the strict compiler, most of which end in a refusal.
- ``those that render``: the same of those alone that are not refused.
- ``batch, as published``: lines of JSON to lines of JSON a second. Every line renders, for the page refuses
  nothing. The format has no key for context parallelism: each line is there once for each of its sizes.
- ``kimi-infra plan``: seconds from the start of the program to the printed plan of the GB300 inventory,
  each in a process of its own, after one that is not counted; ``python -c pass`` is the interpreter's share.
- ``batch / render``: time of a line over that of a choice that renders, for reading, warnings and writing.
- ``plan / bare``: time of the plan over that of the bare interpreter.

Speeds are this machine's at this moment. The measurements alternate, round by round, so that a machine
that slows down slows all of them: the two ratios are taken within one run, and they alone can be compared
between runs and machines.
"""

from __future__ import annotations

import itertools
import json
import os
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
    """Run a command to its end; bytecode is kept, as Python does when it is not told otherwise."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)


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
    started(PLAN)  # once for the bytecode of a fresh clone
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
    a_line, a_choice = median["batch"] / len(lines), median["renders"] / len(renders)
    print(f"batch / render       {a_line / a_choice:8.2f}")
    print(f"plan / bare          {median['plan'] / median['bare']:8.1f}")


main()
