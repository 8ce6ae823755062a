"""What engines hold: the published figures, what is not known, and how the answer moves with its inputs.

``python -m tests.unit.test_capacity`` prints the tables of docs/capacity.md.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_infra.config import recipes
from kimi_infra.domain.capacity import Basis, Capacity, Figure
from kimi_infra.domain.hardware import HardwareProfile
from kimi_infra.domain.launch import Flag, Launch, Role
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.domain.recipe import CacheFacts
from kimi_infra.errors import SpecError
from kimi_infra.planning import capacity, capacity_figures, footprint
from kimi_infra.rendering import capacity_text

pytestmark = pytest.mark.compiler

GB = 10**9
K31 = "moonshotai/Kimi-K3.1-Pro"
NVFP4 = ("nvfp4_kv_cache",)
BOTH = ("nvfp4_kv_cache", "mxfp4_index_keys")


def said(origin: Origin, source: str) -> Provenance:
    """Return a provenance."""
    return Provenance(origin=origin, source=source)


FACTS = CacheFacts(
    layers=24,
    latent_bytes={"fp8": 576, "nvfp4": 352},
    index_bytes={"fp8": 132, "mxfp4": 68},
    formats={"nvfp4_kv_cache": ("latent", "nvfp4"), "mxfp4_index_keys": ("index", "mxfp4")},
    state_layers=69,
    state_bytes=None,
    context=1_048_576,
    weights_bytes=1_561_000_000_000,
    provenance={
        "layers": said(Origin.SEED, "announcement"),
        "latent_bytes": said(Origin.SEED, "recipe page, NVFP4 KV cache"),
        "index_bytes.fp8": said(Origin.SEED, "announcement"),
        "index_bytes.mxfp4": said(Origin.DERIVED, "OCX MX: 64 bytes of values, 4 of scales"),
        "state_bytes": said(Origin.UNKNOWN, "in neither document"),
        "weights_bytes": said(Origin.SIBLING, "Kimi-K3, size of its checkpoint"),
    },
)
PROFILES = {
    key: HardwareProfile(
        key=key, title=title, brand="NVIDIA", generation="blackwell", gpus_per_node=gpus, vram_gb=vram
    )
    for key, title, gpus, vram in (
        ("b300", "8x B300", 8, 2144),
        ("gb300", "4x GB300", 4, 1152),
        ("mi355x", "8x MI355X", 8, 2304),
        ("vr200", "4x VR200", 4, None),
        ("810e", "16x Zhenwu 810E", 16, None),
        ("m890", "8x Zhenwu M890", 8, None),
    )
}


def launch(*words: str, model: str = K31) -> Launch:
    """Return a command whose words are split into flags at each dash."""
    flags: list[Flag] = []
    for word in words:
        if word.startswith(("-", "<")) or not flags:
            flags.append(Flag(tokens=(word,), provenance=said(Origin.OPERATOR, "advanced_args")))
        else:
            flags[-1] = dataclasses.replace(flags[-1], tokens=(*flags[-1].tokens, word))
    return Launch(rank=0, role=Role.HEAD, model_id=model, flags=tuple(flags), env=(), image=None)


def tp(size: int, dcp: int = 1) -> tuple[str, ...]:
    """Return the words of a tensor-parallel engine, sharded if a DCP size is given."""
    words = ("--tensor-parallel-size", str(size))
    return words if dcp == 1 else (*words, "--decode-context-parallel-size", str(dcp))


def ask(
    hardware: str | HardwareProfile,
    *words: str,
    nodes: int = 1,
    features: tuple[str, ...] = (),
    facts: CacheFacts = FACTS,
    model: str = K31,
) -> Capacity:
    """Assess an engine by its words."""
    profile = PROFILES[hardware] if isinstance(hardware, str) else hardware
    return capacity.assess(
        facts, profile, launches=(launch(*words, model=model),), nodes=nodes, features=features
    )


def engines() -> tuple[tuple[str, Capacity], ...]:
    """Return the engines of the page's second table."""
    pool = ("--tensor-parallel-size", "1", "--data-parallel-size", "16", "--enable-expert-parallel")
    replicas = ("--tensor-parallel-size", "8", "--data-parallel-size", "4", "--enable-expert-parallel")
    draft = ("--speculative-config", '{"method":"dspark"}')
    return (
        ("b300, TP8", ask("b300", *tp(8))),
        ("b300, TEP8", ask("b300", *tp(8), "--enable-expert-parallel")),
        ("b300, TP8, NVFP4", ask("b300", *tp(8), features=NVFP4)),
        ("b300, TP8, NVFP4 and MXFP4", ask("b300", *tp(8), features=BOTH)),
        ("b300, TP8, DCP8", ask("b300", *tp(8, 8))),
        ("b300, TP8, DCP8, NVFP4 and MXFP4", ask("b300", *tp(8, 8), features=BOTH)),
        ("one gb300 tray, TP4", ask("gb300", *tp(4))),
        ("two gb300 trays, TP8", ask("gb300", *tp(8), nodes=2)),
        ("two gb300 trays, TP8, DCP8", ask("gb300", *tp(8, 8), nodes=2)),
        ("two gb300 trays, TP8, DCP8, NVFP4 and MXFP4", ask("gb300", *tp(8, 8), nodes=2, features=BOTH)),
        ("decode pool, four gb300 trays, TP1, DP16, EP", ask("gb300", *pool, nodes=4)),
        ("decode pool, two b300 nodes, TP1, DP16, EP", ask("b300", *pool, nodes=2)),
        ("mi355x, TP8, DCP8, draft", ask("mi355x", *tp(8, 8), *draft)),
        ("two vr200 trays, TP8", ask("vr200", *tp(8), nodes=2)),
        ("two 810e nodes, TP32, EP", ask("810e", *tp(32), "--enable-expert-parallel", nodes=2)),
        ("four m890 nodes, TP8, DP4, EP", ask("m890", *replicas, nodes=4)),
    )


