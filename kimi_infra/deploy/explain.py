"""Where a flag, a variable or an image comes from; and if it is not in a command, what would bring it there.

The second answer is found by trying: each other feature, placement, preset, option and variant of the recipe
is compiled in the place of the chosen one, as the public page would.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kimi_infra.domain import fill_in
from kimi_infra.domain.inventory import Choice, PoolChoice
from kimi_infra.domain.launch import EnvEntry, Flag, Resolution
from kimi_infra.domain.plan import DeploymentPlan
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import Catalogue, DeployType, Recipe, Variant, Word
from kimi_infra.errors import SpecError
from kimi_infra.planning import defaults, images, merge, resolve
from kimi_infra.rendering import shell
from kimi_infra.rendering.explain_text import Explanation, Use

_IMAGE = frozenset({"image", "docker-image"})
"""Words for whatever image it is."""
_ROUTER = "router"
_SECRETS = {"VLLM_API_KEY": "api.key", "HF_TOKEN": "hub_token"}
"""Variables that hold a secret, and the key of deployment.yml that brings each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one node runs, and what that replaced."""

    label: str
    flags: tuple[Flag, ...]
    env: tuple[EnvEntry, ...]
    image: str | None
    image_from: str
    image_name: str | None = None
    """Name and tag, where :attr:`image` is what a host runs instead."""
    replaced_flags: tuple[Flag, ...] = ()
    replaced_env: tuple[EnvEntry, ...] = ()


def of_choice(catalogue: Catalogue, choice: Choice, found: Resolution) -> tuple[Node, ...]:
    """Return the nodes of a choice, as the page shows them."""
    place = _image_place(catalogue, choice)
    nodes = (
        Node(
            label=shell.heading(launch).lower(),
            flags=launch.flags,
            env=launch.env,
            image=launch.image,
            image_from=place,
            replaced_flags=launch.replaced_flags,
            replaced_env=launch.replaced_env,
        )
        for launch in found.launches
    )
    return (*nodes, *_router(found.router))


def of_plan(plan: DeploymentPlan, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes of a deployment as its hosts run them; ``nodes`` are those of its choice."""
    name = plan.deployment.name
    engines = (node for node in nodes if node.label != _ROUTER)
    found = (
        dataclasses.replace(
            node,
            label=f"{rank.host.name} ({name}, {node.label})",
            flags=rank.flags,
            env=(*rank.env, *map(_secret, rank.secret_names)),
            image=fill_in.image(plan.deployment.image),
            image_name=plan.deployment.image.name,
            image_from=f"operator: deployment.yml, image of {name}",
        )
        for rank, node in zip(plan.ranks, engines, strict=True)
    )
    return (*found, *_router(plan.router.command if plan.router else None))


def _router(argv: Sequence[str] | None) -> Iterator[Node]:
    """Yield the router's command as a node of its own."""
    origin = Provenance(origin=Origin.DERIVED, source="router of the pools, from their nodes and modes")
    flags = merge.grouped([Word(text=text, provenance=origin) for text in (argv or ())[1:]])
    if argv:
        yield Node(label=_ROUTER, flags=tuple(flags), env=(), image=None, image_from="")


def _secret(name: str) -> EnvEntry:
    source = f"deployment.yml {_SECRETS.get(name, name)}, in a file that root alone can read"
    return EnvEntry(name=name, value="<secret>", provenance=Provenance(origin=Origin.OPERATOR, source=source))


def explain(catalogue: Catalogue, choice: Choice, nodes: Iterable[Node], word: str) -> Explanation:
    """Explain a word of a choice's commands: a flag with or without dashes, a variable, an image."""
    uses = tuple(use for node in nodes for use in _uses(node, word))
    if uses:
        return Explanation(word=word, uses=uses)
    refused = _refusal(catalogue, choice) is not None
    bringers = [f"{key} in deployment.yml" for name, key in _SECRETS.items() if _plain(name) == _plain(word)]
    seen = set[str]()
    for label, other in _others(catalogue, choice):
        found = of_choice(catalogue, other, resolve.as_published(catalogue, other))
        seen |= {name for node in found for name in _names(node)}
        if any(use for node in found for use in _uses(node, word)):
            because = None if refused else _refusal(catalogue, other)
            bringers.append(f"{label}; refused beside the rest: {because}" if because else label)
    closest = None if bringers else _closest(word, seen)
    return Explanation(word=word, uses=(), bringers=tuple(dict.fromkeys(bringers)), closest=closest)


def _uses(node: Node, word: str) -> Iterator[Use]:
    asked = _plain(word)
    replaced = [
        *(f"{' '.join(it.tokens)}, from {it.vouched}" for it in node.replaced_flags if _is(it, asked)),
        *(f"{_entry(it)}, from {it.provenance}" for it in node.replaced_env if _plain(it.name) == asked),
    ]
    for flag in node.flags:
        if _is(flag, asked):
            yield Use(
                node=node.label,
                text=" ".join(flag.tokens),
                provenance=flag.vouched,
                replaced=tuple(replaced),
            )
    for entry in node.env:
        if _plain(entry.name) == asked:
            yield Use(
                node=node.label,
                text=_entry(entry),
                provenance=str(entry.provenance),
                replaced=tuple(replaced),
            )
    if node.image is not None and (word in {node.image, node.image_name} or asked in _IMAGE):
        yield Use(node=node.label, text=node.image, provenance=node.image_from)


