"""`weft run`: what it prints, its JSON and its exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import main

SOURCE = """\
// weft: sizes   N=8
// weft: define  STEP = 2
// weft: in      x : f32[N] = arange
// weft: out     y : f32[N]
// weft: launch  twice(x, y, N)  grid(1) block(32)
__global__ void twice(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i == 0) printf("%d elements\\n", n);
    if (i < n) y[i] = STEP * x[i];
}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = Path("k.cu")
    file.write_text(SOURCE)
    return file


def test_a_clean_run(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "k.cu"]) == 0
    shown = capsys.readouterr()
    printed, head, row, inputs, digests, defines, ran, last = shown.out.splitlines()
    assert printed == "8 elements"
    assert head.split("\t") == ["output", "type", "shape", "min", "max", "mean", "NaN"]
    assert row.split("\t") == ["y", "f32", "8", "0", "14", "7", "0"]
    assert digests.startswith("source ") and " · PTX " in digests
    assert inputs == "inputs x: arange"
    assert defines == "defines STEP=2"
    not_looked = "uninitialised reads and races not checked: --tool all"
    assert ran.startswith(f"k.cu: no errors; {not_looked} · 1 launch, ") and ran.endswith(
        " warp instructions, sm_89 hardware"
    )
    assert last == "ERROR SUMMARY: 0 errors, 0 warnings"
    assert shown.err == ""


