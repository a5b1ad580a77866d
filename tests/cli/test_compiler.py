"""`--compiler nvcc` of run, check and show."""

import shutil
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.toolchain import nvcc

SOURCE = """\
// weft: sizes   N=8
// weft: out     y : f32[N]
// weft: launch  fill<{N}>(y) grid(1) block(N)
#include <vector>
template <int N> __global__ void fill(float* y) { y[threadIdx.x] = N; }
int main() { return int(std::vector<int>(3).size()); }
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "fill.cu"
    file.write_text(SOURCE)
    return str(file)


@pytest.mark.parametrize("verb", ["run", "show"])
def test_without_nvcc_the_message_says_what_to_do(
    verb: str, source: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvcc._tool.cache_clear()
    monkeypatch.setattr(nvcc, "_places", list)
    assert main([verb, source, "--compiler", "nvcc"]) != 0
    assert "install the CUDA toolkit, or omit --compiler nvcc" in capsys.readouterr().err


@pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is optional: the product and its CI do without a CUDA toolkit"
)
def test_a_file_with_host_code_runs_and_is_shown(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    for compiler in ("nvrtc", "nvcc"):
        assert main(["run", source, "--compiler", compiler]) == 0
        assert "y\tf32\t8\t8\t8\t8\t0" in capsys.readouterr().out
    assert main(["show", source, "--compiler", "nvcc", "--entry", "fill<4>"]) == 0
    assert "by nvcc " in capsys.readouterr().err
