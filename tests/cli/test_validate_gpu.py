"""`weft validate-gpu` on the stand-in: one bundle with predicted and measured values."""

import json
import zipfile
from pathlib import Path

import pytest
from cuda.bindings import driver

import weft.cli.validate_gpu as verb
from tests.engines.recording_cuda import RecordingCuda
from weft.attention.shapes import SHAPES
from weft.bench import ncu
from weft.cli import launch_once
from weft.cli.main import main
from weft.core.chips import chip, chips
from weft.engines.cuda_device import NoGPU
from weft.engines.kernel_file import load
from weft.kernels.ladder import RUNGS
from weft.profile.kernel_profile import profile_kernel

QUICK = [
    "--rungs",
    "scalar,fp8_scalar",
    "--shapes",
    "split_4",
    "--masks",
    "none",
    "--dtypes",
    "f16",
    "--bench-shapes",
    "split_4",
    "--iters",
    "8",
]

SCALAR = ["--rungs", "scalar", "--shapes", "split_4", "--masks", "none", "--dtypes", "f16"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> RecordingCuda:
    recording = RecordingCuda()
    monkeypatch.setattr(verb, "require_gpu", lambda ordinal: recording.device())
    return recording


def test_without_a_gpu_the_message_gives_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(ordinal: int) -> None:
        raise NoGPU("no GPU can be used: there is no driver")

    monkeypatch.setattr(verb, "require_gpu", nothing)
    assert main(["validate-gpu", "--out", str(tmp_path / "bundle")]) == 3
    assert "nothing was validated: no GPU can be used" in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()


def test_the_bundle(gpu: RecordingCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb.shutil, "which", lambda program: None)
    out = tmp_path / "bundle.zip"
    assert main(["validate-gpu", "--out", str(out), *QUICK]) == 0
    with zipfile.ZipFile(out) as archive:
        parts = {name: json.loads(archive.read(name)) for name in archive.namelist()}
    assert set(parts) == {"environment.json", "ladder.json", "kernels.json", "bench.json", "ncu.json", "problems.json"}
    assert parts["environment.json"]["gpu"] == "stand-in" and parts["environment.json"]["arch"] == "sm_89"
    ladder = parts["ladder.json"]
    assert {row["rung"] for row in ladder} == {"scalar", "fp8_scalar"}
    assert {row["status"] for row in ladder} == {"PASSED"}
    for row in ladder:  # the stand-in is the virtual GPU, so every bit is as predicted
        for found in row["virtual_gpu"].values():
            assert found["equal_bits"] == found["elements"] > 0 and found["largest_difference"] == 0
    for kernel in parts["kernels.json"]:
        (launch,) = kernel["launches"]
        assert launch["registers"]["predicted"] == launch["registers"]["measured"] > 0
        assert kernel["counters_predicted"]["inst_executed"] > 0
        assert "the cycle model has no stand-in" in kernel["time_predicted"]["missing"]
    assert [result["l2"] for result in parts["bench.json"]] == ["cold", "warm"] * 2
    assert parts["problems.json"] == {}
    assert parts["ncu.json"]["scalar"] == {"missing": "ncu is not on the PATH"}


def test_the_predicted_time_is_next_to_the_measured_one(
    gpu: RecordingCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prediction is that of `weft profile` for the same kernel and sizes, marked as modelled."""
    monkeypatch.setattr(verb.shutil, "which", lambda program: None)
    arguments = [*SCALAR, "--bench-shapes", "split_4", "--iters", "8", "--gpu", "l4"]
    assert main(["validate-gpu", "--out", str(tmp_path), *arguments]) == 0
    assert json.loads((tmp_path / "environment.json").read_text())["model"] == "l4"
    printed = capsys.readouterr().out

    l4 = chip("l4")
    shape = SHAPES["split_4"]
    sizes = {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}
    profile = profile_kernel(load(RUNGS["scalar"].path, arch="sm_89"), l4, sizes=sizes)
    (kernel,) = json.loads((tmp_path / "kernels.json").read_text())
    results = json.loads((tmp_path / "bench.json").read_text())
    assert [result["l2"] for result in results] == ["cold", "warm"]
    for result, bound, estimate in zip(
        results, (profile.cold, profile.warm), (profile.estimate_cold, profile.estimate), strict=True
    ):
        row = next(row for row in result["rows"] if row["name"] == "scalar")
        predicted = row["time_predicted"]
        assert predicted == kernel["time_predicted"][result["l2"]]
        assert predicted["modelled"] is True and predicted["gpu"] == "l4" and row["time_ms"]["median"] > 0
        assert (predicted["lower_bound_cycles"], predicted["lower_bound_clock_ghz"]) == (bound, l4.max_ghz)
        assert predicted["lower_bound_ms"] == pytest.approx(bound / l4.max_ghz / 1e6)
        assert tuple(predicted["estimate_cycles"].values()) == pytest.approx(estimate)
        assert predicted["estimate_ms"]["high"] == pytest.approx(estimate[1] / l4.boost_ghz / 1e6)
        assert predicted["lower_bound_ms"] <= predicted["estimate_ms"]["low"] < predicted["estimate_ms"]["high"]
        assert "uncalibrated" in predicted["estimate_label"]
        assert all("time_predicted" not in other for other in result["rows"] if other is not row)
    assert printed.count("measured 1000.0 µs, modelled ") == 2


@pytest.mark.parametrize("name", chips())
def test_every_gpu_of_the_model_is_found_by_the_drivers_name(name: str) -> None:
    assert list(verb.CHIP_OF.values()).count(name) == 1


def test_a_gpu_is_not_compared_with_the_model_of_another(
    gpu: RecordingCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb.shutil, "which", lambda program: None)
    monkeypatch.setattr(verb, "_bench", lambda *arguments: [])
    assert main(["validate-gpu", "--out", str(tmp_path), *SCALAR, "--gpu", "rtx4090"]) == 0
    (kernel,) = json.loads((tmp_path / "kernels.json").read_text())
    assert kernel["time_predicted"] == {
        "missing": "GeForce RTX 4090 of the cycle model is sm_89 with 128 SMs, this GPU is sm_89 with 58"
    }
    assert main(["validate-gpu", "--out", str(tmp_path), *SCALAR, "--gpu", "l5"]) == 2


def test_a_gpu_that_fails_still_leaves_a_bundle(
    gpu: RecordingCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb.shutil, "which", lambda program: None)
    gpu.fault = driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    assert main(["validate-gpu", "--out", str(tmp_path), *SCALAR, "--bench-shapes", "split_4"]) == 1
    rows = json.loads((tmp_path / "ladder.json").read_text())
    assert {row["status"] for row in rows} == {"LAUNCH_ERROR"}
    assert "ILLEGAL_ADDRESS" in json.loads((tmp_path / "problems.json").read_text())["scalar"]


def test_wrong_results_are_in_the_bundle(
    gpu: RecordingCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any difference of the hardware must be visible: here the results of scalar are wrong."""
    monkeypatch.setattr(verb.shutil, "which", lambda program: None)
    monkeypatch.setattr(verb, "_bench", lambda *arguments: [])
    read = gpu.memory.read

    def flipped(address: int, size: int) -> object:
        data = read(address, size)
        data[-1] ^= 0x20
        return data

    monkeypatch.setattr(gpu.memory, "read", flipped)
    assert main(["validate-gpu", "--out", str(tmp_path), *SCALAR]) == 1
    rows = json.loads((tmp_path / "ladder.json").read_text())
    assert any(row["status"] != "PASSED" for row in rows)
    assert "not all right" in capsys.readouterr().out


def test_ncu_is_read(gpu: RecordingCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ncu"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/answer\n')
    program.chmod(0o755)
    (tmp_path / "answer").write_text(CSV)
    monkeypatch.setattr(verb.shutil, "which", lambda name: str(program))
    monkeypatch.setattr(verb, "_bench", lambda *arguments: [])
    out = tmp_path / "bundle"
    assert main(["validate-gpu", "--out", str(out), *SCALAR]) == 0
    found = json.loads((out / "ncu.json").read_text())["scalar"]
    assert found["launches"] == [
        {
            "kernel": "scalar_attention",
            "gpu__time_duration.sum": 4512,
            "launch__registers_per_thread": 40,
            "smsp__inst_executed.sum": 1234567,
        },
    ]
    asked = (tmp_path / "asked").read_text()
    assert "--page raw --print-units base" in asked and "-m weft.cli.launch_once scalar split_4 f16 none plain" in asked


CSV = """==PROF== Connected to process 1
==WARNING== something
"ID","Kernel Name","gpu__time_duration.sum","launch__registers_per_thread","smsp__inst_executed.sum",\
"dram__bytes_read.sum"
"","","nsecond","register/thread","inst","byte"
"0","scalar_attention","4512","40","1,234,567","n/a"
"""


def test_a_csv_without_a_header_gives_nothing() -> None:
    assert ncu.parse_raw("==ERROR== no permission\n") == []


def test_launch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = RecordingCuda()
    monkeypatch.setattr(launch_once, "require_gpu", recording.device)
    assert launch_once.main(["scalar", "split_4", "f16", "none", "plain"]) == 0
    assert recording.names().count("cuLaunchKernel") == 2  # the second must give the same bits
