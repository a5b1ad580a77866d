"""Recognisers on wrong outputs made in NumPy: each names its own mistake and no other; right outputs match none.

The mistakes are the wrong implementations that certify the tasks' gates, written independently of the recognisers.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.in_turn import one_in
from weft.attention.dtypes import Array
from weft.attention.shapes import SHAPES
from weft.core.status import Status
from weft.diagnose.conclusion import explains, known_as
from weft.diagnose.records import Case, Signature
from weft.diagnose.signatures import NAMES, SIGNATURES
from weft.judge.candidate import Candidate
from weft.judge.verdict import Verdict
from weft.kernels.ladder import RUNGS
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.registry import find_task
from weft.tasks.task import Workload

WHERE = {"last_columns", "some_columns", "tail_rows", "some_rows", "some_heads"}
"""They say where an error is, not what it is, and never lead where something else is found."""

WORKLOADS: Mapping[str, tuple[str, str, str]] = {
    "plain": ("sdpa", "few_queries", "none"),
    "causal": ("sdpa", "few_queries", "bottom_right"),
    "empty": ("sdpa", "few_keys", "bottom_right"),
    "grouped": ("sdpa", "gqa_4", "none"),
    "codes": ("fp8_sdpa", "gqa_4_ragged", "none"),
}
"""Name → task, shape and mask."""

MARKS: Mapping[tuple[str, str], str] = {
    ("plain", "zeros"): "all_zeros",
    ("plain", "mean_v"): "uniform_weights",
    ("plain", "no_scale"): "scale_missing",
    ("plain", "scale_twice"): "scale_twice",
    ("plain", "scale_098"): "score_factor",
    ("plain", "base_2"): "exponent_base",
    ("plain", "k_not_transposed"): "k_not_transposed",
    ("plain", "v_transposed"): "v_transposed",
    ("plain", "last_channel_of_q"): "inner_columns",
    ("plain", "half_d"): "inner_columns",
    ("causal", "causal_sees_next"): "causal_shift",
    ("causal", "causal_misses_self"): "causal_shift",
    ("causal", "causal_ignored"): "mask_ignored",
    ("causal", "wrong_alignment"): "causal_alignment",
    ("causal", "masked_with_zero"): "masked_with_zero",
    ("empty", "empty_row_nan"): "nan_from_empty_tile",
    ("plain", "padding_counted"): "masked_with_zero",
    ("plain", "heads_swapped"): "heads_swapped",
    ("grouped", "gqa_interleaved"): "wrong_kv_head",
    ("codes", "batch_0_keys"): "wrong_kv_head",
    ("plain", "one_head_negated"): "output_factor",
    ("plain", "tail_rows_zero"): "tail_rows",
    ("plain", "last_column_zero"): "last_columns",
    ("plain", "rows_shifted"): "rows_moved",
    ("plain", "last_tile_dropped"): "tile_dropped",
    ("plain", "first_tile_twice"): "tile_twice",
    ("plain", "l_of_previous_tile"): "stale_l",
    ("plain", "no_rescale"): "missing_rescale",
    ("plain", "u_not_rescaled"): "missing_rescale",
    ("plain", "l_not_rescaled"): "l_not_rescaled",
    ("plain", "column_0_rescaled"): "partial_rescale",
    ("plain", "max_of_tile"): "stale_m",
    ("plain", "not_normalised"): "not_normalised",
    ("plain", "merge_unweighted"): "unweighted_merge",
    ("plain", "merge_without_max"): "unweighted_merge",
    ("plain", "merge_counts_l_twice"): "double_counted_split",
    ("plain", "split_counted_twice"): "double_counted_split",
    ("causal", "empty_split_nan"): "nan_from_empty_tile",
    ("plain", "lse_log2"): "lse_form",
    ("plain", "lse_unscaled"): "lse_form",
    ("plain", "lse_without_max"): "lse_form",
    ("plain", "lse_is_max"): "lse_form",
    ("codes", "half_lsb"): "half_lsb",
    ("codes", "half_lsb_v"): "half_lsb",
    ("codes", "middle_127"): "half_lsb",
    ("codes", "steps_128"): "wrong_range",
    ("codes", "top_240"): "wrong_range",
    ("codes", "per_tensor_scale"): "other_heads_scale",
    ("codes", "head_0_scale"): "other_heads_scale",
    ("codes", "batch_0_scale"): "other_heads_scale",
    ("codes", "q_scale_forgotten"): "scale_forgotten",
    ("codes", "k_scale_forgotten"): "scale_forgotten",
    ("codes", "v_scale_forgotten"): "scale_forgotten",
    ("codes", "v_scale_twice"): "tensor_scale_twice",
    ("codes", "k_scale_for_q"): "other_tensors_scale",
    ("codes", "k_scale_for_v"): "other_tensors_scale",
    ("codes", "midpoint_forgotten"): "misread_codes",
    ("codes", "codes_signed"): "misread_codes",
}
"""(workload, wrong implementation) → the signature that must lead."""

RELATED: Mapping[str, set[str]] = {
    "max_of_tile": {"unweighted_merge"},  # tiles summed without exp(m - M), in any kernel
    "merge_without_max": {"stale_m"},
    "first_tile_twice": {"double_counted_split"},
    "split_counted_twice": {"tile_twice"},
    "last_tile_dropped": {"masked_with_zero"},
    "mean_v": {"wrong_range"},  # scores / 448 are nearly 0
    "q_scale_forgotten": {"wrong_range"},
    "steps_128": {"output_factor"},
    "top_240": {"output_factor"},
    "v_scale_twice": {"wrong_range"},
    "tail_rows_zero": {"never_written"},
}
"""Other signatures that say the same in other words."""

SPLIT = ("merge_", "split_", "empty_split")
"""Spoilings of kernels that merge parts."""


@cache
def drawn(workload: str) -> AttentionProblem:
    task, shape, mask = WORKLOADS[workload]
    encoding = "plain" if task == "sdpa" else "sim_fp8"
    problem = find_task(task).draw(Workload(SHAPES[shape], "f16", mask, "unit_normal", 0, encoding))
    assert isinstance(problem, AttentionProblem)
    return problem


def case_of(workload: str, outputs: Mapping[str, Array], *, rung: str = "scalar") -> Case:
    problem = drawn(workload)
    verdict = Verdict(problem.workload, Status.INCORRECT_NUMERICAL)
    task = find_task(WORKLOADS[workload][0])
    arrays = {**problem.arrays, **outputs}
    return Case(Candidate(RUNGS[rung].path), task, problem, verdict, verdict, arrays=arrays)


def recognised(case: Case) -> list[Signature]:
    found = [signature for recognise in SIGNATURES if (signature := recognise(case)) is not None]
    return sorted(found, key=lambda signature: -signature.rank)


@cache
def spoilt(workload: str, name: str) -> list[Signature]:
    mutants = {mutant.name: mutant for mutant in find_task(WORKLOADS[workload][0]).mutants}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        outputs = mutants[name].run(drawn(workload))
    return recognised(case_of(workload, outputs, rung="split_k" if name.startswith(SPLIT) else "scalar"))


@pytest.mark.parametrize(("workload", "name"), one_in(4, MARKS, several=True))
def test_names_its_mistake(workload: str, name: str) -> None:
    found = spoilt(workload, name)
    assert found, "nothing was recognised"
    assert found[0].name == MARKS[workload, name], [(each.name, each.rank, each.message) for each in found]
    assert re.search(r"\d", f"{known_as(found[0])}: {found[0].message}"), "numbers are shown"
    assert found[0].cure and 0 < found[0].rank <= 1


def test_names_no_other_mistake() -> None:
    """The confusion matrix has nothing outside its diagonal but synonyms."""
    confused = []
    for (workload, name), mark in MARKS.items():
        names = {each.name for each in spoilt(workload, name)}
        strange = names - {mark} - WHERE - RELATED.get(name, set())
        if strange:
            confused.append(f"{workload} {name}: {mark} and {', '.join(sorted(strange))}")
    assert not confused, "\n" + "\n".join(confused)


@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_silent_on_right_outputs(workload: str) -> None:
    """No recogniser matches, even if the verdict is a failure."""
    for name, run in find_task(WORKLOADS[workload][0]).right.items():
        for rung in ("scalar", "split_k"):
            found = recognised(case_of(workload, run(drawn(workload)), rung=rung))
            assert not found, (name, [(each.name, each.message) for each in found])


@pytest.mark.parametrize("name", ["stale_output", "prefix_mean", "v_copied"])
def test_silent_where_nothing_fits(name: str) -> None:
    """An output that matches no known mistake gets no name."""
    assert not [each for each in spoilt("plain", name) if each.name not in WHERE]


def test_numbers_in_messages() -> None:
    said = {
        ("plain", "scale_twice"): "multiplied by 0.125",
        ("plain", "no_scale"): "multiplied by 8",
        ("causal", "causal_sees_next"): "shifted by +1",
        ("causal", "causal_misses_self"): "shifted by -1",
        ("plain", "column_0_rescaled"): "columns 1-63",
        ("plain", "one_head_negated"): "-1 ",
        ("codes", "half_lsb_v"): "+0.5 LSB",
        ("plain", "rows_shifted"): "1 before",
        ("empty", "empty_row_nan"): "rows 0-79",
        ("plain", "last_tile_dropped"): "keys 96 to 99",
    }
    for (workload, name), words in said.items():
        assert words in spoilt(workload, name)[0].message, spoilt(workload, name)[0].message


def test_one_factor_on_o_is_l() -> None:
    """Z14: an l that is 1.48 times too large makes O 0.675 times the right O and shifts LSE by log 1.48."""
    gold = drawn("plain").gold
    outputs = {"o": (gold.o / 1.48).astype(np.float16), "lse": (gold.lse + np.log(1.48)).astype(np.float32)}
    found = recognised(case_of("plain", outputs))
    assert found[0].name == "l_too_large" and "0.6757" in found[0].message and "1.48" in found[0].message
    found = recognised(case_of("plain", {"o": outputs["o"]}))
    assert found[0].name == "l_too_large" and "0.6757" in found[0].message
    # With a right LSE it is not l.
    found = recognised(case_of("plain", {"o": outputs["o"], "lse": gold.lse.astype(np.float32)}))
    assert found[0].name == "output_factor"


@pytest.mark.parametrize("share", [0.0, 0.005, 0.015])
def test_explained_is_the_share_of_the_error_that_the_mistake_explains(share: float) -> None:
    """O is half the right O, plus noise of a known share of that error."""
    problem = drawn("plain")
    error = -0.5 * problem.gold.o
    noise = np.random.default_rng(3).standard_normal(error.shape)
    noise *= share * np.linalg.norm(error) / np.linalg.norm(noise)
    found = recognised(case_of("plain", {"o": problem.gold.o + error + noise}))[0]
    assert found.name == "l_too_large" and found.explained is not None
    assert found.explained == pytest.approx(1 - share, abs=1e-3)
    assert re.fullmatch(r"l_too_large, explains [\d.]+ % of the error", known_as(found))


def test_a_share_is_never_rounded_up_and_never_invented() -> None:
    found = spoilt("plain", "scale_twice")[0]
    assert explains(replace(found, explained=0.99999)) == "explains 99.9 % of the error"
    assert explains(replace(found, explained=1.0)) == "explains 100 % of the error"
    unmeasured = spoilt("plain", "zeros")[0]
    assert (unmeasured.name, unmeasured.explained) == ("all_zeros", None)
    assert (known_as(unmeasured), explains(unmeasured)) == ("all_zeros", "")


def test_every_name_has_a_section() -> None:
    page = Path(__file__).parents[2] / "docs" / "signatures.md"
    sections = re.findall(r"^### (\w+)$", page.read_text(), flags=re.MULTILINE)
    assert sorted(sections) == sorted(NAMES) and len(set(NAMES)) == len(NAMES)


def test_every_name_is_known() -> None:
    source = Path(__file__).parents[2] / "src" / "weft" / "diagnose" / "signatures"
    given = {name for path in source.glob("*.py") for name in re.findall(r'Signature\(\s*"(\w+)"', path.read_text())}
    assert given <= set(NAMES)
    for workload, name in MARKS:
        assert {each.name for each in spoilt(workload, name)} <= set(NAMES)
