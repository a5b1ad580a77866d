"""A kernel gets only workloads that its launch lines accept; those left out are counted, and never a pass."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weft.attention.shapes import SHAPES, Shape, shape
from weft.cli.main import main
from weft.core.errors import UsageError
from weft.core.status import Status
from weft.coverage.records import Boundary, Coverage
from weft.diagnose.shrink import shrink
from weft.engines.kernel_file import load
from weft.judge.candidate import Candidate
from weft.judge.follow import workloads_at
from weft.judge.limits import Limit, fit, free, of_records, records, stand_ins
from weft.judge.local_runs import LocalRuns
from weft.judge.runs import Refused
from weft.judge.scope import hint_for, scope_of
from weft.judge.select import Choice, Supports, find_candidate, nothing_selected, plan, skipped
from weft.judge.shape_sizes import call_at
from weft.judge.verdict import Verdict
from weft.kernels.ladder import RUNGS
from weft.mcp.check import _judged
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

LINES = (
    "sizes B=1 H=2 N=64 D=64",
    "in q, k, v : f16[B, H, N, D] = normal",
    "out o : f16[B, H, N, D]",
    "scalar scale : f32 = 1 / sqrt(D)",
    "launch attn(q, k, v, o, H, N, D, scale) grid(cdiv(N, 32), H, B) block(32)",
)
BODY = """#include <cuda_fp16.h>
__global__ void attn(const half* q, const half* k, const half* v, half* o, int H, int N, int D, float scale) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    const size_t base = (size_t(blockIdx.z) * H + blockIdx.y) * N * D;
    float m = -INFINITY, l = 0.f, acc[128];
    for (int d = 0; d < D; ++d) acc[d] = 0.f;
    for (int j = 0; j < KEYS; ++j) {
        float s = 0.f;
        for (int d = 0; d < D; ++d) s += __half2float(q[base + row * D + d]) * __half2float(k[base + j * D + d]);
        const float m_new = fmaxf(m, s * scale), r = __expf(m - m_new), p = __expf(s * scale - m_new);
        for (int d = 0; d < D; ++d) acc[d] = acc[d] * r + p * __half2float(v[base + j * D + d]);
        l = l * r + p;
        m = m_new;
    }
    for (int d = 0; d < D; ++d) o[base + row * D + d] = __float2half(acc[d] / l);
}
"""
GQA = ("gqa_4", "gqa_8", "gqa_4_ragged", "group_3")
ONE_HEAD_COUNT, ONE_LENGTH = "the kernel has one head count (H)", "the kernel has one length (N)"


def written(folder: Path, *lines: str, keys: str = "N", more: str = "") -> Path:
    path = folder / "own.cu"
    path.write_text("".join(f"// weft: {line}\n" for line in lines) + BODY.replace("KEYS", keys) + more)
    return path


def of(folder: Path, *lines: str) -> tuple[Candidate, Supports]:
    return find_candidate(str(written(folder, *(lines or LINES))), task=None)


def swapped(old: str, new: str) -> tuple[str, ...]:
    assert any(old in line for line in LINES), old
    return tuple(line.replace(old, new) for line in LINES)


def limits(supports: Supports) -> set[str]:
    return {str(limit) for limit in supports.limits}


def test_one_h_and_one_n_exclude_gqa_and_other_lengths(tmp_path: Path) -> None:
    _, supports = of(tmp_path)
    assert limits(supports) == {"HQ = HKV", "SQ = SKV"}
    todo = plan(supports, Choice())
    assert {"ragged", "small", "d48"} <= {work.shape.name for work in todo}
    assert all((work.shape.hq, work.shape.sq) == (work.shape.hkv, work.shape.skv) for work in todo)
    left_out = skipped(supports, Choice(shapes=("small", *GQA, "few_keys"), regimes=("unit_normal",), seeds=(0,)))
    assert left_out == {ONE_HEAD_COUNT: len(GQA), ONE_LENGTH: 1}


def test_shapes_that_are_left_out_have_stand_ins_of_many_sizes(tmp_path: Path) -> None:
    """Only three shapes of the quick selection are square: a bug at other lengths and head dimensions must show."""
    _, supports = of(tmp_path)
    others = {work.shape for work in plan(supports, Choice()) if work.shape.name not in SHAPES}
    assert {57, 64, 128} <= {each.d for each in others}
    assert max(each.sq for each in others) > 128 and max(each.hq for each in others) == 8
    assert all(supports.takes(each) for each in others)


def test_a_fixed_size_is_kept_by_stand_ins(tmp_path: Path) -> None:
    _, supports = of(tmp_path, *LINES, "require D == 64 : compiled for it")
    assert "D = 64" in limits(supports)
    assert {work.shape.d for work in plan(supports, Choice())} == {64}


def test_a_kernel_of_full_tiles_gets_several_multiples(tmp_path: Path) -> None:
    _, supports = of(tmp_path, *LINES, "require D == 64", "require N % 64 == 0 : whole tiles")
    lengths = {work.shape.sq for work in plan(supports, Choice())}
    assert not any(length % 64 for length in lengths) and len(lengths) > 3 and max(lengths) >= 256
    assert "require N % 64 == 0" in skipped(supports, Choice())


@pytest.mark.parametrize("line", ["require HQ == HKV", "require HKV == HQ : no groups"])
def test_a_require_line_of_two_sizes_is_a_limit(tmp_path: Path, line: str) -> None:
    lines = tuple(text.replace("H=2", "HQ=2 HKV=2").replace("H, N", "HQ, N").replace(", H,", ", HQ,") for text in LINES)
    lines = (*lines[:1], "in q : f16[B, HQ, N, D] = normal", "in k, v : f16[B, HKV, N, D] = normal", *lines[2:])
    _, supports = of(tmp_path, *lines, line)
    assert limits(supports) == {"HQ = HKV", "SQ = SKV"}
    assert skipped(supports, Choice(shapes=("gqa_4",), regimes=("unit_normal",), seeds=(0,))) == {
        line.partition(" :")[0]: 1
    }


def test_a_size_that_is_not_passed_is_compiled_in(tmp_path: Path) -> None:
    untold = swapped("H, N, D, scale) grid", "H, N, scale) grid")
    assert "D = 64" in limits(of(tmp_path, *untold)[1])
    for seen in (
        swapped("attn(q", "attn<{D}>(q"),
        (*untold, "define HEAD = D"),
        (*untold[:3], "scalar row : i32 = N * D", "launch attn(q, k, v, o, H, N, row) grid(N, H, B) block(32)"),
        (*untold[:4], "launch attn(q, k, v, o, H, N, scale) grid(N, H, B) block(D)"),
    ):
        assert "D = 64" not in limits(of(tmp_path, *seen)[1]), seen


def test_a_key_length_that_is_not_passed_equals_the_query_length(tmp_path: Path) -> None:
    own_names = ("in q : f16[B, H, N, D] = normal", "in k, v : f16[B2, HKV, M, D2] = normal")
    lines = ("sizes B=1 H=2 N=64 D=64 B2=1 HKV=2 M=64 D2=64", *own_names, *LINES[2:])
    assert limits(of(tmp_path, *lines)[1]) == {"HQ = HKV", "SQ = SKV"}
    seen = tuple(line.replace("H, N, D, scale", "H, N, M, D, HKV, scale") for line in lines)
    assert limits(of(tmp_path, *seen)[1]) == set()


def test_an_output_may_start_as_zeros(tmp_path: Path) -> None:
    candidate, _ = of(
        tmp_path,
        *swapped("out o : f16[B, H, N, D]", "inout O : f16[B, H, N, D] = zeros")[:4],
        "inout l, m : f32[B, H, N] = zeros",
        "launch attn(q, k, v, O, l, m, H, N, D, scale) grid(N, H, B) block(32)",
    )
    assert [line.name for line in candidate.kernel.outputs] == ["o", "l", "m"]
    with pytest.raises(UsageError, match="takes q, k, v, bias"):
        of(tmp_path, *LINES, "in bias : f32[N] = normal")


@pytest.mark.parametrize(
    ("shape_text", "expected"),
    [
        ("N, D", {"B = 1", "HQ = 1", "HKV = 1", "SQ = SKV"}),
        ("H, N, D", {"B = 1", "HQ = HKV", "SQ = SKV"}),
        ("B * H, N, D", {"HQ = HKV", "SQ = SKV"}),
        ("B * H * N * D", {"HQ = HKV", "SQ = SKV"}),
        ("B, H, N, 64", {"HQ = HKV", "SQ = SKV", "D = 64"}),
    ],
)
def test_arrays_of_fewer_dimensions_are_those_of_the_task(tmp_path: Path, shape_text: str, expected: set[str]) -> None:
    lines = swapped("B, H, N, D]", f"{shape_text}]")
    if "H" not in shape_text:
        lines = tuple(line.replace(" H=2", "").replace(", H", ", 1") for line in lines)
    candidate, supports = of(tmp_path, *lines)
    assert limits(supports) == expected
    work = plan(supports, Choice())[0]
    problem = supports.task.draw(work)
    assert candidate.refusal(problem) == ""
    sizes = candidate.kernel.sizes_of({name: array.shape for name, array in problem.arrays.items()})
    assert sizes["N"] == work.shape.sq


@pytest.mark.parametrize(
    "names",
    ["Q K V O", "query key value output", "Query Key Value Out", "d_q d_k d_v d_out", "Q_ptr K_ptr V_ptr O_ptr"],
)
def test_usual_names_of_arrays_are_accepted(tmp_path: Path, names: str) -> None:
    q, k, v, o = names.split()
    lines = tuple(
        line.replace("q, k, v,", f"{q}, {k}, {v},").replace("q, k, v :", f"{q}, {k}, {v} :") for line in LINES
    )
    lines = tuple(line.replace("out o", f"out {o}").replace(", o,", f", {o},") for line in lines)
    candidate, supports = of(tmp_path, *lines)
    assert [line.name for line in candidate.kernel.arrays] == ["q", "k", "v", "o"]
    assert limits(supports) == {"HQ = HKV", "SQ = SKV"}
    assert [each.text for each in candidate.kernel.launches[0].passed()][:4] == ["q", "k", "v", "o"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((*LINES[:2], "out O, Out : f16[B, H, N, D]", *swapped(", o,", ", O,")[3:]), "O and Out could both be `o`"),
        (swapped("q, k, v", "a, k, v"), "takes a, k, v; task sdpa gives q, k, v. Use the task's names"),
        (tuple(line.replace("q, k", "Q, k") for line in swapped("H=2", "H=2 q=3")), "Q is the task's q"),
        (swapped("[B, H, N, D]", "[B, N, H, D]"), r"\[batch, length, heads, D\]"),
        (swapped("[B, H, N, D]", "[N, D]"), "heads packed into D are not judged"),
        (swapped("[B, H, N, D]", "[B, N, H * D]"), r"\[batch, length, heads, D\]"),
        (swapped("out o : f16", "out o : f32"), "q is f16 and o is f32"),
        (("lever CAUSAL = 0 in 0, 3", *LINES), "CAUSAL is 3; the judge supports 0 .none., 1 .top_left."),
        (swapped("f16", "floot"), "did you mean float"),
        (swapped("launch", "lunch"), "did you mean launch"),
    ],
)
def test_invalid_launch_lines_are_refused_with_the_reason(tmp_path: Path, lines: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        of(tmp_path, *lines)


@pytest.mark.parametrize("word", ["half", "fp16", "float16", "__half"])
def test_synonyms_of_types_are_accepted(tmp_path: Path, word: str) -> None:
    assert of(tmp_path, *swapped("f16", word))[1].dtypes == ("f16",)
    assert Choice(dtypes=(word, "bfloat16", "float")).dtypes == ("f16", "bf16", "f32")


def test_levers_declare_masks_and_types(tmp_path: Path) -> None:
    assert of(tmp_path, "lever CAUSAL = 0 in 0, 1", *LINES)[1].masks == ("none", "top_left")
    only = of(tmp_path, "lever CAUSAL = 1 in 1", *LINES)[1]
    assert only.masks == ("top_left",) and not only.any_mask
    assert {work.mask for work in plan(only, Choice())} == {"top_left"}
    assert plan(only, Choice(masks=("none",))) == ()
    assert "the kernel supports the masks top_left; requested: none" in nothing_selected(only, Choice(masks=("none",)))
    typed = of(tmp_path, "lever ELEMENT = half in half, float", *swapped("f16", "ELEMENT"))[1]
    assert typed.dtypes == ("f16", "f32")


def test_the_caller_names_the_mask_that_no_line_names(tmp_path: Path) -> None:
    _, supports = of(tmp_path)
    assert {work.mask for work in plan(supports, Choice())} == {"none"}
    causal = Choice(shapes=("small",), masks=("causal",))
    assert {work.mask for work in plan(supports, causal)} == {"top_left", "bottom_right"}
    with pytest.raises(UsageError, match="it computes one mask"):
        plan(supports, Choice(masks=("none", "top_left")))
    two_lengths = replace(supports, limits=())
    with pytest.raises(UsageError, match="it computes one mask"):
        plan(two_lengths, causal)
    assert {work.mask for work in plan(two_lengths, Choice(masks=("bottom_right",)))} == {"bottom_right"}


def test_a_search_rejects_what_a_users_file_may_leave_out(tmp_path: Path) -> None:
    _, supports = of(tmp_path)
    with pytest.raises(Refused, match="one head count") as refused:
        plan(supports, Choice(), strict=True)
    assert refused.value.status is Status.REJECTED
    assert plan(supports, Choice(), strict=True, within_limits=True)
    for named in (Choice(shapes=("small", "gqa_4")), Choice(masks=("none", "top_left")), Choice(dtypes=("bf16",))):
        with pytest.raises(Refused):
            plan(supports, named, strict=True, within_limits=True)


def test_shrinking_and_following_stay_within_the_limits(tmp_path: Path) -> None:
    _, supports = of(tmp_path)
    asked: list[Workload] = []

    def fails(workload: Workload) -> Verdict:
        asked.append(workload)
        return Verdict(workload, Status.INCORRECT_NUMERICAL)

    first = Workload(SHAPES["ragged"], "f16", "none", "logits_32", 0)
    found = shrink(fails(first), fails, takes=supports.takes_workload, masks=supports.masks).workload.shape
    assert (found.b, found.hq, found.hkv) == (1, 1, 1) and found.sq == found.skv < 77
    assert all(supports.takes_workload(workload) for workload in asked)
    boundaries = [Boundary(axis, 3) for axis in ("B", "heads", "S", "D")]
    followed = workloads_at(boundaries, supports, [first], Coverage())
    assert {each.axis for each in followed.boundaries if each.why_not} == {"SKV"}  # 65601 keys and one query
    assert all(supports.takes_workload(workload) for workload in followed.workloads)
    assert {3} <= {workload.shape.b for workload in followed.workloads}


TIED = (Limit("hq", "hkv", "one H"), Limit("sq", "skv", "one N"), Limit("d", 64, "D is 64"))


def test_a_shape_is_fitted_to_limits() -> None:
    assert fit(SHAPES["small"], TIED) is SHAPES["small"]
    assert fit(SHAPES["gqa_4_ragged"], TIED) == shape("b2-hq4-hkv4-sq70-skv70-d64")
    assert fit(Shape("x", 1, 2, 2, 9, 40, 64), TIED, keep="sq").skv == 9
    ragged, *whole = stand_ins(SHAPES["long_keys"], TIED)
    assert ragged.sq == ragged.skv and 128 < ragged.sq < 1089 and ragged.sq % 16
    assert whole == [replace(each, sq=256, skv=256) for each in whole]
    assert list(stand_ins(SHAPES["small"], (Limit("d", 64, ""), Limit("d", 32, "")))) == []
    assert free(("B", "heads", "group", "SQ", "SKV", "S", "D"), TIED) == ("B", "heads", "S")
    assert of_records(json.loads(json.dumps(records(TIED)))) == TIED
    with pytest.raises(ValueError, match="not a limit"):
        of_records([["colour", 3, "why"]])


def test_a_shape_gives_sizes_through_the_arrays(tmp_path: Path) -> None:
    kernel = load(written(tmp_path, *LINES))
    assert call_at(kernel, "mission").sizes == {"B": 1, "H": 8, "N": 512, "D": 64}
    assert call_at(kernel, "b2-hq3-hkv3-sq7-skv7-d32").sizes == {"B": 2, "H": 3, "N": 7, "D": 32}
    assert call_at(kernel, "").sizes == {}
    with pytest.raises(UsageError, match=r"shape gqa_4 does not fit .*own.cu: the kernel has one head count"):
        call_at(kernel, "gqa_4")
    with pytest.raises(UsageError, match="did you mean mission"):
        call_at(kernel, "misson")
    for rung, sizes in (("wmma", 6), ("fp8_wmma", 6)):
        found = call_at(load(RUNGS[rung].path), "", rung).sizes
        assert len(found) == sizes and found["SQ"] == 512
    other = "sizes N=8", "in x : f32[N] = normal", "out y : f32[N]", "launch attn(x, y) grid(1) block(32)"
    with pytest.raises(UsageError, match="has no arrays q, k and v"):
        call_at(load(written(tmp_path, *other)), "mission")


def test_a_shape_gives_lengths_and_tables_with_the_sizes() -> None:
    packed = call_at(load(RUNGS["varlen_triton"].path), "b4-hq4-hkv2-sq33-skv70-d64")
    assert packed.arrays["cu_seqlens_q"].tolist() == [0, 33, 48, 48, 70]
    assert packed.sizes == {"ENDS": 5, "HQ": 4, "HKV": 2, "TOTAL_Q": 70, "TOTAL_K": 134, "D": 64}
    paged = call_at(load(RUNGS["paged_decode"].path, defines={"ELEMENT": "float"}), "b2-hq4-hkv2-sq1-skv130-d64")
    assert paged.arrays["seq_lens"].tolist() == [130, 75] and paged.arrays["q"].dtype == np.float32
    assert paged.arrays["block_table"].shape == (2, paged.sizes["ENTRIES"]) == (2, 9)


@pytest.mark.parametrize("rung", ["softcap_sinks", "paged_decode", "varlen_triton", "backward", "fa1"])
def test_a_rung_has_the_typical_shape_of_its_task(rung: str) -> None:
    kernel, task = load(RUNGS[rung].path), TASKS[RUNGS[rung].task]
    assert call_at(kernel, "", rung).sizes == call_at(kernel, task.typical).sizes != kernel.sizes


def test_the_names_of_a_file_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "own.cu"
    file.write_text(RUNGS["paged_decode"].path.read_text().replace("seq_lens", "d_seq_lens"))
    found = call_at(load(file), "decode_gqa")
    assert found.arrays["d_seq_lens"].tolist() == [600, 343] and found.sizes["ENTRIES"] == 38


QUICK = ("--regimes", "unit_normal", "--seeds", "1", "--tool", "racecheck")


def test_check_counts_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(written(tmp_path, *LINES))
    assert main(["check", file, *QUICK, "--shapes", "small,gqa_4"]) == 0
    text = capsys.readouterr().out
    assert f"1 skipped: {ONE_HEAD_COUNT}" in text and f"unsupported: {ONE_HEAD_COUNT}" in text
    assert "judged for: f16, mask none, HQ = HKV, SQ = SKV" in text
    assert main(["check", file, *QUICK, "--shape", "small,gqa_4", "--json"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"].values()
    assert target["skipped"] == [{"reason": ONE_HEAD_COUNT, "count": 1}]
    assert target["judged_for"] == ["f16", "mask none", "HQ = HKV", "SQ = SKV"] and target["hint"] == ""
    assert main(["check", file, *QUICK, "--shapes", "gqa_4"]) == 5
    assert f"1 skipped: {ONE_HEAD_COUNT}" in capsys.readouterr().err
    assert main(["check", file, *QUICK, "--shapes", "small", "--dtypes", "bf16"]) == 5
    assert "the kernel supports the dtypes f16; requested: bf16" in capsys.readouterr().err


def test_an_undeclared_causal_kernel_fails_with_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(written(tmp_path, *LINES, keys="row + 1"))
    assert main(["check", file, *QUICK, "--shapes", "small"]) == 1
    assert "`// weft: lever CAUSAL = 1 in 1`, or check it with --masks top_left" in capsys.readouterr().out
    assert main(["check", file, *QUICK, "--shapes", "small", "--mask", "causal"]) == 0
    assert main(["check", str(written(tmp_path, *LINES, keys="N - 1")), *QUICK, "--shapes", "small"]) == 1
    assert "looks like" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda work: work.shape.d != 64, "`// weft: require D == 64`"),
        (lambda work: work.mask == "bottom_right", "`// weft: lever CAUSAL = 0 in 0, 1`"),
        (lambda work: work.shape.sq % 16 != 0, ""),
        (lambda work: True, ""),
        (lambda work: False, ""),
    ],
)
def test_a_hint_names_the_line_that_is_missing(tmp_path: Path, wrong: Callable[[Workload], bool], says: str) -> None:
    candidate, supports = of(tmp_path, "define CAUSAL = 0", *LINES)
    todo = plan(supports, Choice())
    verdicts = [Verdict(work, Status.INCORRECT_NUMERICAL if wrong(work) else Status.PASSED) for work in todo]
    hint = hint_for(LocalRuns(candidate), supports, verdicts)
    assert hint.endswith(says) if says else not hint


def test_an_agent_gets_the_same_message(tmp_path: Path) -> None:
    class Progress:
        def tell(self, what: str, total: int | None = None) -> None: ...

    candidate, supports = of(tmp_path)
    quick = replace(supports.task.quick, shapes=("small", "gqa_4"))
    supports = replace(supports, task=replace(supports.task, any_size=(), quick=quick))
    choice = Choice(regimes=("unit_normal",), seeds=(0,))
    answer = _judged(candidate, supports, choice, False, Progress())  # type: ignore[arg-type]
    assert answer.verdict == "passed"
    assert answer.judged_for == ("f16", "mask none", "HQ = HKV", "SQ = SKV")
    assert answer.skipped == (f"1 skipped: {ONE_HEAD_COUNT}",)
    assert scope_of(supports, choice, ()).nothing
