"""A candidate in a child gets the verdict of `weft check` and the estimate of `weft profile`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.atomic_gradients import by_atomics
from weft.attention.shapes import SHAPES
from weft.core.chips import chip
from weft.core.errors import UsageError
from weft.core.status import Status
from weft.engines.kernel_file import load
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.profile.kernel_profile import profile_kernel
from weft.supervise.children import Child
from weft.supervise.frames import Frame
from weft.supervise.records import CandidateSource, Evaluation, Request, ScoreOn
from weft.supervise.supervisor import Supervisor
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

WORKLOAD = Workload(SHAPES["split_65"], "f16", "none", "unit_normal", 0)

pytestmark = pytest.mark.usefixtures("no_strays")


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("WARPS = 4", "WARPS = 4", Status.PASSED),
        ("u[i] * rescale + p", "u[i] + p", Status.INCORRECT_NUMERICAL),
        ("o[q_row * D + d]", "o[(q_row + 1) * D + d]", Status.UNSAFE),
        ("m = m_new;", "m = m_newest;", Status.COMPILE_ERROR),
        ("block(32 * WARPS)", "block(512 * WARPS)", Status.RESOURCE_ERROR),
        ("m = m_new;", 'm = m_new; asm volatile("discard.global.L2 [%0], 128;" ::"l"(k));', Status.UNSUPPORTED),
    ],
)
def test_the_verdict_is_that_of_weft_check(
    supervisor: Supervisor, request_of: Any, tmp_path: Path, old: str, new: str, status: Status
) -> None:
    request = request_of((old, new))
    path = tmp_path / "kernel.cu"
    path.write_text(request.source.text)
    here = check(Candidate(path), TASKS["sdpa"], WORKLOAD)
    there = supervisor.evaluate(request)
    assert there.status is here.status is status
    assert there.message == here.message.replace(str(path), "kernel.cu")
    if here.passed:
        assert (there.judged, there.planned, there.failure) == (1, 1, None)
    else:
        assert there.failure is not None
        assert there.failure.workload == WORKLOAD
        assert there.failure.gates == here.gates
        assert [f.code for f in there.failure.findings] == [f.code for f in here.findings]


def test_declared_atomics_are_judged_and_profiled(supervisor: Supervisor) -> None:
    """The profiled run adds in the order of the judged one."""
    choice = Choice(("ragged",), ("unit_normal",), ("none",), ("f32",), seeds=(0,))
    source, score = CandidateSource(by_atomics(), "cuda", ""), ScoreOn("ragged", "f32")
    request = Request(source, task="sdpa_backward", choice=choice, score=score, debug_build=False)
    found = supervisor.evaluate(request)
    assert (found.status, found.message) == (Status.PASSED, "") and found.profile is not None
    undeclared = replace(request, source=CandidateSource(by_atomics(declared=""), "cuda", ""))
    assert supervisor.evaluate(undeclared).status is Status.NONDETERMINISTIC


def test_a_bit_that_depends_on_the_schedule_is_found(supervisor: Supervisor, request_of: Any) -> None:
    """Warps take numbers from a counter; the first warp adds a few ulp to its LSE."""
    request = request_of(
        ("// weft: scalar  scale", "// weft: workspace drawn : u32[1]\n// weft: scalar  scale"),
        ("// weft: launch  scalar", "// weft: launch  zero(drawn) grid(1) block(1)\n// weft: launch  scalar"),
        ("template <int D>", "__global__ void zero(unsigned* drawn) { *drawn = 0; }\n\ntemplate <int D>"),
        ("(q, k, v, o, lse, HKV", "(q, k, v, o, lse, drawn, HKV"),
        ("lse, int HKV", "lse, unsigned* drawn, int HKV"),
        ("lse[q_row] = m + logf(l);", "lse[q_row] = m + logf(l) + (atomicAdd(drawn, 1) == 0) * 1e-6f;"),
    )
    found = supervisor.evaluate(request)
    assert found.status is Status.NONDETERMINISTIC, found.message


def test_a_rung_passes_with_the_estimate_of_weft_profile(supervisor: Supervisor) -> None:
    """All checks of `weft check`, including the -G build; the score uses real inputs of the task."""
    choice = Choice(("split_65",), ("unit_normal", "sorted_keys"), seeds=(3,))
    score = ScoreOn(shape="small")
    request = Request(CandidateSource(RUNGS["scalar"].path.read_text()), rung="scalar", choice=choice, score=score)
    seen: list[tuple[int, int]] = []
    found = supervisor.evaluate(request, progress=lambda judged, planned: seen.append((judged, planned)))
    assert found.status is Status.PASSED, found.message
    # Three masks × two regimes × one seed, and the workload of the score.
    assert seen == [(number, 7) for number in range(1, 8)]
    assert found.profile is not None
    row = SHAPES["small"]
    sizes = {"B": row.b, "HQ": row.hq, "HKV": row.hkv, "SQ": row.sq, "SKV": row.skv, "D": row.d}
    expected = profile_kernel(load(RUNGS["scalar"].path), chip("l4"), sizes=sizes)
    assert (found.profile.est_low, found.profile.est_high) == expected.estimate
    assert (found.profile.lb_warm, found.profile.lb_cold) == (expected.warm, expected.cold)
    assert found.profile.registers == expected.longest.resources.registers
    assert found.profile.est_low <= found.profile.estimate(0.5) <= found.profile.est_high
    ncu, vm = expected.counters()
    assert found.profile.counters() == {**vm, **ncu}
    record = json.loads(json.dumps(found.record(), allow_nan=False))
    assert Evaluation.from_record(record).record() == record
    assert Evaluation.from_record(record).profile == found.profile


def test_the_same_request_gives_the_same_record(supervisor: Supervisor, request_of: Any) -> None:
    request = request_of(("u[i] * rescale + p", "u[i] + p"))
    first, second = (supervisor.evaluate(request).record() for _ in range(2))
    assert first == second
    failure = first["failure"]
    assert failure["workload"]["text"] == str(WORKLOAD)
    assert [gate["gate"] for gate in failure["gates"] if not gate["passed"]][:1] == ["tight"]


def test_it_stops_at_the_first_failure(supervisor: Supervisor, request_of: Any) -> None:
    """Wrong under a mask only: the workloads before it pass, those after it do not run."""
    choice = Choice(("split_65",), ("unit_normal",), ("none", "top_left", "bottom_right"), ("f16",), seeds=(0, 1))
    found = supervisor.evaluate(request_of(("CAUSAL == 1 ? query :", "CAUSAL == 1 ? query + 1 :"), choice=choice))
    assert found.status is Status.INCORRECT_NUMERICAL
    assert (found.judged, found.planned) == (3, 6)
    assert found.failure is not None
    assert found.failure.workload.mask == "top_left"


def test_a_failure_is_diagnosed_on_request(supervisor: Supervisor, request_of: Any) -> None:
    found = supervisor.evaluate(request_of(("u[i] * rescale + p", "u[i] + p"), rung="scalar", diagnose=True))
    assert "missing_rescale" in found.diagnosis
    assert "kernel.cu:" in found.diagnosis
    assert "cure:" in found.diagnosis


def test_levers_are_macros_of_the_launch_lines(supervisor: Supervisor, request_of: Any) -> None:
    request = request_of()
    eight = Request(
        CandidateSource(request.source.text, defines={"WARPS": "8"}),
        choice=request.choice,
        score=ScoreOn("small"),
        debug_build=False,
    )
    found = supervisor.evaluate(eight)
    assert found.status is Status.PASSED
    assert found.profile is not None
    assert found.profile.launches[0].block == (256, 1, 1)
    assert eight.source.digest != request.source.digest


def test_a_candidate_cannot_choose_what_it_is_judged_on(supervisor: Supervisor, request_of: Any) -> None:
    masked = Choice(("split_65",), ("unit_normal",), ("none", "top_left"), ("f16",), seeds=(0,))
    without = [("// weft: define  CAUSAL = 0\n", ""), ("constexpr unsigned", "#define CAUSAL 0\nconstexpr unsigned")]
    found = supervisor.evaluate(request_of(*without, choice=masked))
    assert (found.status, found.message) == (Status.REJECTED, "the kernel does not support the masks top_left")
    bold = supervisor.evaluate(request_of(("WARPS = 4", "WARPS = 4\n// weft: define  BLOCK_N = 1000000")))
    assert bold.status is Status.REJECTED
    assert "BLOCK_N" in bold.message
    limit = ("// weft: scalar  scale", "// weft: require SKV >= 1000\n// weft: scalar  scale")
    limited = supervisor.evaluate(request_of(limit))
    assert limited.status is Status.REJECTED
    assert "require SKV >= 1000" in limited.message
    with pytest.raises(UsageError, match="no rung"):
        supervisor.evaluate(request_of(rung="scalpel"))


def test_the_child_receives_neither_seeds_nor_expected_outputs(
    supervisor: Supervisor, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Frame] = []
    post = Child.post

    def overheard(child: Child, question: Frame) -> None:
        received.append(question)
        post(child, question)

    monkeypatch.setattr(Child, "post", overheard)
    choice = Choice(("split_65",), ("unit_normal",), ("none",), ("f16",), seeds=(91736405,))
    score = ScoreOn("small", seed=91736405)
    assert supervisor.evaluate(request_of(choice=choice, score=score)).passed
    assert {frame.fields["do"] for frame in received if "do" in frame.fields} == {"open", "run", "again", "profile"}
    # Its code, for the disassembler, and what that printed.
    assert {name for frame in received if "do" not in frame.fields for name in frame.fields} <= {"disassemble", "text"}
    assert "91736405" not in json.dumps([dict(frame.fields) for frame in received])
    assert {name for frame in received for name in frame.arrays} == {"q", "k", "v", "cubin"}


def test_canonical_ptx_identifies_a_candidate_by_its_code(supervisor: Supervisor, request_of: Any) -> None:
    plain = supervisor.canonical_ptx(request_of())
    renamed = supervisor.canonical_ptx(
        request_of(
            ("// Idea", "// Another remark\n\n// Idea"),
            ("// weft: launch  scalar_attention", "// weft: launch  other_name"),
            ("scalar_attention(const ELEMENT*", "other_name(const ELEMENT*"),
        )
    )
    wider = supervisor.canonical_ptx(request_of(("WARPS = 4", "WARPS = 8")))
    fewer = supervisor.canonical_ptx(request_of(("grid(cdiv(SQ, WARPS), HQ, B)", "grid(cdiv(SQ, WARPS) + 1, HQ, B)")))
    assert plain.status is Status.PASSED
    assert plain.digest == renamed.digest
    assert len({plain.digest, wider.digest, fewer.digest}) == 3
    broken = supervisor.canonical_ptx(request_of(("m = m_new;", "m = m_newest;")))
    assert (broken.status, broken.digest) == (Status.COMPILE_ERROR, None)
    assert "m_newest" in broken.message
