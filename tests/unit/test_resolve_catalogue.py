"""A catalogue's files are read whole or refused with all their faults."""

from __future__ import annotations

import importlib.resources
import pathlib

import pytest
import yaml

from kimi_infra.config import recipes
from kimi_infra.errors import SpecError
from tests.unit import test_resolve_order as example

pytestmark = pytest.mark.compiler

SHIPPED = pathlib.Path(str(importlib.resources.files("kimi_infra"))) / "recipes"
FILES = sorted(SHIPPED.rglob("*.yaml"))


def faults(root: pathlib.Path) -> list[str]:
    """Read a catalogue that must be refused."""
    with pytest.raises(SpecError) as caught:
        recipes.read_catalogue(root)
    return [str(fault) for fault in caught.value.faults]


def test_all_faults_of_all_files_at_once(tmp_path: pathlib.Path) -> None:
    """Unknown key, wrong type, missing key, wrong origin and a duplicate key are all named in one error."""
    root = example.catalogue(
        tmp_path,
        hardware_overides={},
        variants={"default": {"vram_minimum_gb": "much"}},
        **{"x-provenance": {"model.base_args": "hearsay"}},
    )
    (root / "strategies" / "multi_node_tp.yaml").write_text(
        "name: multi_node_tp\nname: other\ndeploy_type: three_nodes\n"
    )
    name, model = "strategies/multi_node_tp.yaml", "models/org/example.yaml"
    hint = "write it as docs/recipes.md says"
    kinds = "'single_node', 'multi_node' or 'pd_cluster'"
    allowed = "seed, sibling, vllm, operator, derived, measured, unknown, ours"
    minimum = "variants.default.vram_minimum_gb"
    assert faults(root) == [
        f"{name}: name: the key is given twice, in lines 1 and 2; keep one of them",
        f"{name}: deploy_type: Input should be {kinds} (got three_nodes); {hint}",
        f"{model}: variants.default.precision: missing key; give it, as docs/recipes.md says",
        f"{model}: {minimum}: Input should be a valid number (got much); {hint}",
        (f'{model}: x-provenance["model.base_args"]: the origin is none of {allowed} (got hearsay); {hint}'),
        f"{model}: hardware_overides: unknown key; did you mean hardware_overrides?",
    ]


def test_a_missing_file_and_one_that_is_not_yaml(tmp_path: pathlib.Path) -> None:
    """A file that cannot be read is a fault beside the others."""
    root = example.catalogue(tmp_path)
    (root / "taxonomy.yaml").unlink()
    (root / "models" / "org" / "example.yaml").write_text("a: [")
    found = faults(root)
    assert found[0].startswith("taxonomy.yaml: the file cannot be read: ")
    assert found[1].startswith("models/org/example.yaml: line 1")


def test_a_plain_public_recipe_loads(tmp_path: pathlib.Path) -> None:
    """A recipe without any of our extensions needs no change; its id is its path."""
    read = recipes.read_catalogue(example.catalogue(tmp_path))
    assert read.recipe("org/example").layouts is None


def test_the_longest_path_vouches(tmp_path: pathlib.Path) -> None:
    """An origin may be given for a file, a block, or one flag or variable in it."""
    stated: object = {
        "default": "seed: all",
        "model": "vllm: block",
        "model.base_args.--repeated": "measured",
    }
    result = example.launch(tmp_path, None, **{"x-provenance": stated})
    origins = {flag.name: str(flag.provenance) for flag in result.flags}
    assert origins["--base"] == "vllm: model.base_args (block)"
    assert origins["--repeated"] == "measured: model.base_args"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SHIPPED)))
def test_every_stated_origin_is_of_a_value_there(file: pathlib.Path) -> None:
    """No shipped file vouches for something that it does not hold, and each says who vouches for the rest."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    stated = content["x-provenance"]
    assert "default" in stated
    for path in stated.keys() - {"default"}:
        assert _holds(content, path), path


def _holds(content: object, path: str) -> bool:
    """Follow a dotted path; keys may hold dots themselves."""
    if not path:
        return True
    if isinstance(content, list):
        return path in content
    if not isinstance(content, dict):
        return False
    return any(
        _holds(value, path[len(key) :].removeprefix("."))
        for key, value in content.items()
        if path == key or path.startswith(f"{key}.")
    )


def test_shipped_recipes_lie_at_their_ids() -> None:
    """A shipped recipe serves the model that its path names."""
    catalogue = recipes.load_catalogue()
    assert {key: recipe.model_id for key, recipe in catalogue.recipes.items()} == {
        key: key for key in catalogue.recipes
    }
    assert set(catalogue.profiles) == {"b300", "gb300", "vr200", "mi355x", "810e", "m890", "lab-cpu"}
    counts = {key: profile.gpus_per_node for key, profile in catalogue.profiles.items()}
    assert counts == {"b300": 8, "gb300": 4, "vr200": 4, "mi355x": 8, "810e": 16, "m890": 8, "lab-cpu": 1}
    assert [key for key, profile in catalogue.profiles.items() if profile.preview] == ["vr200"]