def _entry(entry: EnvEntry) -> str:
    return f"{entry.name}={entry.value}"


def _is(flag: Flag, asked: str) -> bool:
    return flag.name.startswith("-") and _plain(flag.name) == asked


def _plain(word: str) -> str:
    """Bring the spellings of one name together: dashes in front or none, ``_`` or ``-`` inside."""
    return word.partition("=")[0].lstrip("-").replace("_", "-").lower()


def _names(node: Node) -> Iterator[str]:
    yield from (flag.name for flag in node.flags if flag.name.startswith("-"))
    yield from (entry.name for entry in node.env)


def _closest(word: str, seen: Iterable[str]) -> str | None:
    plain = {_plain(name): name for name in sorted(seen)}
    near = difflib.get_close_matches(_plain(word), plain, n=1)
    return plain[near[0]] if near else None


def _refusal(catalogue: Catalogue, choice: Choice) -> str | None:
    try:
        resolve.resolve(catalogue, choice)
    except SpecError as error:
        return error.faults[0].what
    return None


def _image_place(catalogue: Catalogue, choice: Choice) -> str:
    """Say which rule gives the image, and who vouches for it."""
    recipe = catalogue.recipe(choice.model)
    name = choice.variant if choice.variant in recipe.variants else "default"
    variant, profile = recipe.variants.get(name) or Variant(), catalogue.profiles.get(choice.hardware)
    override = variant.hardware_overrides.get(choice.hardware)
    if override and override.image:
        return str(recipe.image_origins[f"variants.{name}.hardware_overrides.{choice.hardware}.docker_image"])
    key = images.brand_key(profile) if profile else None
    if key in variant.images:
        return str(recipe.image_origins[f"variants.{name}.docker_image.{key}"])
    if key in recipe.images:
        return str(recipe.image_origins[f"model.docker_image.{key}"])
    return f"the public rules' default for {key}"


def _others(catalogue: Catalogue, choice: Choice) -> Iterator[tuple[str, Choice]]:
    """Yield every choice that differs in one thing, and the name of that."""
    recipe = catalogue.recipe(choice.model)
    chosen = choice.features
    if chosen is None:
        chosen = recipe.default_features(choice.strategy, choice.hardware, choice.variant)
    # A value that was given for this choice may be of no use to another, which is no reason against it.
    choice = dataclasses.replace(choice, features=chosen, values={})
    yield from _features(recipe, choice, chosen)
    for size in recipe.dcp.sizes if recipe.dcp else ((8,) if recipe.supports_dcp else ()):
        yield f"decode context parallelism {size}", dataclasses.replace(choice, dcp=size)
    for name in (*catalogue.kv_options, *catalogue.kv_stores):
        yield f"KV offload {name}", dataclasses.replace(choice, kv_offload=name)
    for option in recipe.advanced_options:
        words = (*choice.advanced_args, *(word.text for word in option.args))
        yield f"advanced option {option.id}", dataclasses.replace(choice, advanced_args=words)
    for name in recipe.variants:
        yield f"variant {name}", dataclasses.replace(choice, variant=name)
    bare = dataclasses.replace(
        choice, preset=None, dcp=None, kv_offload=None, pools=None, accept_preview=True
    )
    yield from _presets(recipe, bare)
    yield from _layouts(recipe, bare) if recipe.layouts else _placements(catalogue, recipe, bare)


def _features(recipe: Recipe, choice: Choice, chosen: tuple[str, ...]) -> Iterator[tuple[str, Choice]]:
    for name, feature in recipe.features.items():
        on = chosen if name in chosen else (*chosen, name)
        if name not in chosen:
            yield f"feature {name}", dataclasses.replace(choice, features=on)
        for mode in feature.modes:
            modes = {**choice.feature_modes, name: mode}
            other = dataclasses.replace(choice, features=on, feature_modes=modes)
            yield f"feature {name} in mode {mode}", other


def _presets(recipe: Recipe, choice: Choice) -> Iterator[tuple[str, Choice]]:
    for name, preset in recipe.presets.items():
        laid = dataclasses.replace(
            choice, preset=name, hardware=preset.hardware, strategy=preset.strategy, nodes=preset.nodes
        )
        yield f"preset {name}", laid


def _layouts(recipe: Recipe, choice: Choice) -> Iterator[tuple[str, Choice]]:
    for layout in recipe.layouts or ():
        pools = {role: PoolChoice(nodes=nodes) for role, nodes in layout.pools.items()} or None
        nodes = layout.nodes[0] if layout.nodes else 1
        laid = dataclasses.replace(
            choice, strategy=layout.strategy, hardware=layout.hardware, nodes=nodes, pools=pools
        )
        yield f"strategy {layout.strategy} on {_counted(nodes)} of {layout.hardware}", laid


def _placements(catalogue: Catalogue, recipe: Recipe, choice: Choice) -> Iterator[tuple[str, Choice]]:
    for name in recipe.offered_strategies:
        found = catalogue.strategies.get(name)
        nodes = 1 if found is None or found.deploy_type is DeployType.SINGLE_NODE else max(2, choice.nodes)
        yield f"strategy {name} on {_counted(nodes)}", dataclasses.replace(choice, strategy=name, nodes=nodes)
    variant = recipe.variants.get(choice.variant) or Variant()
    for profile in defaults.offered_hardware(catalogue, recipe, variant):
        yield f"hardware {profile.key}", dataclasses.replace(choice, hardware=profile.key)


def _counted(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"
