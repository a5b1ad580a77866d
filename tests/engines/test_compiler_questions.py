"""A source that tests which compiler is used gets a note with the line, and is still judged."""

from pathlib import Path

import pytest

from weft.cli.main import main
from weft.engines.compiler_questions import compiler_questions
from weft.kernels.ladder import RUNGS

ASKS = """#if defined(__CUDACC_RTC__)
#define RIGHT 1  // __NVCC__ in a comment
#endif
/* WEFT
   __NVCC__ */
const char* url = "http://x"; int k = __NVCC__;
__global__ void k(float* WEFT_REGION) {}
"""


def test_lines_that_test_the_compiler_are_noted() -> None:
    found = tuple(compiler_questions(ASKS, "k.cu"))
    assert [(each.code, each.place.line) for each in found if each.place] == [("X404", 1), ("X404", 6)]
    assert "__CUDACC_RTC__" in found[0].message and "__NVCC__" in found[1].message


@pytest.mark.parametrize("asks", [True, False])
def test_check_shows_the_note_next_to_a_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str], *, asks: bool) -> None:
    path = tmp_path / "k.cu"
    text = RUNGS["scalar"].path.read_text()
    path.write_text(text + "\n#ifndef __CUDACC_RTC__\nint main() {}\n#endif\n" if asks else text)
    chosen = ["--shapes", "one_token", "--regimes", "unit_normal", "--masks", "none", "--seeds", "1"]
    assert main(["check", str(path), *chosen, "--tool", "racecheck"]) == 0
    assert (f"k.cu:{len(text.splitlines()) + 2}" in capsys.readouterr().out) == asks
