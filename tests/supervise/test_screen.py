"""Only device source and launch lines: anything else is refused before it is compiled."""

from pathlib import Path
from typing import Any

import pytest

from weft.core.status import Status
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.kernels.ladder import RUNGS
from weft.supervise.records import CandidateSource, Request
from weft.supervise.screen import Rejected, screen, screen_options, without_allows
from weft.supervise.supervisor import Supervisor
from weft.tasks.registry import TASKS
from weft.toolchain.cuda import compile_cuda

REFUSED = [
    '#include "/etc/passwd"',
    "#include </etc/passwd>",
    '#include "../secret.h"',
    "#include <a/../../secret.h>",
    '#include "~/secret.h"',
    '#include "a\\\\b.h"',
    "#include SECRET",
    '  #  include\t"/etc/passwd"',
    '#/* */include/**/"/etc/passwd"',
    '# /* two\nlines */ include "/etc/passwd"',
    '#inc\\\nlude "/etc/passwd"',
    '#include \\\n"/etc/passwd"',
    '%:include "/etc/passwd"',
    '%:%: \n??=include "/etc/passwd"',
    '/* */ #include "/etc/passwd"',
    'const char* s = "/*";\n#include "/etc/passwd"\nconst char* e = "*/";',
    '#include_next "/etc/passwd"',
    '#import "/etc/passwd"',
    '#embed "/etc/passwd"',
    '#if __has_include("/etc/passwd")\n#endif',
    "#if __has_include(SECRET)\n#endif",
    '#line 7 "another_file.cu"',
]


@pytest.mark.parametrize("text", REFUSED)
def test_files_of_the_host_cannot_be_included(text: str) -> None:
    with pytest.raises(Rejected):
        screen(f"__global__ void k() {{}}\n{text}\n", "cuda")


@pytest.mark.parametrize(
    "text",
    [
        "#include <cuda_fp16.h>",
        '#include "mma.h"',
        "#include <cuda/std/type_traits>",
        "# include <cooperative_groups/memcpy_async.h>  // a remark",
        "#if __has_include(<mma.h>)\n#endif",
        "#pragma unroll",
        "#define INCLUDE 1",
        "// tile #3 of line 7; weft: allow R102 why",
    ],
)
def test_headers_of_cuda_can_be_included(text: str) -> None:
    screen(text, "cuda")


def test_anything_but_device_source_is_refused() -> None:
    for text, language, why in (
        ("import triton", "triton", "Python"),
        ("fn main() {}", "rust", "`cuda` or `ptx`"),
        ("a\0b", "cuda", "zero byte"),
        ("\ud800", "cuda", "not text"),
        ("x" * (5 << 20), "cuda", "at most"),
    ):
        with pytest.raises(Rejected, match=why):
            screen(text, language)


def test_options_of_the_compiler_are_few() -> None:
    screen_options(("-default-device", "-std=c++20", "--use_fast_math", "-maxrregcount=64"))
    for option in ("-I/etc", "--pre-include=/etc/passwd", "-opt-info=inline", "-dlto", "--time=/tmp/x", "-std=c++14"):
        with pytest.raises(Rejected, match="may not set"):
            screen_options((option,))


def test_allow_lines_become_plain_comments_in_place() -> None:
    allows = "a; // weft: allow R102 why\n  //weft :allow I201 x\n# WEFT: Allow R101 y\n"
    text = f"{allows}// weft: launch k() grid(1) block(1)\n"
    plain = without_allows(text)
    assert len(plain) == len(text)
    assert plain.count("\n") == text.count("\n")
    assert "weft: launch" in plain
    assert ":" not in plain.replace("weft: launch", "")


pytestmark = pytest.mark.usefixtures("no_strays")

RACE = (
    "    float m = -CUDART_INF_F",
    "    __shared__ float raced[32 * WARPS];\n    raced[threadIdx.x] = q_lane[0];EXCUSE\n"
    "    if (raced[(threadIdx.x + 32) % (32 * WARPS)] == 12345.678f) return;EXCUSE\n    float m = -CUDART_INF_F",
)
EXCUSES = "  // weft: allow {} trust me"


def test_a_candidate_cannot_allow_its_own_races(supervisor: Supervisor, request_of: Any, tmp_path: Path) -> None:
    plain = supervisor.evaluate(request_of((RACE[0], RACE[1].replace("EXCUSE", ""))))
    assert plain.status is Status.UNSAFE, plain.message
    assert plain.failure is not None
    codes = sorted({finding.code for finding in plain.failure.findings})
    assert any(code.startswith("R") for code in codes)
    excused = request_of((RACE[0], RACE[1].replace("EXCUSE", EXCUSES.format(codes[-1]))))
    path = tmp_path / "kernel.cu"
    path.write_text(excused.source.text)
    here = check(Candidate(path), TASKS["sdpa"], plain.failure.workload)
    assert {each.finding.code for each in here.suppressed} == {codes[-1]}  # in a user's file it may be allowed
    found = supervisor.evaluate(excused)
    assert found.status is Status.UNSAFE, found.message
    assert found.failure is not None
    assert codes[-1] in {finding.code for finding in found.failure.findings}


def test_the_supervisor_refuses_tricks(supervisor: Supervisor, request_of: Any) -> None:
    include = supervisor.evaluate(request_of(("#include <assert.h>", '#include <assert.h>\n#include "/etc/passwd"')))
    assert include.status is Status.REJECTED
    assert "/etc/passwd" in include.message
    option = supervisor.evaluate(
        request_of(("// weft: scalar  scale", "// weft: option --pre-include=/etc/passwd\n// weft: scalar  scale"))
    )
    assert option.status in (Status.REJECTED, Status.LAUNCH_ERROR)
    triton = supervisor.evaluate(Request(CandidateSource("import os\nos.abort()\n", "triton"), score=None))
    assert triton.status is Status.REJECTED
    other = supervisor.evaluate(request_of(("// weft: in      q    :", "// weft: in      query :")))
    assert other.status is Status.LAUNCH_ERROR


def test_ptx_is_a_candidate_and_cannot_allow_findings_by_another_file(
    supervisor: Supervisor, request_of: Any, tmp_path: Path
) -> None:
    """The files that a PTX names in `.file` may have allow lines at the right places: they have no effect."""
    text = request_of((RACE[0], RACE[1].replace("EXCUSE", EXCUSES.format("R102")))).source.text
    excuse = tmp_path / "excuse.cu"
    excuse.write_text(text)
    defines = {"ELEMENT": "half", "CAUSAL": "0", "WARPS": "4"}
    binary = compile_cuda(excuse, defines=defines, entries=["scalar_attention<64>"])
    assert str(excuse) in binary.ptx
    lines = [line for line in text.splitlines() if line.startswith("// weft:")]
    launch = "\n".join(lines).replace("ELEMENT[", "f16[").replace("scalar_attention<{D}>", "scalar_attention<64>")
    source = CandidateSource(binary.ptx, "ptx", launch)
    found = supervisor.evaluate(Request(source, choice=request_of().choice, score=None, debug_build=False))
    assert found.status is Status.UNSAFE, found.message
    assert found.failure is not None
    assert any(finding.code == "R102" for finding in found.failure.findings), found.message
    right = compile_cuda(RUNGS["scalar"].path, defines=defines, entries=["scalar_attention<64>"])
    passed = supervisor.evaluate(
        Request(CandidateSource(right.ptx, "ptx", launch), choice=request_of().choice, score=None, debug_build=False)
    )
    assert passed.status is Status.PASSED, passed.message
