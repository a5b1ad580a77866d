"""Plain loads of the value that a compare-and-swap expects (`relax_guesses`), as CUDA's guide builds atomics."""

import numpy as np
import pytest

import weft
from tests.ptx.harness import HEADER
from weft.core.records import Binary, Finding
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.probes import Probes, RaceCheck
from weft.ptx.isa.memory import GUESS
from weft.ptx.module import Instruction
from weft.ptx.parse import parse
from weft.ptx.passes.build_cfg import build_cfg
from weft.ptx.passes.find_waits import waits_for_others

KERNEL = """
.visible .entry add(.param .u64 p) {
  .reg .b32 %t; .reg .b64 %p, %old, %found, %new; .reg .pred %again, %first;
  ld.param.u64 %p, [p]; mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0;
  BEFORE
  LOAD
AGAIN:
  add.u64 %new, %old, 1;
  atom.global.cas.b64 %found, [%p], EXPECTED, %new;
  setp.ne.u64 %again, %found, %old;
  mov.u64 %old, %found;
  @%again bra AGAIN;
  ret;
}
"""


def kernel(before: str = "", load: str = "ld.global.b64 %old, [%p];", expected: str = "%old") -> str:
    return HEADER + KERNEL.replace("BEFORE", before).replace("LOAD", load).replace("EXPECTED", expected)


def races(text: str) -> tuple[int, set[str]]:
    """Return the sum of 4 × 64 threads and the codes of findings."""
    binary = Binary("add.ptx", "sm_89", "by hand", (), ptx_digest=str(hash(text)), ptx=text)
    p = np.zeros(2, np.uint64)
    launch = Launch(binary, "add", 4, 64, [p], names=["p"])
    run = weft.VirtualGPU(threads=1).run([launch], RunOptions(watch=Probes(RaceCheck()), max_steps=100_000))
    found: tuple[Finding, ...] = run.findings
    return int(p[0]), {finding.code for finding in found}


@pytest.mark.parametrize("load", ["ld.global.b64 %old, [%p];", "ld.global.b64 { %old }, [ %p + 0 ];"])
def test_the_first_value_of_a_retried_exchange_races_with_no_atomic(load: str) -> None:
    assert races(kernel(load=load)) == (256, set())


def test_a_plain_store_still_races_with_it() -> None:
    assert races(kernel(before="@%first st.global.b64 [%p], 0;"))[1] >= {"R102"}


def test_a_load_from_another_address_is_no_guess() -> None:
    """It reads the word that the exchange writes, too: 8 bytes behind `%q`, which the address hides."""
    text = kernel(before=".reg .b64 %q; sub.u64 %q, %p, 8;", load="ld.global.b64 %old, [%q+8];")
    assert "R102" in races(text)[1]


@pytest.mark.parametrize(("expected", "guessed"), [("%old", True), ("0", False)])
def test_only_a_value_that_is_compared_is_a_guess(expected: str, guessed: bool) -> None:
    function = parse(kernel(expected=expected)).functions["add"]
    loads = [item for item in function.body if isinstance(item, Instruction) and item.opcode == "ld.global.b64"]
    assert [load.form is GUESS for load in loads] == [guessed]
    assert waits_for_others(build_cfg(function)) is not guessed  # an exchange of a 0 is a lock