def test_sizes_macros_mode_and_schedule(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--size", "N=4", "-D", "STEP=3", "-D", "TYPO", "--mode", "ieee", "--threads", "1", "--schedule", "5"]
    assert main(["run", "k.cu", *options, "--seed", "3", "--arch", "sm_80"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 elements"
    assert lines[2].split("\t")[2:6] == ["4", "0", "9", "4.5"]
    assert lines[-3] == "defines STEP=3 TYPO=1 (unused)"
    assert lines[-2].endswith("sm_80 ieee")


def test_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "k.cu", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["clean"] is True and record["findings"] == [] and record["printed"] == "8 elements\n"
    assert record["entries"] == ["twice"] and record["defines"] == {"STEP": "2"}
    assert record["outputs"] == [
        {"name": "y", "type": "f32", "shape": [8], "min": 0, "max": 14, "mean": 7, "nan_count": 0}
    ]
    assert len(record["source_digest"]) == len(record["ptx_digest"]) == 64 and record["instructions"] > 0


@pytest.mark.parametrize(
    ("tool", "verdict"),
    [
        ("all", "clean"),
        ("initcheck,racecheck", "clean"),
        ("racecheck", "no errors; uninitialised reads not checked: --tool initcheck"),
        ("initcheck", "no errors; races not checked: --tool racecheck"),
        ("memcheck", "no errors; uninitialised reads and races not checked: --tool all"),
    ],
)
def test_clean_is_printed_only_after_every_checker(
    source: Path, capsys: pytest.CaptureFixture[str], tool: str, verdict: str
) -> None:
    assert main(["run", "k.cu", "--tool", tool]) == 0
    assert capsys.readouterr().out.splitlines()[-2].startswith(f"k.cu: {verdict} · ")


def test_the_origin_of_inputs_is_printed(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (
        "// weft: in a, b : f32[N] = normal\n// weft: in c : i32[N] = uniform(0, N)\n// weft: in d : f32[N] = ones\n"
    )
    source.write_text(lines + SOURCE)
    np.save("x.npy", np.arange(8, dtype=np.float32))
    assert main(["run", "k.cu", "--seed", "3", "--input", "x=x.npy"]) == 0
    (said,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("inputs "))
    assert said == "inputs a, b: random (normal, seed 3) · c: random (uniform(0, N), seed 3) · d: ones · x: x.npy"
    assert main(["run", "k.cu", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["inputs"][0] == {"name": "a", "from": "random (normal, seed 0)"}
    assert (record["checkers"], record["not_checked"]) == (["memcheck", "synccheck"], ["initcheck", "racecheck"])


def test_an_array_of_another_type_than_its_parameter_is_refused(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.write_text(
        "#include <cuda_fp16.h>\n" + SOURCE.replace("const float* x", "const half* x").replace("x[i]", "float(x[i])")
    )
    assert main(["run", "k.cu"]) == 2
    message = (
        "k.cu:6: x is declared f32; parameter 1 of twice is `const __half*`: declare x as f16, or change the kernel"
    )
    assert message in capsys.readouterr().err


def test_json_of_nan_and_infinity_is_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(SOURCE.replace("if (i < n) y", "if (i < 2) y").replace("STEP * x[i]", "1 / (x[i] - 1)"))
    assert main(["run", "k.cu", "--json"]) == 0

    def refuse(name: str) -> None:
        raise AssertionError(name)

    (output,) = json.loads(capsys.readouterr().out, parse_constant=refuse)["outputs"]
    assert (output["min"], output["max"], output["nan_count"]) == (-1, "inf", 6)


def test_a_failed_assertion_is_exit_code_1(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(SOURCE.replace("if (i < n) y", "assert(i != 5);\n    if (i < n) y"))
    assert main(["run", "k.cu"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (finding,) = (line for line in lines if line.startswith("X402"))
    assert "assertion failed: i != 5 · k.cu:9 · CTA (0, 0, 0) warp 0 lane 5" in finding
    assert lines[0] == "8 elements" and lines[-2].startswith("k.cu: 1 finding · ")
    assert lines[-1] == "ERROR SUMMARY: 1 error, 0 warnings"


def test_an_access_out_of_bounds_in_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(SOURCE.replace("y[i] = STEP", "y[i << 24] = STEP"))
    assert main(["run", "k.cu", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    (finding,) = record["findings"]
    assert (finding["code"], finding["file"], finding["line"]) == ("M101", "k.cu", 9)
    assert finding["lanes"] == 0b11111110 and record["clean"] is False
    assert record["outputs"][0]["nan_count"] == 7


def test_a_compile_error_has_file_and_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(SOURCE.replace("STEP * x[i]", "STEP * z[i]"))
    assert main(["run", "k.cu"]) == 2
    shown = capsys.readouterr()
    first, *_, last = shown.err.splitlines()
    assert first == 'k.cu:9: error: identifier "z" is undefined'
    assert last.startswith("weft: k.cu does not compile for sm_89") and shown.out == ""


def test_a_warning_of_the_compiler_goes_to_standard_error(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(SOURCE.replace("if (i == 0) printf", "int spare = n;\n    if (i == 0) printf"))
    assert main(["run", "k.cu", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("k.cu:8: warning: ") and "spare" in shown.err
    assert json.loads(shown.out)["clean"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gone.cu"], "weft: gone.cu is neither a file nor a rung"),
        (["k.cu", "--size", "M=3"], "weft: 'M' is not a size of this kernel; it has N"),
        (["k.cu", "--size", "N"], "weft: --size N: give it as NAME=NUMBER, such as S=1024"),
        (["k.cu", "--input", "x"], "weft: --input x: give it as NAME=FILE.npy"),
        (["k.cu", "--input", "x=gone.npy"], "weft: cannot read gone.npy"),
        (["k.cu", "--save", "z=z.npy"], "weft: --save z: not an array of this kernel; it has x, y"),
        (["k.cu", "--arch", "sm_1"], "weft: unknown architecture 'sm_1'"),
        (["k.cu", "--mode", "fast"], "fast"),
        (
            ["k.cu", "--tool", "init"],
            "weft: there is no tool 'init' (did you mean initcheck?); the tools are memcheck, initcheck, racecheck",
        ),
    ],
)
def test_wrong_usage(source: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    assert main(["run", *args]) == 2
    assert message in capsys.readouterr().err


def test_a_rung_runs_with_its_own_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "scalar", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["clean"]
    assert main(["run", "scaler"]) == 2
    assert "scaler is neither a file nor a rung of the ladder (did you mean scalar?)" in capsys.readouterr().err


def test_arrays_from_and_to_files(source: Path) -> None:
    np.save("x.npy", np.array([5, 6, 7], np.float32))
    assert main(["run", "k.cu", "--input", "x=x.npy", "--save", "y=y.npy", "--save", "x=copy.npy"]) == 0
    assert np.load("y.npy").tolist() == [10, 12, 14]
    assert np.load("copy.npy").tolist() == [5, 6, 7]


def test_small_floats_survive_a_file(source: Path) -> None:
    """NumPy writes a bfloat16 array as bytes without a type; the launch line gives the type back."""
    text = SOURCE.replace("f32", "bf16").replace("float*", "__nv_bfloat16*")
    text = text.replace("STEP * x[i]", "__float2bfloat16(STEP * __bfloat162float(x[i]))")
    source.write_text("#include <cuda_bf16.h>\n" + text)
    assert main(["run", "k.cu", "--save", "y=y.npy"]) == 0
    assert main(["run", "k.cu", "--input", "x=y.npy", "--save", "y=twice.npy"]) == 0
    bits = np.load("twice.npy").view(np.uint16).astype(np.uint32) << 16
    assert bits.view(np.float32).tolist() == [4 * i for i in range(8)]


def test_unsupported_is_exit_code_3(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = 'asm volatile("{ .reg .pred p; isspacep.shared::cluster p, %0; }" ::"l"(x)); y[i] = STEP'
    source.write_text(SOURCE.replace("y[i] = STEP", code))
    assert main(["run", "k.cu", "--arch", "sm_90"]) == 3
    assert "unsupported" in capsys.readouterr().err


def test_a_file_without_lines_shows_a_draft(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text("\n".join(line for line in SOURCE.splitlines() if "weft:" not in line).replace("STEP", "2"))
    assert main(["run", "k.cu"]) == 2
    *draft, last = capsys.readouterr().err.splitlines()
    assert all(line.startswith("// weft: ") for line in draft)
    assert any("launch    twice(x, y, n)" in line for line in draft)
    assert last.startswith("weft: k.cu has no `// weft: launch` line; the lines above are a draft to put at its head")
    assert last.endswith("(docs/tutorials/own_kernel.md)")


def test_a_pipe_gets_plain_text_whatever_the_colours(source: Path) -> None:
    environment = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", "k.cu"], capture_output=True, text=True, check=True, env=environment
    )
    assert "\x1b" not in done.stdout + done.stderr and "compiling" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-2].startswith("k.cu: no errors")


RACE = """\
// weft: out     y : i32[64]
// weft: launch  turn(y) grid(1) block(64)
__global__ void turn(int* y) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x;
    BARRIER;
    y[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def test_watching_for_races(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "turn.cu"
    file.write_text(RACE)
    options = ["run", str(file), "--tool", "racecheck,initcheck", "--tool", "wavefronts"]
    assert main([*options, "-D", "BARRIER=__syncthreads()"]) == 0
    assert "vm__shared_accesses 4 · vm__shared_wavefronts 4 · vm__shared_wavefronts_ideal 4" in capsys.readouterr().out
    assert main([*options, "-D", "BARRIER="]) == 1
    findings = [line for line in capsys.readouterr().out.splitlines() if line[0] in "IR" and line[1:4].isdigit()]
    assert findings and all("turn.cu:" in line for line in findings)
    assert any(line.startswith("R10") for line in findings)
