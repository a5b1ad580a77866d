"""Compares chips.json with the figures in data sheets, which are products of its cells."""

import dataclasses
import re
from pathlib import Path

import pytest

from weft.core.chips import (
    Chip,
    TensorKind,
    chip,
    chip_of,
    chips,
    choose_gpu,
    smallest_chips,
    target_of,
)
from weft.core.errors import UsageError

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "model.md"
NAMES = ("a100", "a6000", "rtx3090", "rtx4090", "l4", "l40s", "h100", "h200", "rtx5090")
TENSOR_PEAKS = (
    ("a100", TensorKind.F16_F32, 312),
    ("a100", TensorKind.TF32_F32, 156),
    ("a100", TensorKind.INT8, 624),
    ("a6000", TensorKind.F16_F32, 154.8),
    ("rtx3090", TensorKind.F16_F32, 71.2),
    ("rtx3090", TensorKind.F16_F16, 142.3),
    ("rtx3090", TensorKind.TF32_F32, 35.6),
    ("rtx3090", TensorKind.INT8, 284.7),
    ("rtx4090", TensorKind.F16_F32, 165.2),
    ("rtx4090", TensorKind.F16_F16, 330.3),
    ("rtx4090", TensorKind.FP8_F16, 660.6),
    ("l4", TensorKind.F16_F32, 121),
    ("l4", TensorKind.FP8_F32, 242.5),
    ("l40s", TensorKind.F16_F32, 362),
    ("h100", TensorKind.F16_F32, 989.4),
    ("h100", TensorKind.FP8_F32, 1978.9),
    ("h200", TensorKind.BF16_F32, 989.5),
    ("rtx5090", TensorKind.F16_F32, 209.5),
    ("rtx5090", TensorKind.FP8_F32, 419),
    ("rtx5090", TensorKind.FP8_F16, 838),
    ("rtx5090", TensorKind.TF32_F32, 104.8),
)
FP32_PEAKS = (
    ("a100", 1.41, 19.5),
    ("a6000", 1.80, 38.7),
    ("rtx3090", 1.695, 35.6),
    ("rtx4090", 2.52, 82.6),
    ("l4", 2.04, 30.3),
    ("l40s", 2.52, 91.6),
    ("h100", 1.98, 66.9),
    ("h200", 1.98, 66.9),
    ("rtx5090", 2.407, 104.8),
)
MEMORY = (
    ("a100", 1593, 5120),
    ("a6000", 8001, 384),
    ("rtx3090", 9751, 384),
    ("rtx4090", 10501, 384),
    ("l4", 6251, 192),
    ("l40s", 9001, 384),
    ("h100", 2619, 5120),
    ("h200", 3201, 6144),
    ("rtx5090", 14001, 512),
)
"""What data sheets say: dense tensor TFLOP/s, the clock and TFLOP/s of fp32, the memory clock and the bus."""


