"""Every fault of a catalogue is told with its place, and what the public page ignores is said and ignored."""

from __future__ import annotations

import copy
import functools
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from kimi_infra.config import recipes
from kimi_infra.errors import Fault, SpecError
from tests.unit.recipe_format import expected, expected_shared

pytestmark = pytest.mark.compiler

ROOT = pathlib.Path(__file__).parent / "recipe_format"
GLACIER, PEBBLE, MURMUR = "acme/Glacier-72B", "acme/Pebble-1B", "acme/Murmur-Omni"


@functools.cache
def content(name: str) -> Any:
    """Return a file of the fixture as plain data."""
    return yaml.load((ROOT / f"{name}.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def catalogue(folder: pathlib.Path, name: str, change: Callable[[Any], object]) -> pathlib.Path:
    """Copy the fixture with one of its files changed."""
    root = folder / "catalogue"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    data = copy.deepcopy(content(name))
    change(data)
    text = yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False)
    (root / f"{name}.yaml").write_text(text, encoding="utf-8")
    return root


def refused(root: pathlib.Path) -> list[str]:
    """Read a catalogue that must be refused."""
    with pytest.raises(SpecError) as caught:
        recipes.read_catalogue(root)
    return [str(fault) for fault in caught.value.faults]


def put(*steps: str | int, value: object) -> Callable[[Any], None]:
    """Return a change of a file: this value at this path."""

    def change(data: Any) -> None:
        for step in steps[:-1]:
            data = data[step]
        data[steps[-1]] = value

    return change


HINT = "write it as docs/recipes.md says"
FAULTS: list[tuple[tuple[str | int, ...], object, str]] = [
    (("meta", "titel"), "x", "meta.titel: unknown key; did you mean title?"),
    # of the keys at that place: a variant has no env, though other places have
    (("variants", "fp8", "enx"), {}, "variants.fp8.enx: unknown key; use one of default_modes, description,"),
    (("features", "reasoning", "hardware_overides"), {}, "did you mean hardware_overrides?"),
    (
        ("strategy_overrides", "pd_cluster", "decode", "hardware_override"),
        {},
        "pd_cluster.decode.hardware_override: unknown key; did you mean hardware_overrides?",
    ),
    (("model", "docker_image", "cu13"), "x", "model.docker_image.cu13: unknown key; did you mean cu130?"),
    (("x-rules", 0, "when", "feature"), "x", "x-rules[0].when.feature: unknown key; did you mean features?"),
    (("x-layouts", "multi_node_tep", "m890", "notes"), "x", "m890.notes: unknown key; did you mean note?"),
    (("model", "base_args"), "--a", f"model.base_args: Input should be a valid list (got --a); {HINT}"),
    (("model", "base_args", 1), 5, f"model.base_args[1]: Input should be a valid string (got 5); {HINT}"),
    (("model", "nightly_required"), "yes", "nightly_required: Input should be a valid boolean"),
    (
        ("model", "docker_image", "nvidia"),
        5,
        "docker_image.nvidia: Input should be an image, or images by CUDA",
    ),
    (("variants", "fp8", "tp"), "2", "variants.fp8.tp: Input should be a whole number, or a map of hardware"),
    (
        ("variants", "fp8", "tp", "amd"),
        True,
        "variants.fp8.tp.amd: Input should be a valid integer (got true)",
    ),
    (("variants", "fp8", "tp", "amd"), 0, "variants.fp8.tp.amd: Input should be greater than 0 (got 0)"),
    (
        ("strategy_min_gpus", "gb300"),
        "8",
        "strategy_min_gpus.gb300: Input should be a whole number, or a map",
    ),
    (
        ("x-layouts", "multi_node_tp", "gb300"),
        [2, "4"],
        'gb300[1]: Input should be a valid integer (got "4")',
    ),
    (("x-layouts", "multi_node_tp", "gb300"), {"note": "x"}, "gb300: a placement has either nodes or pools"),
    (
        ("x-layouts", "pd_cluster", "gb300", "pools"),
        {"decode": 1},
        "a cluster has a prefill and a decode pool",
    ),
    (("x-rules", 0, "needs"), {"dcp": 8}, "x-rules[0]: a rule either needs or excludes something"),
    (("x-rules", 0, "when"), {}, "x-rules[0].when: terms name at least one part of a choice"),
    (("x-rules", 0, "because"), "hearsay", "x-rules[0].because: the origin is none of seed, sibling"),
    (
        ("x-cache", "formats", "small_cache", "index"),
        "fp8",
        "small_cache: a feature switches either latent or",
    ),
    (
        ("x-values", "fused_args", "kind"),
        "list",
        "x-values.fused_args.kind: Input should be 'text', 'integer'",
    ),
]


@pytest.mark.parametrize(
    ("steps", "value", "said"), FAULTS, ids=lambda it: str(it) if isinstance(it, str) else ""
)
def test_a_key_or_type_that_is_wrong(
    tmp_path: pathlib.Path, steps: tuple[str | int, ...], value: object, said: str
) -> None:
    """The fault has the path in the file and, for a key, the closest one that belongs there."""
    found = refused(catalogue(tmp_path, f"models/{GLACIER}", put(*steps, value=value)))
    assert len(found) == 1, found
    assert said in found[0]
    assert found[0].startswith(f"models/{GLACIER}.yaml: ")


STRATEGY, HARDWARE, FEATURE = (
    "no such strategy is known",
    "no such hardware is known",
    "no such feature is known",
)
NAMES: list[tuple[tuple[str | int, ...], object, str]] = [
    (("compatible_strategies", 1), "single_node_tpe", f"compatible_strategies[1]: {STRATEGY}"),
    (("default_strategy",), "single_node_ep", f"default_strategy: {STRATEGY}"),
    (("strategy_overrides", "multi_node_td"), {}, f"strategy_overrides.multi_node_td: {STRATEGY}"),
    (("strategy_hardware", "multi_node_td"), {}, f"strategy_hardware.multi_node_td: {STRATEGY}"),
    (("features", "text_only", "strategies", 0), "pd", f"features.text_only.strategies[0]: {STRATEGY}"),
    (("x-layouts", "pd"), {}, f"x-layouts.pd: {STRATEGY}"),
    (("strategy_min_gpus", "gb30"), 8, "strategy_min_gpus.gb30: no such strategy or hardware is known"),
    (("meta", "hardware", "b30"), "verified", f"meta.hardware.b30: {HARDWARE} (got b30); did you mean b300?"),
    (("meta", "default_hardware"), "b30", f"meta.default_hardware: {HARDWARE}"),
    (("variants", "default", "supported_hardware", 0), "b3", f"default.supported_hardware[0]: {HARDWARE}"),
    (("x-layouts", "multi_node_tp", "gb30"), [2], f"x-layouts.multi_node_tp.gb30: {HARDWARE}"),
    (("x-presets", "plain", "hardware"), "b30", f"x-presets.plain.hardware: {HARDWARE}"),
    (("x-presets", "plain", "strategy"), "tp", f"x-presets.plain.strategy: {STRATEGY}"),
    (("x-presets", "plain", "features"), ["reason"], f"x-presets.plain.features[0]: {FEATURE}"),
    (
        ("x-presets", "plain", "kv_offload"),
        "simpel",
        "x-presets.plain.kv_offload: no such KV offload is known",
    ),
    (
        ("x-presets", "plain", "dcp"),
        4,
        "x-presets.plain.dcp: no such DCP size is known (got 4); use one of 2, 8",
    ),
    (("hardware_overrides", "blackwel"), {}, "hardware_overrides.blackwel: no such hardware key is known"),
    (("variants", "fp8", "tp", "nvidea"), 1, "variants.fp8.tp.nvidea: no such hardware key is known"),
    (("opt_in_features", 0), "spec", f"opt_in_features[0]: {FEATURE}"),
    (("hardware_opt_in_features", "gb300", 0), "spec", f"hardware_opt_in_features.gb300[0]: {FEATURE}"),
    (
        ("features", "spec_decoding", "default_mode"),
        "hed",
        "no such mode is known (got hed); did you mean head?",
    ),
    (
        ("variants", "fp8", "default_modes", "spec_decoding"),
        "mtp",
        "default_modes.spec_decoding: no such mode",
    ),
    (
        ("variants", "fp8", "default_modes", "reasoning"),
        "on",
        "default_modes.reasoning: no such mode is known",
    ),
    (("features", "spec_decoding", "modes", "ngram", "variants", 0), "fp4", "variants[0]: no such variant"),
    (("kv_offload_support", "tierd"), "verified", "kv_offload_support.tierd: no such KV offload is known"),
    (
        ("kv_cache_strategy_hardware", "moon"),
        {},
        "kv_cache_strategy_hardware.moon: no such KV store is known",
    ),
    (("meta", "hardware", "b300"), "verifed", "meta.hardware.b300: no such mark is known (got verifed)"),
    (("meta", "tasks", 0), "txt", "meta.tasks[0]: no such task is known (got txt); did you mean text?"),
    (("strategy_overrides", "pd_cluster", "decode", "parallelism"), "ep", "parallelism: no such pool mode"),
    (("x-rules", 0, "when", "features"), "spec", f"x-rules[0].when.features: {FEATURE}"),
    (("x-rules", 0, "excludes", "brand", 1), "Gogle", "x-rules[0].excludes.brand[1]: no such brand is known"),
    (("x-layouts", "single_node_tp", "mi355x", "unless_preset"), "agent", "unless_preset: no such preset"),
    (("x-cache", "formats", "small_cache", "latent"), "fp4", "formats.small_cache.latent: no such format"),
    (
        ("features", "small_cache", "args", 1),
        "<value:cach>",
        "small_cache.args[1]: no such value is declared",
    ),
    (
        ("features", "reasoning", "args", 1),
        "--a <value:fused_args>",
        "args[1]: a value of kind args stands for",
    ),
    (("model", "base_env", "ACME_BASE"), "<value:fused_args>", "a value of kind args stands for whole words"),
    (("model", "base_args", 0), '{"a": <value:draft_tokens>}', "a value of kind integer stands within JSON"),
]


@pytest.mark.parametrize(
    ("steps", "value", "said"), NAMES, ids=lambda it: str(it) if isinstance(it, str) else ""
)
def test_a_name_of_what_is_not_there(
    tmp_path: pathlib.Path, steps: tuple[str | int, ...], value: object, said: str
) -> None:
    """Read strictly it is the one fault; opened as the page does it is said once and ignored."""
    root = catalogue(tmp_path, f"models/{GLACIER}", put(*steps, value=value))
    found = refused(root)
    assert len(found) == 1, found
    assert said in found[0]
    warned: list[Fault] = []
    opened = recipes.open_catalogue(root, warned.append)
    assert opened.recipe(GLACIER) == opened.recipe(GLACIER)
    assert [str(fault) for fault in warned] == found


def test_names_in_taxonomy_and_strategies(tmp_path: pathlib.Path) -> None:
    """What recipes share may name only what is there, too."""
    root = catalogue(tmp_path, "taxonomy", put("kv_offload", "sidecar", "strategies", 0, value="single_tp"))
    strategy = root / "strategies" / "pd_cluster.yaml"
    strategy.write_text(
        strategy.read_text().replace("parallelism: tep", "parallelism: tpe"), encoding="utf-8"
    )
    store = root / "kv_store" / "kv_store_centralized_mooncake.yaml"
    store.write_text(store.read_text().replace("$MOONCAKE_CONFIG_PATH", "<value:path>"), encoding="utf-8")
    pool_mode, value = "no such pool mode is known (got tpe)", "no such value is declared (got <value:path>)"
    option = "taxonomy.yaml: kv_offload.sidecar.strategies[0]"
    path = "kv_store/kv_store_centralized_mooncake.yaml: vllm.env.MOONCAKE_CONFIG_PATH"
    assert refused(root) == [
        f"{option}: {STRATEGY} (got single_tp); did you mean single_node_tp?",
        f"strategies/pd_cluster.yaml: prefill.parallelism: {pool_mode}; did you mean tp?",
        f"{path}: {value}; declare it in x-values, or use one of tier_bytes",
    ]


def test_all_kinds_of_faults_at_once(tmp_path: pathlib.Path) -> None:
    """A wrong type hides neither an unknown key nor an unknown name, of its own file or of another one."""

    def change(data: Any) -> None:
        data["modle"] = {}
        data["model"]["base_args"] = 5
        data["compatible_strategies"][:2] = [7, "single_node_tpe"]
        data["x-rules"][0]["needs"] = {"dcp": 8}
        data["opt_in_features"].append("speculation")
        del data["variants"]["default"]["precision"]

    root = catalogue(tmp_path, f"models/{GLACIER}", change)
    with (root / "taxonomy.yaml").open("a", encoding="utf-8") as file:
        file.write("kv_ofload: {}\n")
    (root / "models" / "acme" / "Pebble-1B.yaml").write_text("meta: [\n", encoding="utf-8")
    found = refused(root)
    assert [fault.partition(" (got")[0].partition(";")[0] for fault in found] == [
        "taxonomy.yaml: kv_ofload: unknown key",
        f"models/{GLACIER}.yaml: model.base_args: Input should be a valid list",
        f"models/{GLACIER}.yaml: variants.default.precision: missing key",
        f"models/{GLACIER}.yaml: compatible_strategies[0]: Input should be a valid string",
        f"models/{GLACIER}.yaml: x-rules[0]: a rule either needs or excludes something",
        f"models/{GLACIER}.yaml: modle: unknown key",
        f"models/{GLACIER}.yaml: opt_in_features[6]: no such feature is known",
        f"models/{GLACIER}.yaml: compatible_strategies[1]: no such strategy is known",
        "models/acme/Pebble-1B.yaml: line 2, column 1: not YAML: expected the node content, but found ...",
    ]


def test_a_recipe_is_read_at_its_first_lookup(tmp_path: pathlib.Path) -> None:
    """Listing reads none; one of which nothing can be used raises each time it is asked for, others work."""
    root = catalogue(tmp_path, f"models/{GLACIER}", put("modle", value=1))
    for name, text in (("Ash", "meta: ["), ("Bark", "- a list\n"), ("Cinder", "modle: {}\n")):
        (root / "models" / "acme" / f"{name}.yaml").write_text(text, encoding="utf-8")
    warned: list[Fault] = []
    read = recipes.open_catalogue(root, warned.append)
    assert list(read.recipes) == ["acme/Ash", "acme/Bark", "acme/Cinder", GLACIER, MURMUR, PEBBLE]
    assert len(read.recipes) == 6
    assert "acme/Ash" in read.recipes
    assert warned == []
    for name, said in (
        ("Ash", "not YAML"),
        ("Bark", "Input should be a valid dictionary"),
        ("Cinder", "model: missing key"),
    ):
        for _ in range(2):
            with pytest.raises(SpecError, match=rf"models/acme/{name}.yaml: .*{said}"):
                read.recipe(f"acme/{name}")
    with pytest.raises(SpecError, match="no such model is known"):
        read.recipe("acme/Fire")
    assert read.recipe(PEBBLE) == expected_shared.PEBBLE
    assert read.recipe(PEBBLE) is read.recipe(PEBBLE)
    assert [fault.where for fault in warned] == ["models/acme/Cinder.yaml: modle"]


def test_what_the_page_ignores_is_said_and_ignored(tmp_path: pathlib.Path) -> None:
    """Unknown keys, keys without a value and keys that only we ask for leave the recipe as it is."""

    def change(data: Any) -> None:
        data["features"]["reasoning"]["env"] = {"A": "1"}
        data["features"]["tool_calling"]["strategies"] = None
        data["model"]["docker_image"]["huawei"] = "x"
        data["x-layouts"]["single_node_tp"]["mi355x"]["extra"] = 1
        data["x-rules"][1]["needs"]["colour"] = "blue"
        del data["meta"]["title"]
        del data["variants"]["fp8"]["precision"]

    root = catalogue(tmp_path, f"models/{GLACIER}", change)
    warned: list[Fault] = []
    read = recipes.open_catalogue(root, warned.append).recipe(GLACIER)
    assert {fault.where.partition(": ")[2] for fault in warned} == {
        *("features.reasoning.env", "features.tool_calling.strategies", "model.docker_image.huawei"),
        *("x-layouts.single_node_tp.mi355x.extra", "x-rules[1].needs.colour", "meta.title"),
        "variants.fp8.precision",
    }
    assert len(warned) == 7
    assert read.title == GLACIER
    assert read.variants["fp8"].precision == ""
    assert read.features == expected.FEATURES
    assert (read.images, read.layouts, read.rules) == (
        expected.GLACIER.images,
        expected.LAYOUTS,
        expected.RULES,
    )


@pytest.mark.parametrize(
    "name", ["taxonomy", "strategies/pd_cluster", "kv_store/kv_store_centralized_mooncake"]
)
def test_what_recipes_share_is_held_at_once(tmp_path: pathlib.Path, name: str) -> None:
    """Unknown keys and wrong types there are only said; a file that is no mapping stops every reading."""

    def opened(change: Callable[[Any], None]) -> list[Fault]:
        shutil.rmtree(tmp_path / "catalogue", ignore_errors=True)
        warned: list[Fault] = []
        recipes.open_catalogue(catalogue(tmp_path, name, change), warned.append)
        return warned

    (said,) = opened(put("colour", value="blue"))
    assert str(said).startswith(f"{name}.yaml: colour: unknown key; ")
    (said,) = opened(put("x-provenance", value=5))
    assert str(said).startswith(f"{name}.yaml: x-provenance: Input should be a valid dict")
    root = tmp_path / "catalogue"
    (root / f"{name}.yaml").write_text("5\n", encoding="utf-8")
    with pytest.raises(SpecError, match=f"{name}.yaml: Input should be a valid dict"):
        recipes.open_catalogue(root, lambda _: None)


def _pipe(file: pathlib.Path) -> None:
    os.mkfifo(file)


def _device(file: pathlib.Path) -> None:
    file.symlink_to("/dev/zero")


def _large(file: pathlib.Path) -> None:
    with file.open("wb") as stream:
        stream.truncate((4 << 20) + 1)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_pipe, "not a regular file"),
        (_device, "not a regular file"),
        (pathlib.Path.mkdir, "not a regular file"),
        (lambda file: file.symlink_to(file), "too many levels of symbolic links"),
        (_large, "more than 4194304 bytes"),
        (lambda file: file.write_bytes(b"\xff"), "not UTF-8"),
    ],
    ids=["pipe", "device", "folder", "loop", "large", "bytes"],
)
@pytest.mark.parametrize("name", ["taxonomy", "strategies/zz", "kv_store/zz", "models/acme/Zz"])
def test_a_file_that_cannot_be_read_whole(
    tmp_path: pathlib.Path, name: str, make: Callable[[pathlib.Path], object], why: str
) -> None:
    """Nothing is waited for, nor read without end: the file is named with what it is."""
    root = catalogue(tmp_path, f"models/{GLACIER}", lambda _: None)
    file = root / f"{name}.yaml"
    file.unlink(missing_ok=True)
    make(file)
    told = f"{name}.yaml: the file cannot be read: {why}; put a UTF-8 text file there"
    assert told in refused(root)
    with pytest.raises(SpecError) as caught:
        recipes.open_catalogue(root, lambda _: None).recipe("acme/Zz")
    assert told in map(str, caught.value.faults) or not name.startswith(("taxonomy", "models"))


