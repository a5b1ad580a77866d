"""`weft profile`: counters that follow from the kernel's text, a baseline that fails by line, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import main

TRANSPOSE = """\
// weft: sizes   N=64
// weft: define  PAD = 1
// weft: in      a : f32[N, N] = normal
// weft: out     t : f32[N, N]
// weft: launch  transpose(a, t, N) grid(N // 32, N // 32) block(32, 32)
extern "C" __global__ void transpose(const float* a, float* t, int n) {
    __shared__ float tile[32][32 + PAD];
    int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * 32, j = blockIdx.x * 32;
    tile[y][x] = a[(i + y) * n + j + x];
    __syncthreads();
    t[(j + y) * n + i + x] = tile[x][y];
}
"""
LOAD_LINE, STORE_LINE = 9, 11
WARPS = 4 * 32
"""Four CTAs of 32 warps at N = 64."""
EXCESSIVE = "derived__memory_l1_wavefronts_shared_excessive"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("transpose.cu").write_text(TRANSPOSE)
    return Path("transpose.cu")


def profiled(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["profile", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["modelled"] is True
    return found["profiles"]


def test_counters_of_a_transpose(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each warp loads 128 bytes, stores 128 bytes, and passes shared memory once in and once out."""
    (profile,) = profiled(capsys, str(source))
    (launch,) = profile["launches"]
    ncu = launch["ncu"]
    assert ncu["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == WARPS
    assert ncu["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 4 * WARPS
    assert ncu["memory_l1_wavefronts_shared"] == 2 * WARPS and ncu[EXCESSIVE] == 0
    # 4 accesses per warp at half an instruction per clock on each of 58 SMs
    assert launch["bounds"]["lb__lsu_cycles"] == pytest.approx(4 * WARPS / 0.5 / 58)
    assert launch["integers"]["barriers"] == WARPS
    # 32 warps of a block: 48 hold one
    assert launch["occupancy"]["blocks"] == 1 and launch["occupancy"]["limiters"] == ["warps"]
    assert launch["sass_matched"] == 1.0
    assert "4 blocks leave 54 of 58 SMs idle" in launch["advice"][0]
    assert profile["lb_cold_cycles"] >= profile["lb_warm_cycles"] > 0


def test_a_file_for_one_gpu_is_modelled_on_it(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text("// weft: gpu a100\n" + TRANSPOSE)
    (profile,) = profiled(capsys, str(source))
    assert "4 blocks leave 104 of 108 SMs idle" in profile["launches"][0]["advice"][0]
    low, high = profile["est_warm_cycles"]
    assert profile["lb_warm_cycles"] <= low <= high


def test_a_gpu_whose_rates_were_not_measured_has_bounds_and_no_estimate(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (profile,) = profiled(capsys, str(source), "--gpu", "h100")
    assert profile["est_warm_cycles"] is None and profile["launches"][0]["estimates"] == {}
    assert profile["lb_warm_cycles"] > 0
    assert main(["profile", str(source), "--gpu", "h100"]) == 0
    printed = capsys.readouterr().out
    assert "EST        not given for H100 SXM" in printed and "EST_warm" not in printed


def test_a_bank_conflict_is_named_at_its_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without padding a column of 32 floats is in one bank."""
    (profile,) = profiled(capsys, str(source), "-D", "PAD=0")
    (launch,) = profile["launches"]
    assert launch["ncu"][EXCESSIVE] == 31 * WARPS
    assert launch["limiter"]["warm"] == "smem"
    first = launch["lines"][0]
    assert (first["place"], first["unit"], first["excess_wavefronts"]) == (f"{source}:{STORE_LINE}", "smem", 31 * WARPS)
    assert first["advice"].startswith("32-way bank conflict: 31 of 32 wavefronts wasted per access")


def test_an_uncoalesced_load_is_named(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(TRANSPOSE.replace("a[(i + y) * n + j + x]", "a[(i + x) * n + j + y]"))
    (profile,) = profiled(capsys, str(source))
    lines = {line["place"]: line for line in profile["launches"][0]["lines"]}
    line = lines[f"{source}:{LOAD_LINE}"]
    assert line["sectors"] == 32 * WARPS
    assert line["advice"].startswith("uncoalesced: 32 sectors per request instead of 4")


def test_text_ends_with_one_summary_that_says_modelled(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(source), "--gpu", "a100", "--size", "N=32"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("transpose.cu · A100 80GB SXM · N=32 · nvrtc ")
    assert any(line.startswith("EST_warm") and "calibrated on A100" in line for line in out)
    assert "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum\t32" in out
    assert "tensor     no tensor-core instruction" in out
    assert "modelled, not measured" in out[-1]


def test_two_kernels_side_by_side(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Path("conflicts.cu")
    other.write_text(TRANSPOSE.replace("PAD = 1", "PAD = 0"))
    assert main(["profile", str(source), str(other)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split("\t") == ["", "transpose.cu", "conflicts.cu"]
    assert f"{EXCESSIVE}\t0\t{31 * WARPS}" in out
    assert "tensor cores busy\t0.0%\t0.0%" in out
    assert out[-2].startswith("conflicts.cu against transpose.cu: LB_warm ×")
    assert "modelled, not measured" in out[-1]


def test_a_baseline_fails_with_the_counter_and_the_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = ["profile", str(source), "--baseline", "perf.json"]
    assert main([*held, "--update"]) == 0
    assert main([*held, "--check"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "perf.json: nothing changed"
    # a line more above, and no padding: the line that moved is the same line
    source.write_text("// a comment\n" + TRANSPOSE.replace("PAD = 1", "PAD = 0"))
    assert main([*held, "--check"]) == 1
    out = capsys.readouterr().out.splitlines()
    at = out.index(f"worse: transpose.cu: transpose: excess_wavefronts 0 → {31 * WARPS}")
    assert out[at + 1] == f"  transpose.cu:{STORE_LINE + 1}: 0 → {31 * WARPS}: t[(j + y) * n + i + x] = tile[x][y];"
    assert not any(f":{LOAD_LINE + 1}:" in line for line in out)
    assert main([*held, "--check", "--json"]) == 1
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert {"excess_wavefronts", "lb_warm_cycles"} <= {change["counter"] for change in changes if change["worse"]}


def test_better_than_the_baseline_is_not_a_failure(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(TRANSPOSE.replace("PAD = 1", "PAD = 0"))
    held = ["profile", str(source), "--baseline", "perf.json"]
    assert main([*held, "--update"]) == 0
    source.write_text(TRANSPOSE)
    assert main([*held, "--check"]) == 0
    out = capsys.readouterr().out
    assert f"better: transpose.cu: transpose: excess_wavefronts {31 * WARPS} → 0" in out
    assert out.endswith("(to record it: --update)\n")


def test_what_a_baseline_cannot_judge_is_not_a_pass(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = ["profile", str(source), "--baseline", "perf.json"]
    assert main([*held, "--check"]) == 2  # there is none
    assert main([*held, "--update"]) == 0
    assert main([*held, "--check", "--size", "N=32"]) == 3
    assert "has no row for transpose.cu l4 N=32" in capsys.readouterr().err
    text = Path("perf.json").read_text()
    Path("perf.json").write_text(text.replace('"nvrtc ', '"nvrtc 1.0, was '))
    assert main([*held, "--check"]) == 3
    assert "other SASS gives other counters" in capsys.readouterr().err
    Path("perf.json").write_text(text.replace('"mufu"', '"moofu"'))
    assert main([*held, "--check"]) == 3


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--gpu", "l5"], 2, "unknown GPU 'l5'"),
        (["--check"], 2, "give --baseline FILE with one of --update and --check"),
        (["--baseline", "f", "--check", "--update"], 2, "one of --update and --check"),
        (["--shape", "mission"], 2, "has no arrays q, k and v"),
        (["--shape", "vast"], 2, "shape vast: unknown shape"),
        (["--clock", "2040"], 2, "allows at most"),
        (["missing.cu"], 2, "missing.cu is neither a file nor a rung"),
    ],
)
def test_refused(
    arguments: list[str], status: int, said: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", str(source), *arguments]) == status
    assert said in capsys.readouterr().err


def test_a_kernel_with_findings_is_not_profiled(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(TRANSPOSE.replace("t[(j + y) * n", "t[(j + y + n) * n"))
    assert main(["profile", str(source)]) == 3
    shown = capsys.readouterr()
    assert "M101" in shown.err and "was not profiled" in shown.err
    assert shown.out == ""


def test_a_figure(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(source), "--png", "lines.png"]) == 0
    assert Path("lines.png").read_bytes().startswith(b"\x89PNG")
    assert main(["profile", str(source), str(source), "--png", "lines.png"]) == 2
    assert main(["profile", str(source), "--png", "missing/lines.png"]) == 2
    assert "cannot write missing/lines.png" in capsys.readouterr().err


def test_a_macro_that_the_arrays_of_a_task_contradict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "paged_decode", "-D", "PAGE=32"]) == 2
    assert "has PAGE=32, and task paged_decode gives arrays for PAGE=16: leave out -D PAGE" in capsys.readouterr().err


def test_a_rung_has_the_mission_shape(capsys: pytest.CaptureFixture[str]) -> None:
    """S = Q Kᵀ and P V: 2 · 8 heads · 512 · 512 · 64 multiply-adds, 16 · 8 · 16 in each HMMA.16816."""
    (profile,) = profiled(capsys, "wmma")
    assert profile["sizes"] == {"B": 1, "HQ": 8, "HKV": 8, "SQ": 512, "SKV": 512, "D": 64}
    (launch,) = profile["launches"]
    assert launch["integers"]["mma"] == 2 * 8 * 512 * 512 * 64 // (16 * 8 * 16)
    assert launch["lines"][0]["place"].startswith("wmma.cu:")
    # An L4 has 58 SMs, each of which does 512 such multiply-adds per clock.
    busy = 2 * 8 * 512 * 512 * 64 / 512 / 58
    found = launch["tensor_utilisation"]
    assert found["at_most"] == pytest.approx(busy / launch["bounds"]["lb__warm_cycles"])
    assert sorted(found["estimate"]) == pytest.approx([busy / end for end in reversed(profile["est_warm_cycles"])])


def test_launches_follow_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    (profile,) = profiled(capsys, "split_k", "--shape", "small")
    first, second = profile["launches"]
    assert profile["lb_warm_cycles"] == first["bounds"]["lb__warm_cycles"] + second["bounds"]["lb__warm_cycles"]
    assert profile["lb_cold_cycles"] == first["bounds"]["lb__cold_cycles"] + second["bounds"]["lb__warm_cycles"]
