"""Kernels on points of the family: rungs with windows, caps and sinks, lengths or pages; `scalar` with a window.
They are judged, and their mistakes are named.
"""

from pathlib import Path

import pytest

from tests.in_turn import one_in
from weft.attention.shapes import shape
from weft.core.status import Status
from weft.diagnose.diagnose import diagnose_workload
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.select import find_candidate
from weft.kernels import RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

WINDOW = (
    ("// weft: define  WARPS = 4", "// weft: define  WARPS = 4\n// weft: define  WINDOW_LEFT = 3"),
    ("// weft: define  CAUSAL = 0", "// weft: define  CAUSAL = 0\n// weft: define  WINDOW_RIGHT = 3"),
    ("if (CAUSAL == 0) return SKV;", "if (CAUSAL == 0) return max(0, min(SKV, query + SKV - SQ + WINDOW_RIGHT + 1));"),
    ("for (int key = 0;", "for (int key = max(0, (CAUSAL == 1 ? query : query + SKV - SQ) - WINDOW_LEFT);"),
)  # fmt: skip
CASES = (
    ("sliding_window", "scalar", WINDOW, ("const int diagonal", "// window\n    const int diagonal"), Status.PASSED),
    ("sliding_window", "scalar", WINDOW, ("- WINDOW_LEFT)", "- WINDOW_LEFT + 1)"), Status.INCORRECT_NUMERICAL),
    ("sliding_window", "pipelined", (), ("- WINDOW_LEFT);", "- WINDOW_LEFT);"), Status.PASSED),
    ("sliding_window", "pipelined", (), ("- WINDOW_LEFT);", "- WINDOW_LEFT - 1);"), Status.INCORRECT_NUMERICAL),
    ("sliding_window", "pipelined", (), ("+ WINDOW_RIGHT + 1)", "+ WINDOW_RIGHT)"), Status.INCORRECT_NUMERICAL),
    ("sliding_window", "fa_triton", (), ("+ shift  # no", "+ shift  # no"), Status.PASSED),
    ("sliding_window", "fa_triton", (), ("+ shift  # no", "+ shift + 1  # no"), Status.INCORRECT_NUMERICAL),
    ("softcap_sinks", "softcap_sinks", (), ("float m = sinks[h]", "float m = sinks[h]"), Status.PASSED),
    ("softcap_sinks", "softcap_sinks", (), ("l = 1.0f;", "l = 0.0f;"), Status.INCORRECT_NUMERICAL),
    ("sdpa_varlen", "varlen_triton", (), ("    k_begin = ", "    k_begin = "), Status.PASSED),
    ("sdpa_varlen", "varlen_triton", (), ("1 + SKV - SQ", "2 + SKV - SQ"), Status.INCORRECT_NUMERICAL),
    ("sdpa_varlen", "varlen_triton", (), ("(k_begin.to", "(0 * k_begin.to"), Status.INCORRECT_NUMERICAL),
    ("paged_decode", "paged_decode", (), ("key % PAGE)", "key % PAGE)"), Status.PASSED),
    ("paged_decode", "paged_decode", (), ("key % PAGE)", "key % 8)"), Status.INCORRECT_NUMERICAL),
    ("paged_decode_fp8", "paged_decode_fp8", (), ("scale * k_scale", "scale * k_scale"), Status.PASSED),
    ("paged_decode_fp8", "paged_decode_fp8", (), ("u / l * value_scale", "u / l"), Status.INCORRECT_NUMERICAL),
)  # fmt: skip
PAGES = "b4-hq4-hkv2-sq5-skv77-d64"
NAMES = {"paged_decode": PAGES, "paged_decode_fp8": PAGES, "sdpa_varlen": "b5-hq2-hkv1-sq77-skv70-d64"}