def test_a_file_may_be_elsewhere_and_large(tmp_path: pathlib.Path) -> None:
    """A link to a regular file is followed, and a comment of some megabytes is read over."""
    root = catalogue(tmp_path, f"models/{GLACIER}", lambda _: None)
    file = root / "models" / f"{PEBBLE}.yaml"
    text = file.read_bytes()
    (tmp_path / "pebble").write_bytes(text + b"#" * ((4 << 20) - len(text)))
    file.unlink()
    file.symlink_to(tmp_path / "pebble")
    assert recipes.read_catalogue(root).recipe(PEBBLE) == expected_shared.PEBBLE


def test_a_folder_without_recipes_is_no_catalogue(tmp_path: pathlib.Path) -> None:
    """A wrong folder is told from an empty answer."""
    assert [fault.partition(":")[0] for fault in refused(tmp_path)] == ["taxonomy.yaml", "models"]


def test_a_catalogue_of_models_and_a_taxonomy_alone_loads(tmp_path: pathlib.Path) -> None:
    """Without strategies and KV stores there are none to name."""
    root = catalogue(tmp_path, "models/acme/Pebble-1B", lambda _: None)
    for name in ("strategies", "kv_store"):
        shutil.rmtree(root / name)
    (root / "models" / "acme" / "Glacier-72B.yaml").unlink()
    taxonomy = {**content("taxonomy")}
    del taxonomy["kv_offload"], taxonomy["x-provenance"]
    (root / "taxonomy.yaml").write_text(yaml.safe_dump(taxonomy), encoding="utf-8")
    read = recipes.read_catalogue(root)
    assert (read.strategies, read.kv_stores, read.kv_options) == ({}, {}, {})


