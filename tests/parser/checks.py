"""Everything that vLLM, its registries and its rules for nodes say against our commands."""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from kimi_infra.domain.launch import Launch, Role
from tests.parser.client import Layout, Opinion, Oracle
from tests.parser.newer import ENVIRONMENT, UNKNOWN, Unknown

PLACEHOLDER = re.compile(r"\$([A-Z_][A-Z0-9_]*)")
OPEN = re.compile(r"<(operator|measured|value|fill in):")
REGISTERED = {
    "--tool-call-parser": "tool parser",
    "--reasoning-parser": "reasoning parser",
    "--load-format": "load format",
}
"""Options for which the parser takes any text; vLLM itself looks the name up late, on some nodes or never."""
TRANSFER = "--kv-transfer-config"
_ENGINES = {Role.HEAD: "engine", Role.WORKER: "engine"}

Named = tuple[str, tuple[str, ...]]
"""An option and its values."""


class Judge:
    """Asks the oracle and looks into its registries; remembers which entries of the named list it met."""

    def __init__(self, oracle: Oracle, unknown: Sequence[Unknown] = UNKNOWN) -> None:
        self.vocabulary = oracle.vocabulary()
        self._oracle = oracle
        self._unknown = {(entry.place, entry.name): entry for entry in unknown}
        self._opinions: dict[tuple[object, ...], Opinion] = {}

    def check_launch(self, launch: Launch) -> list[str]:
        """Every complaint about one node's command, as ``LAYER: text``."""
        texts = [*launch.argv, *(entry.value for entry in launch.env)]
        found = [f"placeholder: {text} is not a value" for text in texts if not complete(text)]
        found += [f"registry: {text}" for text in self._registry(options(launch))]
        return [*found, *self._opinion(launch).complaints]

    def check_cell(self, launches: Sequence[Launch]) -> list[str]:
        """Every complaint about the nodes of one choice, each with the node that it is about."""
        found = [
            f"{launch.role.value} {launch.rank}: {complaint}"
            for launch in launches
            for complaint in self.check_launch(launch)
        ]
        engine = itertools.groupby(launches, key=lambda launch: _ENGINES.get(launch.role, launch.role.value))
        return [*found, *(f"{name}: {said}" for name, nodes in engine for said in self._engine(list(nodes)))]

    def layout(self, launch: Launch) -> Layout | None:
        """How vLLM reads a node's parallel flags, None where it refuses the command."""
        return self._opinion(launch).layout

    def met(self, launch: Launch) -> set[Unknown]:
        """Entries of the named list that a command uses."""
        places = {(name, value) for name, values in options(launch) for value in values}
        places |= {(ENVIRONMENT, entry.name) for entry in launch.env}
        return {entry for place, entry in self._unknown.items() if place in places}

    def _opinion(self, launch: Launch) -> Opinion:
        argv = [filled(launch.model_id)]
        for name, values in options(launch):
            argv += [name, *(self._stand_in(name, value) for value in values)]
        env = {
            entry.name: filled(entry.value)
            for entry in launch.env
            if (ENVIRONMENT, entry.name) not in self._unknown
        }
        key = (*argv, *env.items())
        if key not in self._opinions:
            self._opinions[key] = self._oracle.opinion(argv, env)
        return self._opinions[key]

    def _stand_in(self, option: str, value: str) -> str:
        """In place of a value of the named list take one that the wheel knows, to check the rest."""
        known = self.vocabulary.options.get(option)
        return min(known) if known and (option, value) in self._unknown else value

    def _registry(self, found: Sequence[Named]) -> Iterator[str]:
        for name, values in found:
            if (option := written_out(name)) not in self.vocabulary.options:
                # argparse takes the start of an option for the whole, until another one starts like it.
                for whole in self.vocabulary.options:
                    if whole.startswith(option):
                        yield f"{name} is short for {whole}"
            known = self.vocabulary.names.get(REGISTERED.get(option, ""))
            if known is not None:
                yield from (
                    f"{name}: no {REGISTERED[option]} is called {value}"
                    for value in values
                    if value not in known
                )
            if option == TRANSFER:
                yield from self._offload_keys(values)

    def _offload_keys(self, values: Sequence[str]) -> Iterator[str]:
        for connector in connectors(values):
            if connector.get("kv_connector") == "SimpleCPUOffloadConnector":
                for key in connector.get("kv_connector_extra_config", {}):
                    if key not in self.vocabulary.names["offload key"]:
                        yield f"SimpleCPUOffloadConnector reads no {key} and would ignore it"

    def _engine(self, nodes: Sequence[Launch]) -> Iterator[str]:
        """What nodes of one engine say against each other; vLLM finds out when they meet."""
        layouts = [layout for node in nodes if (layout := self.layout(node))]
        if len(layouts) == len(nodes):
            yield from differences(nodes, layouts)


