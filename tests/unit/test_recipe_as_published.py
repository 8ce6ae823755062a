"""What the public page ignores or tolerates costs one warning, and reads as what the page makes of it."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from kimi_infra.config import recipes
from kimi_infra.domain.inventory import Choice
from kimi_infra.domain.recipe import Catalogue, Recipe
from kimi_infra.errors import Fault, SpecError
from kimi_infra.planning import defaults, resolve
from tests.unit import test_recipe_faults as fixture

pytestmark = pytest.mark.compiler

GLACIER = fixture.GLACIER
GONE: Any = object()
"""In the table: the key is not there."""
Steps = tuple[str | int, ...]


def change(*steps: str | int, value: Any) -> Callable[[Any], None]:
    """Return a change of a file: this value at this path, or none."""

    def apply(data: Any) -> None:
        at = data
        for step in steps[:-1]:
            at = at[step]
        if value is GONE:
            del at[steps[-1]]
        else:
            at[steps[-1]] = value

    return apply


def opened(
    folder: pathlib.Path, apply: Callable[[Any], None], name: str = f"models/{GLACIER}"
) -> tuple[Catalogue, list[Fault]]:
    """Open the fixture with a change as the page does; the warnings of its recipe come with it."""
    shutil.rmtree(folder / "catalogue", ignore_errors=True)
    warned: list[Fault] = []
    read = recipes.open_catalogue(fixture.catalogue(folder, name, apply), warned.append)
    read.recipe(GLACIER)
    return read, warned


WRONG: list[tuple[Steps, Any, Steps, Any]] = [
    # wrong value, and the sound one that it reads as
    (("model", "base_args", 1), 5, ("model", "base_args", 1), "5"),
    (("model", "base_args", 1), 0.5, ("model", "base_args", 1), "0.5"),
    (("model", "base_args", 1), True, ("model", "base_args", 1), "true"),
    (("model", "base_args"), "-a", ("model", "base_args"), ["-", "a"]),
    (("model", "base_args"), 5, ("model", "base_args"), []),
    (("model", "base_env"), 5, ("model", "base_env"), {}),
    (("model", "base_env", "ACME_BASE"), False, ("model", "base_env", "ACME_BASE"), "false"),
    (("model", "base_env", "ACME_BASE"), None, ("model", "base_env", "ACME_BASE"), "null"),
    (("model", "nightly_required"), "yes", ("model", "nightly_required"), False),
    (("model", "nightly_required"), 1, ("model", "nightly_required"), False),
    (("model", "supports_dcp"), "x", ("model", "supports_dcp"), True),
    (("model", "model_id"), GONE, ("model", "model_id"), "unknown"),
    (("model", "model_id"), "", ("model", "model_id"), "unknown"),
    (("model", "model_id"), 72, ("model", "model_id"), "72"),
    (("model", "docker_image"), 5, ("model", "docker_image"), GONE),
    (
        ("model", "docker_image", "amd"),
        {"cu130": "x"},
        ("model", "docker_image", "amd"),
        GONE,
    ),
    (("model", "docker_image", "nvidia"), 5, ("model", "docker_image", "nvidia"), GONE),
    (("model", "docker_image", "tpu"), 5, ("model", "docker_image", "tpu"), GONE),
    (
        ("variants", "fp8", "hardware_overrides", "b300", "docker_image"),
        {"nvidia": "x"},
        ("variants", "fp8", "hardware_overrides", "b300", "docker_image"),
        GONE,
    ),
    (("variants", "fp8"), "odd", ("variants", "fp8"), {"precision": ""}),
    (("variants", "fp8"), 0, ("variants", "fp8"), GONE),
    (("variants", "fp8", "vram_minimum_gb"), "200", ("variants", "fp8", "vram_minimum_gb"), 200),
    (("variants", "fp8", "vram_minimum_gb"), "much", ("variants", "fp8", "vram_minimum_gb"), 0),
    (("variants", "fp8", "tp"), "2", ("variants", "fp8", "tp"), GONE),
    (("variants", "fp8", "tp", "amd"), 8.0, ("variants", "fp8", "tp", "amd"), 8),
    (("variants", "fp8", "extra_args"), {"a": 1}, ("variants", "fp8", "extra_args"), []),
    (
        ("variants", "nvfp4", "precision_hardware"),
        "x",
        ("variants", "nvfp4", "precision_hardware"),
        {},
    ),
    (("variants", "nvfp4", "precision_hardware"), 0, ("variants", "nvfp4", "precision_hardware"), GONE),
    (("features", "text_only", "strategies"), "pd", ("features", "text_only", "strategies"), []),
    (
        ("features", "encoder_parallel", "hardware_overrides", "nvidia"),
        "x",
        ("features", "encoder_parallel", "hardware_overrides", "nvidia"),
        {},
    ),
    (("features", "spec_decoding", "modes"), "x", ("features", "spec_decoding", "modes"), GONE),
    (
        ("features", "spec_decoding", "modes"),
        [{"args": ["--m"]}],
        ("features", "spec_decoding", "modes"),
        {"0": {"args": ["--m"]}},
    ),
    (("features", "cascade", "companion", "command"), "", ("features", "cascade", "companion"), GONE),
    (("hardware_overrides", "amd"), "x", ("hardware_overrides", "amd"), {}),
    (("hardware_overrides", "blackwell"), "", ("hardware_overrides", "blackwell"), GONE),
    (
        ("strategy_overrides", "multi_node_tp", "hardware_overrides", "hopper"),
        5,
        ("strategy_overrides", "multi_node_tp", "hardware_overrides", "hopper"),
        {},
    ),
    (
        ("strategy_overrides", "pd_cluster", "decode", "tp"),
        "2",
        ("strategy_overrides", "pd_cluster", "decode", "tp"),
        2,
    ),
    (
        ("strategy_overrides", "pd_cluster", "router"),
        "x",
        ("strategy_overrides", "pd_cluster", "router"),
        {},
    ),
    (("strategy_min_gpus", "multi_node_tp"), "8", ("strategy_min_gpus", "multi_node_tp"), 8),
    (("strategy_min_gpus",), "8", ("strategy_min_gpus",), {}),
    (("kv_offload_support",), [], ("kv_offload_support",), {}),
    (
        ("advanced_options", 0),
        "x",
        ("advanced_options",),
        [{"id": "quiet", "args": ["--disable-log-requests"]}],
    ),
    (
        ("advanced_options", 0, "args"),
        GONE,
        ("advanced_options",),
        [{"id": "quiet", "args": ["--disable-log-requests"]}],
    ),
    (("meta", "tasks"), "text", ("meta", "tasks"), []),
    (("x-dcp",), 5, ("x-dcp",), GONE),
    (("x-layouts", "multi_node_tp", "gb300"), "x", ("x-layouts", "multi_node_tp"), {}),
    (("x-presets", "plain", "nodes"), "x", ("x-presets", "plain"), GONE),
]


@pytest.mark.parametrize(("steps", "wrong", "sound_steps", "sound"), WRONG)
def test_a_wrong_value_reads_as_what_the_page_makes_of_it(
    tmp_path: pathlib.Path, steps: Steps, wrong: Any, sound_steps: Steps, sound: Any
) -> None:
    """One warning names the place; the recipe is the one of a sound file; read strictly it is refused."""
    read, told = opened(tmp_path, change(*steps, value=wrong))
    warned = [fault for fault in told if "no such" not in fault.what]  # names of what is gone with it
    assert len(warned) == 1, told
    stated = ".".join(map(str, sound_steps[: min(len(steps), len(sound_steps))]))
    assert warned[0].where.replace("[", ".").replace("]", "").startswith(f"models/{GLACIER}.yaml: {stated}")
    assert _alike(
        read.recipe(GLACIER), opened(tmp_path, change(*sound_steps, value=sound))[0].recipe(GLACIER)
    )
    strictly = fixture.catalogue(tmp_path / "strict", f"models/{GLACIER}", change(*steps, value=wrong))
    with pytest.raises(SpecError):
        recipes.read_catalogue(strictly)


def _alike(one: Recipe, other: Recipe) -> bool:
    """Hold recipes to each other in all that a command comes from."""
    named = {it.id: it.args for it in one.advanced_options} == {
        it.id: it.args for it in other.advanced_options
    }
    return named and dataclasses.replace(one, advanced_options=()) == dataclasses.replace(
        other, advanced_options=()
    )


def test_words_that_count_as_false_are_dropped_and_names_keep_their_place(tmp_path: pathlib.Path) -> None:
    """The page filters such words; a list of odd names is not the empty list, which would mean all."""
    read, _ = opened(tmp_path, change("model", "base_args", value=["--a", 0, None, "--b", False, "c"]))
    assert [word.text for word in read.recipe(GLACIER).base.args] == ["--a", "--b", "c"]
    read, warned = opened(tmp_path, change("features", "text_only", "strategies", value=[5]))
    assert read.recipe(GLACIER).features["text_only"].strategies == ("5",)
    assert len(warned) == 1


def test_a_strategy_that_counts_as_false_recommends_the_plain_one(tmp_path: pathlib.Path) -> None:
    """The page falls back to tensor parallelism in one node where the first of its list is nothing."""

    def apply(data: Any) -> None:
        data["compatible_strategies"] = [0]
        data["strategy_hardware"] = {}

    read, _ = opened(tmp_path, apply)
    assert defaults.strategy(read.recipe(GLACIER), 1) == "single_node_tp"


@pytest.mark.parametrize("value", [0, -1, "2", True, 2.5])
def test_a_size_that_is_none_hides_the_rest_of_its_map(tmp_path: pathlib.Path, value: object) -> None:
    """The page stops at the entry and goes on with the next map, here the override's."""
    read, warned = opened(tmp_path, change("variants", "fp8", "tp", "b300", value=value))
    choice = Choice(
        model=GLACIER, variant="fp8", hardware="b300", strategy="single_node_tp", nodes=1, features=()
    )
    argv = resolve.as_published(read, choice).launches[0].argv
    assert argv[argv.index("--tensor-parallel-size") + 1] == "8"
    assert [fault.where for fault in warned] == [f"models/{GLACIER}.yaml: variants.fp8.tp.b300"]


