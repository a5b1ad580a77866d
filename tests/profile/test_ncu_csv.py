"""Reports of ncu read back: both pages, locales, units, several kernels, and the report file through a stand-in."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.core.errors import ToolMissing, UsageError
from weft.profile.ncu_compare import Name, kernel_name
from weft.profile.ncu_csv import read_csv
from weft.profile.ncu_numbers import ENGLISH, EUROPEAN, measured, style_of
from weft.profile.ncu_report_file import read_report

REPORTS = Path(__file__).parent / "ncu"
WAVEFRONTS = "memory_l1_wavefronts_shared"
HEADER = '"ID","Kernel Name","Block Size","Grid Size","CC","dram__bytes_read.sum","launch__registers_per_thread"\n'


def test_the_raw_page() -> None:
    (launch,) = read_report(REPORTS / "tiled_gemm_raw.csv")
    assert (launch.number, launch.grid, launch.block, launch.capability) == ("0", (32, 32, 1), (32, 32, 1), "8.6")
    assert launch.kernel.startswith("sgemm(const float *")
    assert launch.metrics[WAVEFRONTS].value == 52_428_800
    assert launch.metrics["gpu__time_duration.sum"].value == pytest.approx(983_680)
    assert launch.metrics["gpu__time_duration.sum"].unit == "ns"
    assert launch.metrics["launch__shared_mem_per_block_static"].within == 0


def test_the_details_page_of_another_locale() -> None:
    (launch,) = read_report(REPORTS / "tiled_gemm_details.csv")
    assert launch.metrics[WAVEFRONTS].value == 52_428_800
    assert launch.metrics["launch__thread_count"].value == 1_048_576
    assert launch.metrics["sm__maximum_warps_per_active_cycle_pct"].agrees(100 * 32 / 48)
    assert not launch.metrics["sm__maximum_warps_per_active_cycle_pct"].agrees(66.6)
    static = launch.metrics["launch__shared_mem_per_block_static"]  # 8.19 Kbyte: 8,185 to 8,195 bytes
    assert static.agrees(8192) and static.agrees(8195) and not static.agrees(8197)
    assert "Function Cache Configuration" not in launch.metrics


def test_several_launches_with_noise_between() -> None:
    text = (
        '==PROF== Connected\n1,234 items, "ok"\n'
        + HEADER
        + '"","","block","grid","","Mbyte","register/thread"\n'
        + '"0","void a<(int)64>(float *)","(128, 1, 1)","(4, 2, 1)","8.9","1.50","40"\n'
        + "==WARNING== clocks were reset\n"
        + '"1","b(int)","(32, 1, 1)","(1, 1, 1)","8.9","n/a","16"\n'
    )
    first, second = read_csv(text, "r.csv")
    assert (first.grid, first.metrics["dram__bytes_read.sum"].value) == ((4, 2, 1), 1_500_000)
    assert first.metrics["dram__bytes_read.sum"].within == pytest.approx(5_000)
    assert (second.number, second.kernel, set(second.metrics)) == ("1", "b(int)", {"launch__registers_per_thread"})


def test_a_long_report_of_two_processes() -> None:
    """Both processes number their launches from 0."""
    header = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = "".join(f'"0","{process}","k(int)","launch__grid_size","","{process}"\n' for process in (7, 8))
    assert [launch.metrics["launch__grid_size"].value for launch in read_csv(header + rows, "r.csv")] == [7, 8]
    assert read_csv(header + rows, "r.csv")[0].grid == (7, 1, 1)


def test_advice_over_several_lines() -> None:
    header = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value","Rule Description"\n'
    rows = '"0","k","","","","Two things:\n- one, ""quoted""\n- two"\n"0","k","Waves Per SM","","1.10",""\n'
    (launch,) = read_csv(header + rows, "r.csv")
    assert launch.metrics["launch__waves_per_multiprocessor"].value == 1.1
    with pytest.raises(UsageError, match=r"r.csv:2: \d columns"):
        read_csv(header + '"0","k","Waves Per SM","","1.10\n', "r.csv")


def test_names_before_2021_2() -> None:
    header = '"ID","Kernel Name","memory_l1_sectors_shared"\n'
    (launch,) = read_csv(header + '"0","k","64"\n', "r.csv")
    assert launch.metrics[WAVEFRONTS].value == 64


@pytest.mark.parametrize(
    ("text", "unit", "style", "value", "within"),
    [
        ("27,595,520", "sector", ENGLISH, 27_595_520, 0),
        ("27.595.520", "sector", EUROPEAN, 27_595_520, 0),
        ("65,77", "%", EUROPEAN, 65.77, 0.005),
        ("1.2", "Ghz", ENGLISH, 1.2e9, 5e7),
        ("2", "msecond", ENGLISH, 2e6, 5e5),
        ("12.58", "Mbyte", ENGLISH, 12_580_000, 5_000),
        ("1.5e+03", "", ENGLISH, 1500, 50),
        ("0", "byte", ENGLISH, 0, 0),
    ],
)
def test_numbers(text: str, unit: str, style: Any, value: float, within: float) -> None:
    found = measured(text, unit, style)
    assert found is not None
    assert (found.value, found.within) == (pytest.approx(value), pytest.approx(within))


@pytest.mark.parametrize("text", ["n/a", "", "CachePreferNone", "1; 2", "(32, 32, 1)", "12,34"])
def test_texts_that_are_not_numbers(text: str) -> None:
    assert measured(text, "", ENGLISH) is None


def test_locales() -> None:
    assert style_of(["37", "1.024"]) is ENGLISH  # ambiguous
    assert style_of(["1.024", "27.595.520"]) is EUROPEAN
    assert style_of(["1,024", "66.67"]) is ENGLISH
    with pytest.raises(UsageError, match="two locales"):
        style_of(["66.67", "66,67"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM\n", "not a CSV of ncu"),
        ("", "not a CSV of ncu"),
        (HEADER, "not a CSV of ncu"),
        (HEADER + '"0","k","(1, 1, 1)"\n', "r.csv:2: 3 columns, but the header has 7"),
    ],
)
def test_invalid_reports_are_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_csv(text, "r.csv")


def test_names_of_kernels() -> None:
    assert kernel_name(
        "void (anonymous namespace)::n::attn<(int)64, (bool)1, __half>(const T *, float (*)[2])"
    ) == Name("attn", ("64", "1", "__half"))
    assert kernel_name("attn<64,true,half>").may_be(kernel_name("void attn<(int)64, (bool)1, __half>(int)"))
    assert not kernel_name("attn<64>").may_be(kernel_name("attn<(int)128>(float *)"))
    assert not kernel_name("attn").may_be(kernel_name("attn_2(int)"))
    assert kernel_name("sgemm(const float *, int)") == Name("sgemm", ())


class Metric:
    def __init__(self, value: Any, unit: str) -> None:
        self._value, self._unit = value, unit

    def value(self) -> Any:
        return self._value

    def unit(self) -> str:
        return self._unit


class Action:
    """As ncu_report.IAction."""

    NameBase_FUNCTION, NameBase_DEMANGLED, NameBase_MANGLED = range(3)

    def __init__(self, name: str, metrics: dict[str, Metric]) -> None:
        self._name, self._metrics = name, metrics

    def name(self, base: int = 0) -> str:
        return f"{self._name}(float *)" if base == self.NameBase_DEMANGLED else self._name

    def metric_names(self) -> tuple[str, ...]:
        return tuple(self._metrics)

    def metric_by_name(self, name: str) -> Metric | None:
        return self._metrics.get(name)


@pytest.fixture
def report_file(tmp_path: Path) -> Path:
    path = tmp_path / "r.ncu-rep"
    path.write_bytes(b"\0\1")
    return path


def test_a_report_file(report_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {
        "launch__grid_dim_x": Metric(4, ""),
        "launch__grid_dim_y": Metric(2, ""),
        "launch__grid_dim_z": Metric(1, ""),
        "launch__block_size": Metric(128, ""),
        "launch__kernel_name": Metric("k", ""),
        "device__attribute_compute_capability_major": Metric(8, ""),
        "device__attribute_compute_capability_minor": Metric(9, ""),
        "gpu__time_duration.sum": Metric(12.5, "us"),
        WAVEFRONTS: Metric(52_428_800.0, ""),
    }
    actions = [Action("a", metrics), Action("b", {})]
    workload = SimpleNamespace(num_actions=lambda: 2, action_by_idx=actions.__getitem__)
    context = SimpleNamespace(num_ranges=lambda: 1, range_by_idx=lambda at: workload)
    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=lambda path: context))
    first, second = read_report(report_file)
    assert (first.kernel, first.grid, first.block, first.capability) == ("a(float *)", (4, 2, 1), (128, 1, 1), "8.9")
    assert first.metrics["gpu__time_duration.sum"].value == 12_500
    assert first.metrics[WAVEFRONTS].within == 0 and "launch__kernel_name" not in first.metrics
    assert (second.number, second.grid, second.capability) == ("1", None, None)


def test_a_report_file_without_the_module(report_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(ToolMissing, match=r"extras/python .* PYTHONPATH.*ncu --import r.ncu-rep --csv --page raw"):
        read_report(report_file)


def test_an_invalid_report_file_is_refused(report_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: str) -> None:
        raise RuntimeError("bad magic")

    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=load))
    with pytest.raises(UsageError, match=r"cannot read .*bad magic"):
        read_report(report_file)
    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=lambda path: None))
    with pytest.raises(UsageError, match="contains no kernel"):
        read_report(report_file)
    with pytest.raises(UsageError, match="there is no report"):
        read_report(report_file.with_name("missing.csv"))
    binary = report_file.with_suffix(".csv")
    binary.write_bytes(b"\xff\xfe\0")
    with pytest.raises(UsageError, match="is not text"):
        read_report(binary)
