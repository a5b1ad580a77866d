import json
from pathlib import Path

import pytest

from weft.cli.main import main

SOURCE = """
#ifndef N
#define N 4
#endif
template <int M> __global__ void k(float* a) {
    __shared__ float row[N * M];
    row[threadIdx.x] = a[0];
    __syncthreads();
    a[1] = row[a[2] > 0];
}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "k.cu"
    file.write_text(SOURCE)
    return str(file)


def test_ptx_goes_to_standard_output_and_the_summary_does_not(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", source, "--entry", "k<2>", "--arch", "sm_80"]) == 0
    shown = capsys.readouterr()
    assert ".target sm_80" in shown.out and ".entry _Z1kILi2EEvPf(" in shown.out
    assert shown.err.splitlines()[-1].startswith(f"{source}: k<2> for sm_80 by nvrtc")


def test_resources_in_a_pipe_are_tab_separated(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", source, "--as", "resources", "--entry", "k<2>", "-D", "N=8", "-D", "TYPO"]) == 0
    shown = capsys.readouterr()
    head, row = (line.split("\t") for line in shown.out.splitlines())
    assert dict(zip(head, row, strict=True))["static_shared_bytes"] == "64"
    assert "no file mentions TYPO" in shown.err


def test_shared_as_json(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", source, "--as", "shared", "--entry", "k<3>", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["shared"]
    assert (row["entry"], row["offset"], row["size_bytes"]) == ("k<3>", 0, 48)


def test_a_compile_error_is_exit_code_2(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(source).write_text("int main() { return 0; }\n")
    assert main(["show", source]) == 2
    assert f"{source}:1" in capsys.readouterr().err


PAIR = "__global__ void one(float* a) { *a = 1; }\n__global__ void two(float* a) { *a = 2; }\n"


@pytest.mark.parametrize(("options", "kernels"), [([], 2), (["--entry", "two"], 1), (["--entry", "_Z3twoPf"], 1)])
def test_llvm_of_all_kernels_or_of_those_named(
    source: str, capsys: pytest.CaptureFixture[str], options: list[str], kernels: int
) -> None:
    Path(source).write_text(PAIR)
    assert main(["show", source, "--as", "llvm", *options]) == 0
    shown = capsys.readouterr().out
    assert shown.count("define i32 @in_step(") == kernels
    assert shown.count("ret i32") >= kernels


def test_llvm_of_a_kernel_that_is_not_there(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(source).write_text(PAIR)
    assert main(["show", source, "--as", "llvm", "--entry", "_Z5threePf"]) == 2
    assert "no kernel _Z5threePf" in capsys.readouterr().err


def test_llvm_of_a_template_needs_an_instance(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", source, "--as", "llvm"]) == 2
    assert "a template needs --entry" in capsys.readouterr().err
    assert main(["show", source, "--as", "llvm", "--entry", "k<2>", "--mode", "ieee"]) == 0


LAUNCHED = """\
// weft: sizes   M=2
// weft: define  N = 8
// weft: inout   a : f32[4] = zeros
// weft: launch  k<{M}>(a) grid(1) block(32)
"""


def test_launch_lines_choose_macros_and_template_arguments(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(source).write_text(LAUNCHED + SOURCE)
    for options, entry, bytes_shared in ([], "k<2>", 64), (["--size", "M=3", "-D", "N=16"], "k<3>", 192):
        assert main(["show", source, "--as", "resources", "--json", *options]) == 0
        (row,) = json.loads(capsys.readouterr().out)["resources"]
        assert (row["entry"], row["static_shared_bytes"]) == (entry, bytes_shared), "N * M floats"
    assert main(["show", source, "--entry", "k<5>", "--as", "shared"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split("\t")[::3] == ["k<5>", "80"], "4 * 5 floats: a named kernel"


def test_a_rung_and_what_is_neither(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "scalar"]) == 0
    assert "scalar_attentionILi64E" in capsys.readouterr().out
    assert main(["show", "gone.cu"]) == 2
    assert "gone.cu is neither a file nor a rung of the ladder: qk_dot, scalar" in capsys.readouterr().err
