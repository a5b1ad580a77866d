"""`weft profile --ncu`, `--metrics`, `--png`: a public capture compared with Weft, what is refused, the roofline."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.core.chips import chip
from weft.engines.kernel_file import load
from weft.kernels.ladder import RUNGS
from weft.profile.kernel_profile import KernelProfile, profile_kernel
from weft.profile.ncu_compare import Comparison, Row, Verdict, compare_with_ncu
from weft.profile.ncu_csv import read_csv
from weft.profile.roofline_points import roofline

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "tests/profile/ncu"
GEMM = str(ROOT / "benchmarks/sgemm/kernel_3.cu")
RAW = (REPORTS / "tiled_gemm_raw.csv").read_text()
"""ncu's format; the integers are those of a public capture of a tiled GEMM of 1024³ on an RTX A6000, ncu 2023.2."""
AS_CAPTURED = {
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 2_129_920,
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": 32_768,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 8_519_680,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 131_072,
    "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum": 393_216,
    "smsp__sass_inst_executed_op_shared_ld.sum": 41_943_040,
    "smsp__sass_inst_executed_op_shared_st.sum": 2_097_152,
    "memory_l1_wavefronts_shared": 52_428_800,
    "memory_l1_wavefronts_shared_ideal": 52_428_800,
    "derived__memory_l1_wavefronts_shared_excessive": 0,
    "memory_l2_theoretical_sectors_global": 8_650_752,
    "sm__maximum_warps_avg_per_active_cycle": 32,
    "launch__registers_per_thread": 37,
    "launch__shared_mem_per_block_static": 8_192,
    "launch__shared_mem_per_block_driver": 1_024,
}


@cache
def gemm() -> KernelProfile:
    return profile_kernel(load(GEMM, arch="sm_86"), chip("a6000"), sizes={"N": 1024})


def rows(found: Comparison) -> dict[str, Row]:
    return {row.metric: row for launch in found.launches for row in launch.rows}


def compared(text: str) -> Comparison:
    return compare_with_ncu(gemm(), read_csv(text, "r.csv"))


def test_the_capture_is_reproduced() -> None:
    found = rows(compared(RAW))
    for metric, value in AS_CAPTURED.items():
        assert (found[metric].weft, found[metric].ncu.value, found[metric].verdict) == (value, value, Verdict.EQUAL), (
            metric
        )
    assert found["sm__maximum_warps_per_active_cycle_pct"].verdict is Verdict.EQUAL  # 66.67 and 66.666…
    assert not [row for row in found.values() if row.verdict is Verdict.DIFFERS]
    time = found["gpu__time_duration.sum"]
    assert time.verdict is Verdict.BOUND and time.weft < time.ncu.value == pytest.approx(983_680)
    limit = found["launch__occupancy_limit_shared_mem"]  # 9,216 bytes per block: 11 in 100 KB, one in 16
    assert (limit.weft, limit.ncu.value, limit.verdict) == (11, 1, Verdict.EXPLAINED)
    assert "16384 bytes of shared memory per SM" in limit.why
    assert found["smsp__inst_executed.sum"].verdict is Verdict.EXPLAINED
    (launch,) = compared(RAW).launches
    assert "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum" in launch.only_measured
    assert launch.notes == ("block (32, 32, 1) in the report, (1024, 1, 1) in Weft: the totals are equal",)


@pytest.mark.parametrize(
    ("metric", "before", "after"),
    [
        ("memory_l1_wavefronts_shared", '"52,428,800","52,428,800","0"', '"53,477,376","52,428,800","0"'),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", '"131,072"', '"131,073"'),
        ("gpu__time_duration.sum", '"983.68"', '"483.68"'),
    ],
)
def test_another_number_is_named(metric: str, before: str, after: str) -> None:
    """Even one sector; and a time that the bound rules out."""
    assert RAW.count(before) == 1
    found = rows(compared(RAW.replace(before, after)))
    assert [row.metric for row in found.values() if row.verdict is Verdict.DIFFERS] == [metric]


def test_what_ptxas_decides_is_explained() -> None:
    found = rows(compared(RAW.replace('"37"', '"40"')))
    assert found["launch__registers_per_thread"].verdict is Verdict.EXPLAINED
    assert "ptxas" in found["launch__registers_per_thread"].why