def test_the_gpus() -> None:
    assert tuple(chips()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_a_source(name: str) -> None:
    one = chip(name)
    cells = {field.name for field in dataclasses.fields(Chip)} - {
        "name",
        "title",
        "architecture",
        "tensor_macs",
        "sources",
    }
    cells |= {f"tensor_macs.{kind}" for kind in one.tensor_macs}
    assert set(one.sources) == cells
    limits = {field.name for field in dataclasses.fields(one.architecture)} - {"capability", "sources"}
    assert set(one.architecture.sources) == limits
    for source in (*one.sources.values(), *one.architecture.sources.values()):
        assert source.title
        assert source.url is None or source.url.startswith("https://")


@pytest.mark.parametrize("name", NAMES)
def test_values_without_a_public_page_are_in_no_bound(name: str) -> None:
    one = chip(name)
    working = {cell for cell, source in one.sources.items() if source.title.startswith("Working value")}
    assert working <= {"dram_reachable", "sustained_ghz", "issue_weight"}


@pytest.mark.parametrize(("name", "kind", "tflops"), TENSOR_PEAKS)
def test_dense_tensor_peak_of_the_data_sheet(name: str, kind: TensorKind, tflops: float) -> None:
    one = chip(name)
    assert 2 * one.peak_macs(kind) * one.sms * one.boost_ghz / 1e3 == pytest.approx(tflops, rel=0.015)


@pytest.mark.parametrize(("name", "ghz", "tflops"), FP32_PEAKS)
def test_fp32_peak_of_the_data_sheet(name: str, ghz: float, tflops: float) -> None:
    one = chip(name)
    assert one.boost_ghz <= one.max_ghz
    assert ghz in (one.boost_ghz, one.max_ghz)
    assert 2 * one.architecture.fp32_lanes * one.sms * ghz / 1e3 == pytest.approx(tflops, rel=0.005)


@pytest.mark.parametrize(("name", "memory_mhz", "bus_bits"), MEMORY)
def test_dram_peak_is_not_below_memory_clock_times_bus(name: str, memory_mhz: int, bus_bits: int) -> None:
    exact = memory_mhz * 2 * bus_bits / 8 / 1e3
    assert exact <= chip(name).dram_gbs <= exact * 1.001


@pytest.mark.parametrize("rows", [TENSOR_PEAKS, FP32_PEAKS, MEMORY], ids=["tensor", "fp32", "memory"])
def test_every_gpu_is_compared_with_a_data_sheet(rows: tuple[tuple[str, object, float], ...]) -> None:
    assert {row[0] for row in rows} == set(NAMES)


def test_an_unknown_gpu_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="l40s"):
        chip("b200")


def test_an_architecture_means_its_smallest_gpu() -> None:
    smallest = {target: one.name for target, one in smallest_chips().items()}
    assert smallest == {"sm_80": "a100", "sm_86": "rtx3090", "sm_89": "l4", "sm_90": "h100", "sm_120": "rtx5090"}
    for one in chips().values():
        assert chip_of(one.architecture.target).sms <= one.sms
    assert chip_of("sm_90a") is chip("h100")
    assert chip_of("L40S") is chip("l40s")
    with pytest.raises(UsageError, match=r"unknown architecture 'sm_70'.*sm_89"):
        chip_of("sm_70")


def test_code_is_compiled_for_the_gpus_architecture() -> None:
    assert target_of("a6000") == "sm_86"
    assert target_of("sm_90a") == "sm_90a"
    assert (target_of("h100"), target_of("rtx5090")) == ("sm_90a", "sm_120a"), "with the code of this GPU alone: wgmma"
    with pytest.raises(UsageError, match="rtx4090"):
        target_of("b200")


def test_one_choice_of_gpu() -> None:
    assert choose_gpu() == "l4"
    assert choose_gpu("h100") == "h100"
    assert choose_gpu(arch="sm_80") == "sm_80"
    with pytest.raises(UsageError, match="give one of them"):
        choose_gpu("l4", "sm_89")


def test_a_tensor_kind_that_a_gpu_does_not_have() -> None:
    with pytest.raises(UsageError, match="no fp8_f32"):
        chip("a100").peak_macs(TensorKind.FP8_F32)


def test_the_page_has_the_table() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if row[0].strip("|` ") in NAMES] == [f"| `{name}`" for name in NAMES]
    for row in rows:
        if row[0].strip("|` ") not in NAMES:
            continue
        one = chip(row[0].strip("|` "))
        cells = (one.title, one.architecture.capability, one.sms, one.boost_ghz, one.max_ghz, one.dram_gbs)
        assert row[1:7] == [str(cell) for cell in cells]
        assert row[7:9] == [f"{one.dram_reachable:.0%}", str(one.l2_bytes >> 20)]
        kinds = (TensorKind.F16_F32, TensorKind.FP8_F32, TensorKind.INT8)
        assert row[9:12] == [str(one.tensor_macs.get(kind, "–")) for kind in kinds]
        assert row[12] == f"{one.issue_weight or '0.4 to 1.4'} |"


def test_the_page_about_triton_lists_the_gpus() -> None:
    (row,) = [line for line in (DOCS / "howto" / "triton.md").read_text().splitlines() if "weft.triton.on(gpu)" in line]
    assert row.endswith(f"runs on a virtual `gpu`: {', '.join(f'`{name}`' for name in chips())} |")


def test_the_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, "model.md", "exec"), {})
    assert capsys.readouterr().out == shown