def figures() -> Mapping[str, Figure]:
    """Return the published figures by name."""
    return {figure.name: figure for figure in capacity_figures.figures(FACTS, PROFILES)}


def tables() -> str:
    """Return both tables of the page."""
    first = capacity_text.figures(tuple(figures().values()))
    return f"{first}\n{capacity_text.placements(engines())}"


def test_the_page_holds_the_tables() -> None:
    """docs/capacity.md is current: its tables are what this file prints."""
    page = (Path(__file__).parents[2] / "docs" / "capacity.md").read_text(encoding="utf-8")
    assert all(table in page for table in tables().split("\n\n"))


def test_the_shipped_recipe_has_these_numbers() -> None:
    """The figures of this page are those of what is shipped, not of numbers that only tests know."""
    catalogue = recipes.load_catalogue()
    facts = catalogue.recipe(K31).cache
    assert facts is not None
    assert dataclasses.replace(facts, provenance=FACTS.provenance) == FACTS
    shipped = {key: profile.vram_gb for key, profile in catalogue.profiles.items()}
    assert {key: profile.vram_gb for key, profile in PROFILES.items()}.items() <= shipped.items()


@pytest.mark.parametrize(
    ("name", "published", "basis", "low", "high"),
    [
        ("tokens, 8x B300, TP8, FP8: memory less weights", 2_600_000, Basis.BYTES, 0.163, 0.165),
        ("tokens, 8x B300, TP8, FP8", 2_600_000, Basis.CALIBRATION, 0, 0),
        ("tokens, the same with DCP8, were all of the cache split", 18_500_000, Basis.PREDICTION, 0.12, 0.13),
        ("tokens, the same with DCP8", 18_500_000, Basis.CALIBRATION, 0, 0),
        ("DCP8 against TP8", 7, Basis.CALIBRATION, 0.01, 0.02),
        ("NVFP4 latent against FP8", 1.5, Basis.PREDICTION, -0.04, -0.03),
        ("NVFP4 latent and MXFP4 index keys against FP8", 1.7, Basis.PREDICTION, -0.03, -0.01),
        ("full contexts, 8x GB300, TP8, FP8", 3, Basis.PREDICTION, 0, 0),
        ("full contexts, 8x GB300, TP8 with DCP8, NVFP4 and MXFP4", 36, Basis.PREDICTION, 0.06, 0.08),
        ("full contexts, the same, were all of the cache split", 36, Basis.PREDICTION, 0.3, 0.35),
        ("GB of weights on each of 8 ranks, of K3", 195, Basis.BYTES, 0, 0.001),
        ("TB of weights, of K3", 1.561, Basis.BYTES, 0.004, 0.005),
    ],
)
def test_published_figures(name: str, published: float, basis: Basis, low: float, high: float) -> None:
    """Each published figure is met within its tolerance, and only the two calibrations are met by force."""
    found = figures()[name]
    assert (found.published, found.basis) == (published, basis)
    assert low <= found.deviation <= high