def _edited(rung: str, edits: tuple[tuple[str, str], ...], folder: Path) -> Path:
    text = RUNGS[rung].path.read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / f"kernel{RUNGS[rung].path.suffix}"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("task", "rung", "edits", "last", "status"), CASES, ids=[f"{row[0]}-{row[1]}-{row[4]}" for row in CASES]
)
def test_a_kernel_is_judged(
    task: str, rung: str, edits: tuple[tuple[str, str], ...], last: tuple[str, str], status: Status, tmp_path: Path
) -> None:
    path = _edited(rung, (*edits, last), tmp_path)
    name = NAMES.get(task, "b1-hq4-hkv2-sq33-skv70-d64")
    mask = "none" if "RIGHT" in last[0] else "bottom_right"
    work = Workload(shape(name), "f16", mask, "unit_normal", 0, TASKS[task].workloads.encodings[0])
    verdict = check(Candidate(path), TASKS[task], work)
    assert verdict.status is status, verdict.message


HEADS_IN_TURN = (
    ("k_scale[kv_head]", "k_scale[h % HKV]"),
    ("v_scale[h / (gridDim.y / HKV)]", "v_scale[h % HKV]"),
)
MISTAKES = (
    ("sliding_window", "scalar", (*WINDOW, ("- WINDOW_LEFT)", "- WINDOW_LEFT + 1)")), "left_short", "masked"),
    ("sliding_window", "scalar", (("    const int diagonal", "    const int diagonal"),), "window_ignored", "masked"),
    ("sliding_window", "pipelined", (("- WINDOW_LEFT);", "- WINDOW_LEFT - 1);"),), "left_long", "masked"),
    ("softcap_sinks", "softcap_sinks", (("l = 1.0f;", "l = 0.0f;"),), "sink_ignored", "l"),
    ("softcap_sinks", "softcap_sinks", (("return CAP * tanhf", "return tanhf"),), "cap_not_multiplied", "scores"),
    ("softcap_sinks", "softcap_sinks", (("(products) * scale)", "(products))"),), "no_scale", ""),
    ("paged_decode", "paged_decode", (("+ key % PAGE)", "+ (key + 1) % PAGE)"),), "slot_one_late", "k"),
    ("paged_decode_fp8", "paged_decode_fp8", HEADS_IN_TURN, "scale_of_query_head", "k"),
    ("sdpa_varlen", "varlen_triton", (("(k_begin.to", "(0 * k_begin.to"),), "offsets_ignored", "k"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("task", "rung", "edits", "name", "stage"),
    one_in(2, MISTAKES, several=True),
    ids=[f"{row[0]}-{row[3]}" for row in MISTAKES],
)
def test_a_mistake_is_named(
    task: str, rung: str, edits: tuple[tuple[str, str], ...], name: str, stage: str, tmp_path: Path
) -> None:
    candidate, supports = find_candidate(str(_edited(rung, edits, tmp_path)), task=task)
    sizes = shape(NAMES.get(task, "b1-hq2-hkv1-sq17-skv70-d32"))
    work = Workload(sizes, "f16", "bottom_right", "unit_normal", 0, TASKS[task].workloads.encodings[0])
    found = diagnose_workload(candidate, supports, work)
    assert found.signatures[0].name == "wrong_implementation", found.signatures
    assert f"(`{name}`)" in found.signatures[0].message
    assert found.signatures[0].stage == stage
    assert found.case.taps is not None and found.case.divergence is not None


@pytest.mark.parametrize("mask", ["none", "bottom_right"])
def test_the_stages_of_a_right_window_are_right(mask: str, tmp_path: Path) -> None:
    """O is spoiled after its last stage: all stages before it are observed, and right."""
    path = _edited("scalar", (*WINDOW, ("(u[i] * inverse)", "(u[i] * inverse * 1.01f)")), tmp_path)
    candidate, supports = find_candidate(str(path), task="sliding_window")
    work = Workload(shape("b1-hq1-hkv1-sq5-skv60-d32"), "f16", mask, "unit_normal", 0)
    first = diagnose_workload(candidate, supports, work).first
    assert first is not None and first.stage == "o"
