"""`weft diagnose` as a user sees it."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.diagnose.edited import line_of, write
from weft.attention.quantise import SimFp8
from weft.attention.regimes import make
from weft.attention.shapes import Shape
from weft.cli.main import main

SMALL = ["--shape", "small", "--regime", "unit_normal", "--mask", "none"]


def test_wrong_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "fa1", "p[r][n] * scale :", "p[r][n] * scale * scale :")
    picture = tmp_path / "error.png"
    assert main(["diagnose", str(file), *SMALL, "--png", str(picture)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{file}:") and "INCORRECT_NUMERICAL" in lines[0]
    rows = {line[:15].strip(): line[15:] for line in lines if line.startswith("  ") and line[2] != " "}
    assert "SQ=32 SKV=32 D=32" in rows["case"] and "shrunk from small" in rows["case"]
    assert rows["first wrong"].startswith("scores of KV tile 0 (keys 0-31)")
    assert "products (KV tile 0)" in rows["right"]
    keys, expected, actual = (rows[name].split() for name in ("key, row 0", "expected", "actual"))
    assert keys == [f"{key}*" for key in range(8)]
    # 1/sqrt(32) once too often.
    for wrong, right in zip(map(float, actual), map(float, expected), strict=True):
        assert wrong == pytest.approx(right / 32**0.5, rel=1e-3)
    assert re.fullmatch(r"scale_twice, explains (100|99\.\d) % of the error", rows["known as"])
    assert rows["verify"].startswith(f"weft check {file} --task sdpa --shapes small --masks none")
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("rung", "old", "new", "stage", "signature"),
    [
        ("fa_triton", "v, u * rescale[:, None])", "v, u)", "u", "missing_rescale"),
        ("pipelined", "u[d][2 * i] *= rescale;", ";", "u", "partial_rescale"),
    ],
)
def test_kernels_that_keep_everything_in_registers(
    rung: str, old: str, new: str, stage: str, signature: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Triton and mma.sync: no stage is ever in memory."""
    file = write(tmp_path, rung, old, new)
    assert (
        main(["diagnose", str(file), "--shape", "split_128", "--regime", "unit_normal", "--mask", "none", "--json"])
        == 1
    )
    found = json.loads(capsys.readouterr().out)
    assert found["stage"] == stage and found["first"]["tile"] == 1
    assert found["signatures"][0]["name"] == signature
    changed = line_of(file, new if len(new) > 1 else "u[d][2 * i + 1] *= rescale;")
    assert found["place"]["line"] == changed


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "scalar", "u[i] = u[i] * rescale + p", "u[i] = u[i] + p")
    assert main(["diagnose", str(file), *SMALL, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["stage"], found["healthy"]) == ("INCORRECT_NUMERICAL", "u", False)
    assert found["failed_first"]["shape"]["name"] == "small" and found["workload"]["shape"]["name"] == "shrunk"
    place = found["first"]["place"]
    assert (place["file"], place["line"]) == (str(file), line_of(file, "u[i] = u[i] + p"))
    assert found["first"]["tile"] >= 1 and len(found["first"]["expected_row"]) == found["workload"]["shape"]["d"]
    known = found["signatures"][0]
    assert known["name"] == "missing_rescale" and 0.99 < known["explained"] <= 1
    assert [each["rank"] for each in found["signatures"]] == sorted(
        (each["rank"] for each in found["signatures"]), reverse=True
    )
    assert found["verify"].startswith("weft check ")


def test_nothing_to_diagnose(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "fa1", *SMALL]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "nothing to diagnose: 1 workloads passed" in line
    assert main(["diagnose", "fa1", *SMALL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["healthy"] is True


def test_nothing_to_diagnose_in_triton(capsys: pytest.CaptureFixture[str]) -> None:
    """Triton has no -G build: a kernel that passes everything else is right."""
    assert main(["diagnose", "fa_triton", *SMALL]) == 0
    assert "nothing to diagnose: 1 workloads passed" in capsys.readouterr().out


def test_a_kernel_that_passes_shows_its_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """31 lanes update a sum in place where one should: they write the same value as long as they run in lockstep."""
    file = write(tmp_path, "wmma", "if (lane == 0) {", "if (lane != 0) {")
    work = ["--shapes", "small", "--regimes", "unit_normal", "--masks", "none", "--dtypes", "f16"]
    assert main(["diagnose", str(file), *work]) == 0
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert "nothing to diagnose" in first and first.endswith("with warnings")
    line = line_of(file, "sL[row] = sL[row] * rescale + row_sum")
    assert second.split()[:3] == ["warning", "R103", "warning:"] and f"{file.name}:{line}" in second and not rest


def test_unsupported_is_neither_right_nor_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = 'm = m_new; asm volatile("discard.global.L2 [%0], 128;" ::"l"(k));'
    file = write(tmp_path, "scalar", "m = m_new;", unknown)
    assert main(["diagnose", str(file), *SMALL]) == 3
    assert "UNSUPPORTED" in capsys.readouterr().out


def test_a_launch_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "fa1", "(BLOCK_M + BLOCK_N) * (D + 1 - D % 2) * 4) opt_in_shared", "110000) opt_in_shared")
    assert main(["diagnose", str(file), *SMALL]) == 1
    assert "RESOURCE_ERROR" in capsys.readouterr().out.splitlines()[0]


def test_given_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel decodes correctly what the quantiser got wrong: every stage is right, but the quantised gate fails."""
    q, k, v = make("unit_normal", Shape("own", 1, 1, 1, 4, 12, 16), "f32", 0)
    arrays = {"q": q, "k": k, "v": v + np.float32(1)}
    for name, x in (("q", q), ("k", k), ("v", v)):
        arrays[f"{name}_code"], arrays[f"{name}_scale"] = SimFp8().encode(x)
    options = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    assert main(["diagnose", "fp8_scalar", *options, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "INCORRECT_NUMERICAL" and found["first"] is None
    assert {"q", "o", "lse"} <= set(found["proven_right"])
    assert main(["diagnose", "fp8_scalar", *options[2:]]) == 2
    assert "needs all of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rung", "task"), [("paged_decode", ""), ("paged_decode_fp8", ""), ("pipelined", "sliding_window")]
)
def test_given_arrays_are_for_dense_attention(
    rung: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "q.npy", np.zeros((1, 1, 1, 16), np.float16))
    assert main(["diagnose", rung, *(("--task", task) if task else ()), "--input", f"q={tmp_path}/q.npy"]) == 2
    assert f"not for task {task or rung}: leave it out, and name a workload" in capsys.readouterr().err


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["diagnose", "no_such_kernel.cu"]) == 2
    assert "neither a file nor a rung" in capsys.readouterr().err
    assert main(["diagnose", "fa1", "--shape", "no_such_shape"]) == 2
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["diagnose", "fa1", *SMALL, "--png", str(tmp_path / "x.png")]) == 2
    assert "pip install 'weft-gpu[figures]'" in capsys.readouterr().err