def test_every_figure_is_held_to_a_tolerance() -> None:
    """No row of the table is without its line above."""
    (mark,) = (each for each in test_published_figures.pytestmark if each.name == "parametrize")  # type: ignore[attr-defined]
    assert set(figures()) == {row[0] for row in mark.args[1]}


def test_the_arithmetic_by_hand() -> None:
    """8x B300 at TP8 and DCP8 come out as a pocket calculator has it, in bytes."""
    whole, split = ask("b300", *tp(8)), ask("b300", *tp(8, 8))
    usable, weights, token = 246_560_000_000, 195_125_000_000, 16_992
    unsplit = token * (2_600_000 - 18_500_000 / 8) / (18_500_000 - 2_600_000)
    cache = 2_600_000 * (token + unsplit)
    assert whole.weights == split.weights == weights
    assert whole.token == token
    assert split.token == Fraction(token, 8)
    assert unsplit == pytest.approx(307.2, abs=0.1)
    assert float(whole.state or 0) == pytest.approx(unsplit * 1_048_576)
    assert float(whole.cache or 0) == pytest.approx(cache) == pytest.approx(44.98e9, rel=1e-3)
    assert (
        float(whole.beside or 0) == pytest.approx(usable - weights - cache) == pytest.approx(6.46e9, rel=1e-3)
    )
    assert (whole.tokens, split.tokens) == (2_600_000, 18_500_000)


@pytest.mark.parametrize(
    ("tokens", "sharded", "contexts"),
    [(2_650_000, 18_450_000, 37.7), (2_550_000, 18_550_000, 39.5)],
)
def test_rounding_does_not_explain_36_contexts(
    monkeypatch: pytest.MonkeyPatch, tokens: int, sharded: int, contexts: float
) -> None:
    """Whatever the calibrations were before the page rounded them, 36 lies below what they give."""
    published = dataclasses.replace(footprint.PUBLISHED[K31], tokens=tokens, sharded_tokens=sharded)
    monkeypatch.setattr(capacity, "PUBLISHED", {K31: published})
    found = ask("gb300", *tp(8, 8), nodes=2, features=BOTH)
    assert float(found.contexts or 0) == pytest.approx(contexts, abs=0.05)


def test_what_the_calibration_was_measured_on_is_the_taxonomy_s() -> None:
    """The figures of 8x B300 are taken from as much memory as an engine there is given."""
    published = footprint.PUBLISHED[K31]
    assert published.memory == ask("b300", *tp(8)).memory
    assert published.tensor == PROFILES["b300"].gpus_per_node


@pytest.mark.parametrize(
    ("hardware", "nodes", "size", "fits", "gigabytes"),
    [
        ("b300", 1, 8, True, 26.8),
        ("gb300", 1, 4, False, -150.2),  # one tray holds 1152 GB, and the weights are 1561 GB
        ("gb300", 2, 8, True, 45.2),
        ("mi355x", 1, 8, True, 45.2),
    ],
)
def test_what_fits(hardware: str, nodes: int, size: int, fits: bool, gigabytes: float) -> None:
    """An engine fits where a full context has room beside the weights, and it is said by how much."""
    found = ask(hardware, *tp(size), nodes=nodes)
    assert found.fits is fits
    assert float(found.margin or 0) / GB == pytest.approx(gigabytes, abs=0.05)
    verdict = f"{'yes' if fits else 'no'}, {abs(gigabytes)} GB"
    assert capacity_text.lines(found)[0].startswith(f"fits: {verdict}")
    assert any(line.startswith("KV cache: ") for line in capacity_text.lines(found)) is fits


def test_more_ranks_than_accelerators_do_not_fit() -> None:
    """Eight ranks on one tray of four are refused room, whatever the bytes say."""
    found = ask("gb300", *tp(8))
    assert found.fits is False
    assert capacity_text.lines(found)[0] == "fits: no, 8 ranks for 4 accelerators"


def test_accelerators_that_stay_idle_are_told() -> None:
    """An engine smaller than its nodes says what is left alone."""
    assert ask("gb300", *tp(8), nodes=3).remarks == ("4 of 12 accelerators are not used",)