def test_fewer_reads_mean_warm_caches() -> None:
    found = rows(compared(RAW.replace('"393,216"', '"1,024"')))
    row = found["lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum"]
    assert row.verdict is Verdict.EXPLAINED and "--cache-control none" in row.why


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"8.6"', '"8.9"', "compute capability 8.9 in the report, 8.6 in Weft (other SASS): use --gpu rtx4090 or l4"),
        ('"8.6"', '"7.5"', "the model has no such GPU"),
        ('"(32, 32, 1)","(32, 32, 1)"', '"(32, 32, 1)","(64, 32, 1)"', "a grid of (64, 32, 1) in the report"),
        ('"(32, 32, 1)","(32, 32, 1)"', '"(16, 16, 1)","(32, 32, 1)"', "blocks of (16, 16, 1) in the report"),
        ('"(32, 32, 1)","(32, 32, 1)"', '"",""', "does not contain grid and block"),
    ],
)
def test_another_launch_is_refused(before: str, after: str, said: str) -> None:
    assert RAW.count(before) == 1
    (launch,) = compared(RAW.replace(before, after)).launches
    assert said in launch.refused and launch.rows == ()


def test_launches_by_name_and_order() -> None:
    head, row = RAW.rstrip("\n").rsplit("\n", 1)
    other, again = row.replace('"sgemm(', '"warm_up('), row.replace('"0","4711"', '"2","4711"')
    found = compared("\n".join([head, other, row, again]) + "\n")
    (launch,) = found.launches
    assert launch.number == "0" and launch.kernel.startswith("sgemm(")
    assert found.notes[0].startswith("launches of the report that were not compared: 2 (warm_up(const float *")
    smaller = row.replace('"(32, 32, 1)","(32, 32, 1)"', '"(32, 32, 1)","(8, 8, 1)"')
    (launch,) = compared("\n".join([head, smaller, again]) + "\n").launches
    assert launch.number == "2" and not launch.refused  # the first was of another size
    nothing = compared("\n".join([head, other]) + "\n")
    assert nothing.launches == ()
    assert nothing.notes[0] == "sgemm: the report has no such launch" and "the report has: warm_up(" in nothing.notes[1]


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("weft.cli.profile.profile_kernel", lambda *_, target, **__: replace(gemm(), target=target))
    Path("good.csv").write_text(RAW)
    Path("bad.csv").write_text(RAW.replace('"131,072"', '"131,080"'))
    call = ["profile", GEMM, "--gpu", "a6000", "--size", "N=1024", "--ncu"]
    assert main([*call, "good.csv"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "memory_l1_wavefronts_shared\t52428800\t52428800\t0\tequal" in out
    assert out[-1].endswith("on RTX A6000: 16 equal, 1 bound holds, 2 explained, 0 differs")
    assert main([*call, "bad.csv"]) == 1
    out = capsys.readouterr().out
    assert "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum\t131072\t131080\t-8\tdiffers: unexplained" in out
    assert main([*call, "good.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["ncu"]
    assert found["counts"] == {"equal": 16, "bound holds": 1, "explained": 2, "differs": 0}
    assert found["launches"][0]["metrics"][0].keys() >= {"metric", "weft", "ncu", "difference", "verdict", "why"}
    Path("other.csv").write_text(RAW.replace('"8.6"', '"9.0"'))
    assert main([*call, "other.csv"]) == 3
    assert "not compared: compute capability 9.0 in the report, 8.6 in Weft" in capsys.readouterr().out


def test_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """N = 64: two k-tiles, 4 CTAs of 32 warps; a warp and tile has 8 LDS.128 at 2 wavefronts, 32 LDS and 2 STS at 1."""
    monkeypatch.chdir(tmp_path)
    Path("list.txt").write_text(
        "# what we look at\n--metrics memory_l1_wavefronts_shared, \\\n  dram__bytes_read.sum # cold\n\n"
        "sm__throughput.avg.pct_of_peak_sustained_elapsed,\nl1tex__t_requests_pipe_lsu_mem_global_op_st\n"
        "smsp__thread_inst_executed.sum\n"
    )
    assert main(["profile", GEMM, "--size", "N=64", "--metrics", "list.txt"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert f"memory_l1_wavefronts_shared\t{2 * 4 * 32 * 50}\t" in out
    assert any(line.startswith(f"dram__bytes_read.sum\t≥ {3 * 64 * 64 * 4}\tat least") for line in out)
    assert any(line.startswith("sm__throughput.avg.pct_of_peak_sustained_elapsed\t–\tneeds hardware") for line in out)
    assert any(line.startswith("l1tex__t_requests_pipe_lsu_mem_global_op_st\t128\t") for line in out)
    assert any(line.startswith("smsp__thread_inst_executed.sum\t–\tWeft does not count it") for line in out)
    assert out[-1].startswith("3 of 5 have a value here")
    assert main(["profile", GEMM, "--size", "N=64", "--metrics", "list.txt", "--json"]) == 0
    (launches,) = json.loads(capsys.readouterr().out)["metrics"]
    assert launches[0]["metrics"][0]["value"] == 12_800 and launches[0]["metrics"][2]["value"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.cu", "--metrics", "smsp__gmio_stall.avg.pct,launch__grid_size"], "1 of 2 metrics are not available"),
        (["--metrics", "launch__grid_size.sum"], "takes no suffix"),
        (["--metrics", "lists/missing.txt"], "there is no such file"),
        (["--metrics", ", ,"], "the list is empty"),
        ([], "name a kernel file"),
        ([GEMM, "--metrics", "launch__grid_size", "--ncu", "r.csv"], "one of --baseline, --ncu and --metrics"),
        ([GEMM, GEMM, "--ncu", "r.csv"], "--ncu compares one kernel"),
        ([GEMM, "--ncu", "missing.csv"], "there is no report missing.csv"),
    ],
)
def test_refused_before_a_run(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["profile", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_list_without_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--metrics", "launch__grid_size,dram__bytes.sum", "--gpu", "h100"]) == 0
    assert capsys.readouterr().out == "metrics: 2, all known to ncu on compute capability 9.0; nothing ran\n"


def test_the_roofline_of_attention() -> None:
    """8 heads, 512 queries and keys, d = 64, halves on an L4: 58 SMs, 512 multiply-adds and 16 MUFU per clock each."""
    sizes = {"B": 1, "HQ": 8, "HKV": 8, "SQ": 512, "SKV": 512, "D": 64}
    rung = load(RUNGS["wmma"].path, arch="sm_89")
    made = roofline(profile_kernel(rung, chip("l4"), target="wmma", sizes=sizes))
    (point,) = made.points
    assert point.flop == 4 * 8 * 512 * 512 * 64
    assert point.bytes == pytest.approx(3 * (8 * 512 * 64 * 2))  # q, k and v; what is written fits L2
    assert point.bound_seconds <= point.estimate_seconds[0] <= point.estimate_seconds[1]
    ceilings = {ceiling.label: ceiling.flops for ceiling in made.ceilings}
    assert ceilings == {
        "fp32 lanes": pytest.approx(2 * 128 * 58 * 2.04e9),
        "tensor cores, f16_f32": pytest.approx(2 * 512 * 58 * 2.04e9),
        "one MUFU per score": pytest.approx(4 * 64 * 16 * 58 * 2.04e9),
    }


def test_the_roofline_of_a_gemm() -> None:
    """2 n³ for the product, and three per output for alpha · sum + beta · C; A, B and C are read once."""
    (point,) = roofline(gemm()).points
    assert point.flop == 2 * 1024**3 + 3 * 1024**2
    assert point.bytes == pytest.approx(3 * 1024**2 * 4)


@pytest.mark.parametrize("rung", ["scalar", "split_k"])
def test_no_point_is_above_the_roof(rung: str) -> None:
    """Several launches, too: data that a launch leaves in L2 is not fetched again by the next launch."""
    sizes = {"B": 1, "HQ": 1, "HKV": 1, "SQ": 32, "SKV": 32, "D": 64}
    made = roofline(profile_kernel(load(RUNGS[rung].path, arch="sm_89"), chip("l4"), target=rung, sizes=sizes))
    for point in made.points:
        assert point.flop / point.bound_seconds <= 1.001 * point.intensity * made.bytes_per_second
        assert point.bound_seconds <= point.estimate_seconds[0]


def test_the_ending_of_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["profile", GEMM, "--size", "N=64", "--png"]
    assert main([*call, str(tmp_path / "f.svg")]) == 0
    text = (tmp_path / "f.svg").read_text()
    assert "Roofline" in text and "lines that cost most" in text and "kernel_3.cu:24" in text
    assert main([*call, str(tmp_path / "f.docx")]) == 2
    assert "cannot write" in capsys.readouterr().err