@pytest.mark.parametrize(("needs", "size"), [(267.5, "1"), (268.5, "8"), (-1, "1")])
def test_memory_may_be_a_fraction(tmp_path: pathlib.Path, needs: float, size: str) -> None:
    """A GPU of the B300 has 268 GB; what fits it takes one, what is no amount fits too."""

    def apply(data: Any) -> None:
        data["variants"]["fp8"] = {"precision": "fp8", "vram_minimum_gb": needs}
        del data["strategy_overrides"]["single_node_tp"]
        data["features"]["spec_decoding"]["modes"]["head"]["variants"] = []

    read, warned = opened(tmp_path, apply)
    choice = Choice(
        model=GLACIER, variant="fp8", hardware="b300", strategy="single_node_tp", nodes=1, features=()
    )
    argv = resolve.as_published(read, choice).launches[0].argv
    assert argv[argv.index("--tensor-parallel-size") + 1] == size
    assert len(warned) == (needs < 0)
    if needs > 0:
        sound = recipes.read_catalogue(tmp_path / "catalogue").recipe(GLACIER)
        assert sound.variants["fp8"].vram_minimum_gb == needs


def test_whole_memory_stays_a_whole_number() -> None:
    """Messages say 1500 GB, not 1500.0 GB."""
    read = recipes.read_catalogue(fixture.ROOT)
    assert str(read.recipe(GLACIER).variants["default"].vram_minimum_gb) == "1500"
    assert str(read.profiles["b300"].vram_gb) == "2144"


