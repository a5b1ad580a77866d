"""`// weft: option`: compiler options in the file, and what -default-device allows NVRTC to read."""

from pathlib import Path

import numpy as np
import pytest

from weft.core.errors import CompileError, UsageError
from weft.engines.kernel_file import load
from weft.engines.launch_lines import options_of, parse_lines
from weft.engines.virtual import VirtualGPU

WITH_HOST_CODE = """\
// weft: sizes   N=8
// weft: out     y : f32[N]
// weft: option  -default-device
// weft: launch  fill(y) grid(1) block(N)
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

__host__ std::string named(int number) {
    std::ostringstream text;
    text << "number " << number << std::endl;
    std::cerr << text.str();
    return text.str();
}

inline int largest(const std::vector<int>& all) {
    static thread_local int last = 0;
    for (int each : all) last = each > last ? each : last;
    return last;
}

template <typename F>
cudaError_t launch(F kernel, float* y) {
    if (y == nullptr) return cudaErrorInvalidValue;
    void* arguments[] = {&y};
    return cudaLaunchKernel((void*)kernel, dim3(1), dim3(8), arguments, 0, nullptr);
}

constexpr int twice(int value) { return 2 * value; }

__global__ void fill(float* y) { y[threadIdx.x] = twice(threadIdx.x); }
"""


def test_options_are_read_in_order() -> None:
    lines = parse_lines("// weft: option -default-device -std=c++20\n// weft: option --use_fast_math\n", "k.cu")
    assert lines.options == ("-default-device", "-std=c++20", "--use_fast_math")


@pytest.mark.parametrize("line", ["option", "option default-device"])
def test_an_invalid_option_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(UsageError, match=r"k\.cu:2: .*-default-device"):
        parse_lines(f"\n// weft: {line}\n", "k.cu")


def test_an_option_that_has_a_dedicated_flag_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(WITH_HOST_CODE.replace("-default-device", "-DX=1"))
    with pytest.raises(UsageError, match="'-DX=1': use defines instead"):
        load(file).compile()


def test_host_code_of_headers_parses_and_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(WITH_HOST_CODE)
    assert options_of(file) == ("-default-device",)
    run, arrays = load(file).run(VirtualGPU())
    assert run.clean
    np.testing.assert_array_equal(arrays["y"], 2.0 * np.arange(8))
    file.write_text(WITH_HOST_CODE.replace("// weft: option  -default-device\n", ""))
    with pytest.raises(CompileError, match="a host-only header"):
        load(file).compile()