@pytest.mark.parametrize(
    ("found", "where", "what"),
    [
        (ask("vr200", *tp(8), nodes=2), "taxonomy.yaml: hardware_profiles.vr200.vram_gb", "4x VR200"),
        (ask("810e", *tp(32), nodes=2), "taxonomy.yaml: hardware_profiles.810e.vram_gb", "810E"),
        (ask("m890", *tp(8), "-dp", "4", nodes=4), "taxonomy.yaml: hardware_profiles.m890.vram_gb", "M890"),
        (ask("b300", *tp(8), "--kv-cache-dtype", "bfloat16"), "x-cache", "in bfloat16 and fp8"),
        (ask("b300", *tp(8), "--kv-cache-dtype", "fp8_ds_mla"), "x-cache", "in fp8_ds_mla and fp8"),
        (ask("b300", *tp(8), "--kv-cache-memory-bytes", "1"), "--kv-cache-memory-bytes", "by hand"),
        (ask("b300", *tp(8), model="a/b"), "x-cache.state_bytes", "state"),
        (ask("b300", "-tp", "4", "-dp", "2", model="a/b"), "x-cache", "share of the routed experts"),
        (
            ask("b300", *tp(8), facts=dataclasses.replace(FACTS, layers=240)),
            "x-cache",
            "a size derived from them is below zero",
        ),
    ],
)
def test_what_is_not_known_is_named(found: Capacity, where: str, what: str) -> None:
    """A missing input leaves no number behind, only its name and place."""
    assert any(need.where == where and what in need.what for need in found.missing)
    assert (found.fits, found.tokens, found.full_contexts, found.margin) == (None,) * 4
    first, *rest = capacity_text.lines(found)
    assert first.startswith("fits: not known: ")
    assert where in first
    assert not any(line.startswith("KV cache") for line in rest)
    assert "not known | not known |\n" in capacity_text.placements((("it", found),))


@pytest.mark.parametrize(
    ("hardware", "ranks", "nodes", "told"),
    [("810e", 32, 2, "96 GB a PPU"), ("m890", 8, 1, "147456 MiB a PPU")],
)
def test_what_is_told_of_a_ppu_is_no_number_of_ours(hardware: str, ranks: int, nodes: int, told: str) -> None:
    """Reports on PPUs reach the reader and not the arithmetic."""
    found = ask(hardware, *tp(ranks), nodes=nodes)
    assert (found.memory, found.fits) == (None, None)
    assert any(told in line for line in capacity_text.lines(found))
    assert not ask("vr200", *tp(8), nodes=2).remarks


def test_tensor_parallelism_replicates_the_cache_and_splits_the_state() -> None:
    """Twice the ranks hold half the weights and half the state each, and a token's bytes stay."""
    few, many = ask("gb300", *tp(8), nodes=2), ask("gb300", *tp(16), nodes=4)
    assert many.token == few.token
    assert few.weights == 2 * (many.weights or 0)
    assert few.state == 2 * (many.state or 0)


def test_replicas_add_up_and_no_context_lies_in_two() -> None:
    """Each data-parallel rank has tokens of its own; routed experts are split over all, the rest is not."""
    found = ask("gb300", "-tp", "1", "--data-parallel-size=16", "-ep", nodes=4)
    alone = found.contexts or Fraction(0)
    assert found.sharding.expert
    assert found.tokens == 16 * int(alone * found.context)
    assert found.full_contexts == 16 * int(alone) == 32
    # By hand: 110.0 GB of BF16 that every replica holds, and a sixteenth of the other 1451.0 GB.
    assert float(found.weights or 0) / GB == pytest.approx(110.0 + 1451.0 / 16, abs=0.1)


def test_pipeline_stages_split_layers() -> None:
    """A stage holds its share of the weights and the cache of its own layers, of which the deepest counts."""
    found = ask("gb300", "-tp", "4", "-pp", "5", nodes=5)
    assert found.weights == Fraction(FACTS.weights_bytes, 20)
    assert found.token == 5 * 708


def test_a_known_state_is_not_derived() -> None:
    """With the state's bytes given, only what lies beside it comes from the published tokens."""
    facts = dataclasses.replace(FACTS, state_bytes=8_000_000)
    found = ask("b300", *tp(8), facts=facts)
    assert found.state == 69 * 1_000_000
    assert found.tokens == 2_600_000
    assert (ask("b300", *tp(8, 8), facts=facts).tokens or 0) > 18_500_000
    assert (found.beside or 0) > (ask("b300", *tp(8)).beside or 0)
    assert "state of 69 layers, split over TP and not over DCP (unknown" in "\n".join(
        capacity_text.lines(found)
    )


def test_a_model_without_state_needs_no_size_of_it() -> None:
    """Plain attention leaves nothing open about state."""
    found = ask("b300", *tp(8), facts=dataclasses.replace(FACTS, state_layers=0))
    assert found.state == 0
    assert found.fits


