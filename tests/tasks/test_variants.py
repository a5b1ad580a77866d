"""Kernels on points of the family: rungs with windows, lengths or pages; `scalar` with a window, or a cap and sinks."""

from pathlib import Path

import pytest

from weft.attention.shapes import shape
from weft.core.status import Status
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.kernels import RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

WINDOW = (
    ("// weft: define  WARPS = 4", "// weft: define  WARPS = 4\n// weft: define  WINDOW_LEFT = 3"),
    ("// weft: define  CAUSAL = 0", "// weft: define  CAUSAL = 0\n// weft: define  WINDOW_RIGHT = 3"),
    ("if (CAUSAL == 0) return SKV;", "if (CAUSAL == 0) return max(0, min(SKV, query + SKV - SQ + WINDOW_RIGHT + 1));"),
    ("for (int key = 0;", "for (int key = max(0, (CAUSAL == 1 ? query : query + SKV - SQ) - WINDOW_LEFT);"),
)  # fmt: skip
CAP_AND_SINKS = (
    ("// weft: define  WARPS = 4", "// weft: define  WARPS = 4\n// weft: define  SOFT_CAP = 1.0"),
    ("// weft: out     o ", "// weft: in      sinks : f32[HQ] = normal\n// weft: out     o "),
    ("(q, k, v, o, lse, HKV", "(q, k, v, o, lse, sinks, HKV"),
    ("float* __restrict__ lse, int HKV", "float* __restrict__ lse, const float* __restrict__ sinks, int HKV"),
    ("warp_sum(products) * scale;", "SOFT_CAP * tanhf(warp_sum(products) * scale / SOFT_CAP);"),
    ("float m = -CUDART_INF_F, l = 0.0f;", "float m = sinks[h], l = 1.0f;"),
)  # fmt: skip
CASES = (
    ("sliding_window", "scalar", WINDOW, ("const int diagonal", "// window\n    const int diagonal"), Status.PASSED),
    ("sliding_window", "scalar", WINDOW, ("- WINDOW_LEFT)", "- WINDOW_LEFT + 1)"), Status.INCORRECT_NUMERICAL),
    ("sliding_window", "pipelined", (), ("- WINDOW_LEFT);", "- WINDOW_LEFT);"), Status.PASSED),
    ("sliding_window", "pipelined", (), ("- WINDOW_LEFT);", "- WINDOW_LEFT - 1);"), Status.INCORRECT_NUMERICAL),
    ("sliding_window", "pipelined", (), ("+ WINDOW_RIGHT + 1)", "+ WINDOW_RIGHT)"), Status.INCORRECT_NUMERICAL),
    ("sliding_window", "fa_triton", (), ("+ shift  # no", "+ shift  # no"), Status.PASSED),
    ("sliding_window", "fa_triton", (), ("+ shift  # no", "+ shift + 1  # no"), Status.INCORRECT_NUMERICAL),
    ("softcap_sinks", "scalar", CAP_AND_SINKS, ("float m = sinks[h]", "float m = sinks[h]"), Status.PASSED),
    ("softcap_sinks", "scalar", CAP_AND_SINKS, ("l = 1.0f", "l = 0.0f"), Status.INCORRECT_NUMERICAL),
    ("sdpa_varlen", "varlen_triton", (), ("    k_begin = ", "    k_begin = "), Status.PASSED),
    ("sdpa_varlen", "varlen_triton", (), ("1 + SKV - SQ", "2 + SKV - SQ"), Status.INCORRECT_NUMERICAL),
    ("sdpa_varlen", "varlen_triton", (), ("(k_begin.to", "(0 * k_begin.to"), Status.INCORRECT_NUMERICAL),
    ("paged_decode", "paged_decode", (), ("key % PAGE)", "key % PAGE)"), Status.PASSED),
    ("paged_decode", "paged_decode", (), ("key % PAGE)", "key % 8)"), Status.INCORRECT_NUMERICAL),
)  # fmt: skip
NAMES = {"paged_decode": "b4-hq4-hkv2-sq5-skv77-d64", "sdpa_varlen": "b5-hq2-hkv1-sq77-skv70-d64"}


@pytest.mark.parametrize(
    ("task", "rung", "edits", "last", "status"), CASES, ids=[f"{row[0]}-{row[1]}-{row[4]}" for row in CASES]
)
def test_a_kernel_is_judged(
    task: str, rung: str, edits: tuple[tuple[str, str], ...], last: tuple[str, str], status: Status, tmp_path: Path
) -> None:
    text = RUNGS[rung].path.read_text()
    for old, new in (*edits, last):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = tmp_path / f"kernel{RUNGS[rung].path.suffix}"
    path.write_text(text)
    name = NAMES.get(task, "b1-hq4-hkv2-sq33-skv70-d64")
    mask = "none" if "RIGHT" in last[0] else "bottom_right"
    work = Workload(shape(name), "f16", mask, "unit_normal", 0)
    verdict = check(Candidate(path), TASKS[task], work)
    assert verdict.status is status, verdict.message
