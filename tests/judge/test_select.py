"""Which workloads a kernel is judged on."""

import itertools
from pathlib import Path

import pytest

from weft.attention.shapes import SHAPES, shape
from weft.cli.main import main
from weft.core.status import Status
from weft.engines.kernel_file import load
from weft.judge.runs import Refused
from weft.judge.select import Choice, Supports, find_candidate, first_pass, hide_seeds, plan, refused_shapes, workloads
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Task, Workload

EVERYTHING = Choice(
    shapes=("small",), regimes=("unit_normal", "large_magnitude"), dtypes=("f16", "bf16", "f32"), seeds=(0,)
)


def kinds(rung: str) -> set[tuple[str, str]]:
    _, supports = find_candidate(rung, task=None)
    return {(workload.dtype, workload.regime) for workload in workloads(supports, EVERYTHING)}


def test_a_rung_gets_every_type_and_regime_that_it_declares() -> None:
    everything = {(dtype, regime) for dtype in EVERYTHING.dtypes for regime in EVERYTHING.regimes}
    assert kinds("fp8_scalar") == kinds("scalar") == everything
    assert RUNGS["fp8_wmma"].f16_range
    assert kinds("fp8_wmma") == everything - {("bf16", "large_magnitude"), ("f32", "large_magnitude")}


def whole(task: Task) -> Supports:
    axes = task.workloads
    return Supports(task, axes.dtypes, axes.masks, axes.encodings)


@pytest.mark.parametrize("name", TASKS)
def test_the_selection_has_every_type_mask_and_encoding_in_every_regime(name: str) -> None:
    task = TASKS[name]
    todo = plan(whole(task), Choice())
    axes = task.workloads
    for axis, names in (("dtype", axes.dtypes), ("mask", axes.masks), ("encoding", axes.encodings)):
        met = {(getattr(work, axis), work.regime) for work in todo}
        assert met == set(itertools.product(names, task.quick.regimes)), axis
    assert {(work.shape.name, work.regime) for work in todo} == set(
        itertools.product(task.quick.shapes, task.quick.regimes)
    )
    assert {work.seed for work in todo} == {0, 1, 2}
    assert len(set(todo)) == len(todo)


def test_rows_without_keys_are_tested_with_every_mask() -> None:
    todo = plan(whole(TASKS["sdpa"]), Choice())
    assert {work.mask for work in todo if work.shape.sq > work.shape.skv} == {"none", "top_left", "bottom_right"}


def test_a_kernel_is_compiled_for_few_combinations() -> None:
    """Each combination of head dimension, mask and type costs a second; an earlier selection had six of one type."""
    todo = plan(whole(TASKS["sdpa"]), Choice())
    assert len({(work.shape.d, work.mask, work.dtype) for work in todo}) <= 12


def test_every_axis_value_comes_before_any_is_repeated() -> None:
    todo = plan(whole(TASKS["sdpa"]), Choice())
    first = todo[: first_pass(todo)]
    for axis in ("shape", "dtype", "mask", "encoding"):
        assert {getattr(work, axis) for work in first} == {getattr(work, axis) for work in todo}
    assert len(first) <= len(todo) // 3


def test_a_shape_can_be_requested_by_its_sizes() -> None:
    (work,) = plan(
        whole(TASKS["sdpa"]), Choice(("b1-hq2-hkv1-sq5-skv300-d64",), ("unit_normal",), ("none",), ("f16",), seeds=(0,))
    )
    assert (work.shape.hq, work.shape.hkv, work.shape.sq, work.shape.skv) == (2, 1, 5, 300)
    assert shape(work.shape.name) == work.shape


def test_requested_axes_are_run_in_every_combination() -> None:
    todo = plan(whole(TASKS["sdpa"]), Choice(("small", "ragged"), ("unit_normal", "logits_32"), seeds=(0, 1)))
    assert len(todo) == 2 * 2 * 3 * 2


SCALAR = RUNGS["scalar"].path.read_text()
LAUNCH = "// weft: launch "
OTHER_D = [name for name, shape in SHAPES.items() if shape.d != 64]
BOTH = Choice(shapes=("small", "d80"), regimes=("unit_normal",), masks=("none", "top_left"), seeds=(0,))