def test_an_origin_of_nothing(tmp_path: pathlib.Path) -> None:
    """A path that leads nowhere would leave its value to the default: it is told, once all else is right."""

    def misspell(data: Any) -> None:
        data["x-provenance"]["variants.fb8"] = data["x-provenance"].pop("variants.fp8")

    root = catalogue(tmp_path, f"models/{GLACIER}", misspell)
    expected = (
        'models/acme/Glacier-72B.yaml: x-provenance["variants.fb8"]: '
        "nothing in this file is at this path; did you mean fp8?"
    )
    with pytest.raises(SpecError) as caught:
        recipes.read_catalogue(root)
    assert [str(fault) for fault in caught.value.faults] == [expected]
    with pytest.raises(SpecError) as caught:
        recipes.judged_catalogue(root).recipe("acme/Glacier-72B")
    assert [str(fault) for fault in caught.value.faults] == [expected]


def test_a_recipe_without_features_names_none(tmp_path: pathlib.Path) -> None:
    """A feature that a recipe switches off has to be one of its own, also when it has none at all."""
    root = catalogue(tmp_path, f"models/{PEBBLE}", put("opt_in_features", value=["drafts"]))
    (fault,) = refused(root)
    assert fault == (
        f"models/{PEBBLE}.yaml: opt_in_features[0]: no such feature is known (got drafts); "
        "leave it out: there is none"
    )