def test_yaml_words_and_keys_are_the_page_s(tmp_path: pathlib.Path) -> None:
    """``yes`` and ``on`` are text there, and a key that is a number is its text."""
    root = fixture.catalogue(tmp_path, f"models/{GLACIER}", lambda _: None)
    file = root / "models" / f"{GLACIER}.yaml"
    text = file.read_text(encoding="utf-8")
    text = text.replace("nightly_required: true", "nightly_required: yes").replace(
        "ACME_BASE: 1", "ACME_BASE: on"
    )
    text = text.replace("ngram:", "1:")
    file.write_text(text, encoding="utf-8")
    warned: list[Fault] = []
    read = recipes.open_catalogue(root, warned.append).recipe(GLACIER)
    assert not read.nightly
    assert next(entry.value for entry in read.base.env) == "on"
    assert list(read.features["spec_decoding"].modes) == ["head", "draft", "1"]
    assert [fault.where for fault in warned] == [
        f"models/{GLACIER}.yaml: features.spec_decoding.modes",
        f"models/{GLACIER}.yaml: model.nightly_required",
    ]
    with pytest.raises(SpecError, match="is not text"):
        recipes.read_catalogue(root)


def test_what_newer_recipes_have_is_an_unknown_key(tmp_path: pathlib.Path) -> None:
    """Keys behind the rules that we follow are said and ignored, and a fault when read strictly."""

    def apply(data: Any) -> None:
        data["model"] |= {"default_frontend": "rust", "flashinfer_autotune": False}
        data["features"]["reasoning"]["env"] = {"A": "1"}

    read, warned = opened(tmp_path, apply)
    assert [fault.where.partition(": ")[2] for fault in warned] == [
        *("model.default_frontend", "model.flashinfer_autotune", "features.reasoning.env")
    ]
    assert read.recipe(GLACIER) == recipes.read_catalogue(fixture.ROOT).recipe(GLACIER)
    with pytest.raises(SpecError, match=r"features\.reasoning\.env: unknown key"):
        recipes.read_catalogue(tmp_path / "catalogue")