def with_line(folder: Path, line: str) -> Supports:
    path = folder / "k.cu"
    path.write_text(SCALAR.replace(LAUNCH, f"// weft: {line}\n{LAUNCH}"))
    return find_candidate(str(path), task=None)[1]


def test_a_require_line_leaves_out_what_the_kernel_does_not_take(tmp_path: Path) -> None:
    supports = with_line(tmp_path, "require D == 64 : compiled for it")
    assert {workload.shape.name for workload in workloads(supports, BOTH)} == {"small"}
    assert refused_shapes(supports, BOTH) == {"d80": "require D == 64"}
    whole = workloads(supports, Choice(seeds=(0,)))
    shapes = {workload.shape for workload in whole}
    assert {shape.name for shape in shapes if shape.name in SHAPES} == set(supports.task.quick.shapes) - set(OTHER_D)
    assert {shape.d for shape in shapes} == {64}


def test_a_require_line_sees_masks_and_types(tmp_path: Path) -> None:
    supports = with_line(tmp_path, "require D == 64 when CAUSAL == 1")
    asked = {(workload.shape.name, workload.mask) for workload in workloads(supports, BOTH)}
    assert asked == {("small", "none"), ("small", "top_left"), ("d80", "none")}
    assert refused_shapes(supports, BOTH) == {}


def test_an_array_of_a_fixed_size_is_of_that_size(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(SCALAR.replace("SKV, D] = normal", "SKV, 64] = normal"))
    supports = find_candidate(str(path), task=None)[1]
    assert refused_shapes(supports, BOTH) == {"d80": "the kernel's k has D = 64"}


def test_a_candidate_cannot_choose_what_it_is_judged_on(tmp_path: Path) -> None:
    supports = with_line(tmp_path, "require D == 64")
    for choice in (BOTH, Choice()):
        with pytest.raises(Refused, match="require D == 64") as refused:
            plan(supports, choice, strict=True)
        assert refused.value.status is Status.REJECTED
    assert plan(supports, Choice(shapes=("small",), seeds=(0,)), strict=True)


def test_check_reports_the_line_that_excludes_a_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_line(tmp_path, "require D == 64")
    check = ["check", str(tmp_path / "k.cu"), "--regimes", "unit_normal", "--seeds", "1", "--tool", "racecheck"]
    assert main([*check, "--shapes", "d80"]) == 5
    assert "unsupported: require D == 64" in capsys.readouterr().out
    assert main([*check, "--shapes", "d80,one_token", "--masks", "none"]) == 0
    assert "unsupported: require D == 64" in capsys.readouterr().out


def test_every_tenth_workload_has_a_hidden_seed() -> None:
    todo = [Workload(SHAPES["small"], "f16", "none", "unit_normal", seed) for seed in range(25)]
    found = hide_seeds(todo, 1 << 30)
    assert [at for at, workload in enumerate(found) if workload.seed == 1 << 30] == [9, 19]
    assert [workload.seed for at, workload in enumerate(found) if at not in (9, 19)] == [
        at for at in range(25) if at not in (9, 19)
    ]
    assert hide_seeds(todo[:9], 1 << 30) == tuple(todo[:9])


def test_a_file_without_the_macro_has_the_encoding_of_its_task(tmp_path: Path) -> None:
    """`paged_decode_fp8` has one encoding, `fp8_sdpa` two, of which the first is meant; the same in compiled PTX."""
    for rung, meant in (("paged_decode_fp8", "e4m3"), ("fp8_scalar", "sim_fp8")):
        source, task = RUNGS[rung].path.read_text().replace(" - 129 * ENCODING", ""), RUNGS[rung].task
        file, compiled = tmp_path / f"{rung}.cu", tmp_path / f"{rung}.ptx"
        file.write_text(source.replace("// weft: define  ENCODING = 0", "#define ENCODING 0"))
        assert find_candidate(str(file), task=task)[1].encodings == (meant,)
        lines = [line for line in source.splitlines() if line.startswith("// weft:") and "ENCODING =" not in line]
        text = "\n".join(lines).replace("ELEMENT[", "f16[").replace("<{D}>", "")
        compiled.write_text(f"{text}\n{load(RUNGS[rung].path).compile().ptx}")
        assert find_candidate(str(compiled), task=task)[1].encodings == (meant,)