@pytest.mark.parametrize(
    ("words", "features", "token"),
    [
        ((), (), 24 * 708),
        (("--kv-cache-dtype", "auto"), (), 24 * 708),
        (("--kv-cache-dtype", "fp8_e4m3"), (), 24 * 708),
        (("--kv_cache_dtype=nvfp4",), (), 24 * 484),
        (("--kv-cache-dtype", "nvfp4_ds_mla"), NVFP4, 24 * 484),
        (("--kv-cache-dtype", "<operator: its name; the page>"), NVFP4, 24 * 484),
        ((), ("mxfp4_index_keys",), 24 * 644),
        ((), BOTH, 24 * 420),
    ],
)
def test_formats(words: tuple[str, ...], features: tuple[str, ...], token: int) -> None:
    """A feature says what the cache is made of, else the flag, else the model's own default."""
    found = ask("b300", *tp(8), *words, features=features)
    assert found.token == token
    assert found.fits
    by_default = any("576 fp8 by default" in line for line in capacity_text.lines(found))
    assert by_default is not any(word in " ".join((*words, *features)) for word in ("fp8", "nvfp4"))


def test_a_stated_utilisation_counts_and_is_named() -> None:
    """The operator's part of the memory replaces vLLM's default, and its origin is the flag's."""
    usual, more = ask("b300", *tp(8)), ask("b300", *tp(8), "--gpu-memory-utilization", "0.95")
    assert (usual.utilisation, more.utilisation) == (Fraction("0.92"), Fraction("0.95"))
    assert (more.cache or 0) - (usual.cache or 0) == Fraction("0.03") * 268 * GB
    assert (
        "- 0.92 of it is the engine's (vllm: config/cache.py, gpu_memory_utilization)"
        in capacity_text.lines(usual)
    )
    assert "- 0.95 of it is the engine's (operator: advanced_args)" in capacity_text.lines(more)


def test_a_shorter_context_needs_less_room() -> None:
    """``--max-model-len`` decides what a full context is; the state then weighs more for each token."""
    usual = ask("b300", *tp(8))
    for text, tokens in (
        ("131072", 131_072),
        ("128K", 131_072),
        ("128k", 128_000),
        ("0.5m", 500_000),
        ("0.0000005t", 500_000),
    ):
        found = ask("b300", *tp(8), "--max-model-len", text)
        assert found.context == tokens
        assert (found.tokens or 0) < (usual.tokens or 0)
        assert (found.margin or 0) > (usual.margin or 0)
    for text in ("auto", "-1"):
        assert ask("b300", *tp(8), "--max-model-len", text).context == FACTS.context


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("-tp", "many"), "--tensor-parallel-size"),
        (("-dcp", "0"), "--decode-context-parallel-size"),
        (("--gpu-memory-utilization", "1.5"), "--gpu-memory-utilization"),
        (("--gpu-memory-utilization", "most"), "--gpu-memory-utilization"),
        (("--gpu-memory-utilization", "0"), "--gpu-memory-utilization"),
        (("--gpu-memory-utilization", "nan"), "--gpu-memory-utilization"),
        (("--gpu-memory-utilization", "inf"), "--gpu-memory-utilization"),
        (("--gpu-memory-utilization", "1e-999999999"), "--gpu-memory-utilization"),
        (("--max-model-len", "0.5K"), "--max-model-len"),
        (("--max-model-len", "long"), "--max-model-len"),
        (("--max-model-len", "0"), "--max-model-len"),
    ],
)
def test_a_size_that_is_no_number_is_refused(words: tuple[str, ...], where: str) -> None:
    """The fault names the flag and what stands there."""
    with pytest.raises(SpecError) as raised:
        ask("b300", *words)
    (fault,) = raised.value.faults
    assert (fault.where, fault.got) == (where, words[1])


@pytest.mark.parametrize(
    "flag",
    [
        "--max-model-len",
        "--tensor-parallel-size",
        "--decode-context-parallel-size",
        "--gpu-memory-utilization",
    ],
)
def test_a_number_beyond_all_sense_is_refused_and_not_shown_whole(flag: str) -> None:
    """Python reads no whole number of so many digits; the fault stays one line."""
    with pytest.raises(SpecError) as raised:
        ask("b300", flag, "9" * 5000)
    (fault,) = raised.value.faults
    assert fault.where == flag
    assert (fault.got or "").startswith("999")
    assert len(str(fault)) < 200


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("9e-1", "0.9"),
        ("1", "1"),
        (".5", "0.5"),
        ("1.0E0", "1"),
        (f"0.{'9' * 5000}", "1"),
        ("1e-300", "1e-300"),
    ],
)
def test_a_part_of_the_memory_is_written_as_any_float(text: str, share: str) -> None:
    """What vLLM's own parser takes is taken here."""
    found = ask("b300", *tp(8), "--gpu-memory-utilization", text)
    assert found.utilisation == Fraction(share)
    assert capacity_text.lines(found)


