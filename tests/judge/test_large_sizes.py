"""Index arithmetic at sizes too large to run: 32-bit overflows are found at their line; right indices give nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.judge.large_sizes import Q32, RIGHT_TWINS, WRONG, kernel, line_of
from weft.attention.shapes import SHAPES
from weft.core.records import Run
from weft.core.status import Status
from weft.engines import check_indices
from weft.engines.check_indices import GPU_BYTES
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy
from weft.judge.judging import judge_all
from weft.judge.large_sizes import large_calls, one_per_build
from weft.judge.local_runs import LocalRuns
from weft.judge.select import find_candidate
from weft.judge.verdict import conclude
from weft.judge.verdict_json import verdict_of, verdict_record
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

SDPA = TASKS["sdpa"]
WORKLOAD = Workload(SHAPES["small"], "f16", "none", "unit_normal", 0)


def looked_at(path: Path) -> Run:
    return LocalRuns(Candidate(path)).check_indices({}, large_calls(SDPA, WORKLOAD))


def written(folder: Path, text: str) -> Path:
    file = folder / "kernel.cu"
    file.write_text(text)
    return file


@pytest.mark.parametrize("name", WRONG)
def test_an_index_that_overflows_is_found_at_its_line(name: str, tmp_path: Path) -> None:
    text, part = WRONG[name]
    (found,) = looked_at(written(tmp_path, text)).findings
    assert found.code == "M106"
    assert line_of(text, part) in {place.line for place in (found.place, found.other) if place}, str(found)


@pytest.mark.parametrize("name", RIGHT_TWINS)
def test_a_right_index_is_not_reported(name: str, tmp_path: Path) -> None:
    assert looked_at(written(tmp_path, RIGHT_TWINS[name])).findings == ()


@pytest.mark.parametrize("text", [WRONG["q"][0], next(iter(RIGHT_TWINS.values()))])
def test_a_warm_start_finds_the_same_and_parses_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    path = written(tmp_path, text)
    cold = looked_at(path)
    monkeypatch.setattr(check_indices, "_kernel", None)
    assert looked_at(path) == cold


@pytest.mark.parametrize("rung", [name for name, rung in RUNGS.items() if rung.language == "CUDA"])
def test_no_rung_overflows(rung: str) -> None:
    candidate, supports = find_candidate(rung, task=None)
    dtype, mask, encoding = supports.dtypes[0], supports.masks[-1], supports.encodings[0]
    workload = Workload(SHAPES["small"], dtype, mask, "unit_normal", 0, encoding)
    defines = supports.task.draw(workload).defines()
    assert LocalRuns(candidate).check_indices(defines, large_calls(supports.task, workload)).findings == ()


def test_a_kernel_that_passes_all_that_ran_is_not_green(tmp_path: Path) -> None:
    runs = LocalRuns(Candidate(written(tmp_path, WRONG["q"][0])))
    ran, large = [judged.verdict for judged in judge_all(runs, SDPA, [WORKLOAD], Policy(debug_build=False))]
    assert ran.passed and large.status is Status.UNSAFE and large.label == f"{WORKLOAD} (large sizes)"
    found = conclude([ran, large], 1)
    assert (found.status, found.judged, found.planned) == (Status.UNSAFE, 1, 1)
    again = verdict_of(verdict_record(large))
    assert again.large_sizes and again.findings == large.findings
    without = [
        judged.verdict for judged in judge_all(runs, SDPA, [WORKLOAD], Policy(debug_build=False, large_sizes=False))
    ]
    assert conclude(without, 1).passed


def test_an_allow_line_excuses_it(tmp_path: Path) -> None:
    text = kernel(O=f"o[{Q32}]").replace("= half(u[d] / l);", "= half(u[d] / l);  // weft: allow M106 a demonstration")
    run = looked_at(written(tmp_path, text))
    assert run.findings == () and [each.finding.code for each in run.suppressed] == ["M106"]


def test_a_limit_that_is_too_large_does_not_help(tmp_path: Path) -> None:
    lines = "// weft: require B * HQ * SQ * D <= 4294967296 : unsigned indices\n"
    (found,) = looked_at(written(tmp_path, kernel(Q=f"q[{Q32}]", lines=lines))).findings
    assert "B=64 HQ=40 HKV=40 SQ=16384" in found.message  # 64 · 40 · 16384 · 64 is 0.6 of 2^32, 128 is too many


def test_a_limited_length_is_compensated_by_more_sequences(tmp_path: Path) -> None:
    (found,) = looked_at(written(tmp_path, kernel(Q=f"q[{Q32}]", lines="// weft: require SQ <= 2048\n"))).findings
    assert "SQ=1024" in found.message


def test_calls_are_as_large_as_a_gpu_holds() -> None:
    candidate, _ = find_candidate("scalar", task=None)
    for group in large_calls(SDPA, WORKLOAD):
        sizes = [sum(array.nbytes for array in candidate.kernel.outline(shapes).values()) for shapes in group[:9]]
        assert sizes == sorted(sizes, reverse=True) and next(n for n in sizes if n <= GPU_BYTES) > GPU_BYTES / 2


def test_a_task_that_decodes_has_no_prompts() -> None:
    (group,) = large_calls(TASKS["sdpa_decode"], WORKLOAD)
    assert {shapes["q"][2] for shapes in group} == {1}


def test_every_build_is_checked_once() -> None:
    todo = [replace(WORKLOAD, mask=mask, seed=seed) for mask in ("none", "top_left") for seed in (0, 1)]
    todo += [replace(each, shape=SHAPES["d128"]) for each in todo]
    assert [(each.mask, each.shape.d) for each in one_per_build(todo)] == [("none", 64), ("top_left", 64)]