SHARED: list[tuple[str, Steps, Any, Steps, Any]] = [
    ("taxonomy", ("hardware_profiles", "h200", "gpu_count"), "8", ("gpu_count",), 1),
    ("taxonomy", ("hardware_profiles", "h200", "brand"), GONE, ("brand",), ""),
    ("taxonomy", ("hardware_profiles", "h200", "vram_gb"), "1128.5", ("vram_gb",), 1128.5),
    ("taxonomy", ("hardware_profiles", "h200", "scalable"), "no", ("scalable",), True),
    ("taxonomy", ("hardware_profiles", "h200", "restricted"), 1, ("restricted",), True),
    ("strategies/pd_cluster", ("deploy_type",), "three_nodes", ("deploy_type",), "single_node"),
    ("strategies/pd_cluster", ("prefill", "vllm_args", 1), 8001, ("prefill", "vllm_args", 1), "8001"),
    (
        "kv_store/kv_store_distributed_mooncake",
        ("default_instances",),
        0,
        ("default_instances",),
        2,
    ),
    ("taxonomy", ("kv_offload", "tiered", "requires_opt_in"), "x", ("requires_opt_in",), True),
]


@pytest.mark.parametrize(("name", "steps", "wrong", "sound_steps", "sound"), SHARED)
def test_what_recipes_share_is_eased_too(
    tmp_path: pathlib.Path, name: str, steps: Steps, wrong: Any, sound_steps: Steps, sound: Any
) -> None:
    """A wrong value in a shared file costs none of the recipes."""
    read, warned = opened(tmp_path, change(*steps, value=wrong), name)
    other, _ = opened(tmp_path, change(*steps[: -len(sound_steps)], *sound_steps, value=sound), name)
    assert len(warned) == 1, warned
    assert warned[0].where.startswith(f"{name}.yaml: ")
    names = ("profiles", "strategies", "kv_options", "kv_stores")
    assert [getattr(read, each) for each in names] == [getattr(other, each) for each in names]


def test_nothing_is_said_twice(tmp_path: pathlib.Path) -> None:
    """A place that was set aside is not called a name of what is not there as well, nor its parts missing."""

    def apply(data: Any) -> None:
        data["compatible_strategies"][0] = 7
        data["variants"]["fp8"] = ["x"]
        data["meta"] = 5

    _, warned = opened(tmp_path, apply)
    places = [fault.where.partition(": ")[2] for fault in warned]
    assert sorted(places) == ["compatible_strategies[0]", "meta", "variants.fp8"]