def test_a_draft_is_not_counted_and_that_is_said() -> None:
    """The draft model's bytes are not published: the numbers become bounds."""
    found = "\n".join(capacity_text.lines(ask("mi355x", *tp(8, 8), "--speculative-config", "{}")))
    assert "KV cache: at most " in found
    assert "not counted: weights and cache of the draft model" in found


def test_flags_that_are_still_open_are_told() -> None:
    """A placeholder may hold any flag, so the answer says that it leaves it out."""
    for words in (
        ("<operator: remaining flags; the page>",),
        ("--max-model-len", "<operator: tokens; the page>"),
    ):
        found = ask("mi355x", *tp(8, 8), *words)
        assert found.remarks == ("flags that are still open are not reckoned with",)
        assert found.fits


def test_figures_want_every_input() -> None:
    """Without a node's memory there is no table, and the place of what is missing is named."""
    profiles = {**PROFILES, "gb300": dataclasses.replace(PROFILES["gb300"], vram_gb=None)}
    with pytest.raises(SpecError, match=r"hardware_profiles\.gb300\.vram_gb"):
        capacity_figures.figures(FACTS, profiles)


@pytest.mark.parametrize(("name", "found"), engines())
def test_lines_are_few_and_each_assumption_has_its_origin(name: str, found: Capacity) -> None:
    """A plan gets at most twelve lines, whatever has to be said."""
    lines = capacity_text.lines(found)
    origins = tuple(f"({origin.value}: " for origin in Origin)
    assert len(lines) <= 12, name
    assert len(found.assumptions) >= 5, name
    assert all(any(origin in line for origin in origins) for line in lines if line.startswith("- ")), name


SIZES = st.sampled_from((1, 2, 4, 8))
MEMORY = st.integers(0, 4_000)
BYTES = st.integers(1, 2_000)


def on(vram: int, dcp: int = 1, features: tuple[str, ...] = (), facts: CacheFacts = FACTS) -> Capacity:
    """Assess TP8 on a node with so many GB."""
    return ask(
        dataclasses.replace(PROFILES["b300"], vram_gb=vram), *tp(8, dcp), features=features, facts=facts
    )


@settings(max_examples=60, deadline=None)
@given(vram=MEMORY, more=MEMORY, dcp=SIZES)
def test_more_memory_never_holds_less(vram: int, more: int, dcp: int) -> None:
    """Tokens grow with the memory and are never below none."""
    less, larger = on(vram, dcp).tokens, on(vram + more, dcp).tokens
    assert less is not None
    assert larger is not None
    assert 0 <= less <= larger


@settings(max_examples=60, deadline=None)
@given(vram=MEMORY, dcp=SIZES, features=st.sampled_from(((), NVFP4, BOTH)))
def test_sharding_never_gives_more_than_its_ranks(vram: int, dcp: int, features: tuple[str, ...]) -> None:
    """DCP of n holds at least as much as none, and at most n times as much."""
    one, split = on(vram, features=features).contexts, on(vram, dcp, features).contexts
    assert one is not None
    assert split is not None
    assert one <= split <= dcp * one


@settings(max_examples=60, deadline=None)
@given(vram=MEMORY, dcp=SIZES, size=BYTES, more=BYTES, state=st.none() | st.integers(0, 10**7))
def test_a_larger_format_never_holds_more(
    vram: int, dcp: int, size: int, more: int, state: int | None
) -> None:
    """Tokens shrink as the bytes of the chosen format grow, whatever is known of the state."""
    base = dataclasses.replace(FACTS, state_bytes=state)
    facts = (
        dataclasses.replace(base, latent_bytes={"fp8": 576, "nvfp4": latent})
        for latent in (size, size + more)
    )
    small, large = (on(vram, dcp, NVFP4, each).tokens for each in facts)
    assert small is not None
    assert large is not None
    assert small >= large >= 0


if __name__ == "__main__":
    sys.stdout.write(tables())