def differences(nodes: Sequence[Launch], layouts: Sequence[Layout]) -> Iterator[str]:
    """Compare the nodes of one engine as rank 0 does (vllm/v1/engine/utils.py: wait_for_engine_startup)."""
    head = layouts[0]
    for name in ("world_size", "data_parallel_size", "data_parallel_address", "master_address"):
        seen = {getattr(layout, name) for layout in layouts}
        if len(seen) > 1:
            yield f"nodes: {name} differs: {sorted(map(str, seen))}"
    led = [layout for layout in layouts if layout.node_rank_within_dp == 0]
    ranks = sorted(rank for layout in led for rank in layout.data_parallel_ranks)
    if ranks != list(range(head.data_parallel_size)):
        yield f"nodes: data-parallel ranks {ranks} are not 0 to {head.data_parallel_size - 1}, each once"
    processes = sum(layout.local_world_size * len(layout.data_parallel_ranks) for layout in layouts)
    if processes != head.world_size * head.data_parallel_size:
        yield f"nodes: {processes} workers for a world of {head.world_size * head.data_parallel_size}"
    for node, layout in zip(nodes[1:], layouts[1:], strict=True):
        silent = head.own_balancing or layout.node_rank_within_dp > 0
        if silent == node.serves:
            must = "must use" if silent else "must not use"
            yield f"nodes: rank 0 refuses rank {node.rank}, which {must} --headless"


def options(launch: Launch) -> list[Named]:
    """The options of a command with their values filled in; ``--x=1`` is taken apart."""
    found: list[Named] = []
    for flag in launch.flags:
        name, sign, value = flag.name.partition("=")
        values = (value, *flag.tokens[1:]) if sign else flag.tokens[1:]
        found.append((name, tuple(filled(text) for text in values)))
    return found


def written_out(name: str) -> str:
    """An option as the parser looks it up: dashes, and without the path into its JSON."""
    return name.partition(".")[0].replace("_", "-")


def connectors(values: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The connectors of a --kv-transfer-config, the inner ones too; nothing of what is no JSON object."""
    for value in values:
        try:
            outer = json.loads(value)
        except ValueError:
            continue
        if isinstance(outer, dict):
            yield outer
            yield from outer.get("kv_connector_extra_config", {}).get("connectors", ())


def complete(text: str) -> bool:
    """Whether a text holds no value that is still to be given and no placeholder that we do not know."""
    return not OPEN.search(text) and not PLACEHOLDER.search(filled(text))


def filled(text: str) -> str:
    """Put something of the right kind in place of the page's placeholders, the same each time."""
    return PLACEHOLDER.sub(_of_its_kind, text)


def _of_its_kind(placeholder: re.Match[str]) -> str:
    name = placeholder[1]
    if name.endswith("_PORT"):
        return "29550"
    if name.endswith("_NAME"):
        return "eth0"
    if name.endswith("_PATH"):
        return "/etc/example.json"
    if re.search(r"_(IP|HOST)$|_(NODE|INSTANCE)_\d+$", name):
        return f"192.0.2.{zlib.crc32(name.encode()) % 254 + 1}"
    return placeholder[0]
