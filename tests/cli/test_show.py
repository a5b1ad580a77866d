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
