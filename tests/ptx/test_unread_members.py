"""Vector loads whose last members nothing reads (`discard_unread`): compilers widen loads beyond an array's end."""

from typing import Any

import numpy as np
import pytest

import weft
from tests.ptx.harness import HEADER, Array, Ran, check_body
from weft.core.records import Binary, Run
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.probes import InitCheck, Probes, RaceCheck
from weft.ptx.module import Discard, Instruction, Reg, Vec
from weft.ptx.parse import parse

SHARED = ".shared .align 16 .b8 seven[28];"
FILL = """
mov.u64 %base, seven;
mov.u32 %i, 0;
LOOP: cvt.u64.u32 %at, %i; shl.b64 %at, %at, 2; add.u64 %at, %at, %base;
add.u32 %d, %i, 100; st.shared.b32 [%at], %d;
add.u32 %i, %i, 1; setp.lt.u32 %more, %i, 7;
@%more bra LOOP;
bar.sync 0;
"""
REGISTERS = ".reg .b64 %base, %at; .reg .b32 %i, %w<4>; .reg .pred %more;"


def sum_of(members: int, offset: int, *, generic: bool) -> Ran:
    """Load four elements at `offset` of an array of seven, and return the sum of the first `members`."""
    convert = "cvta.shared.u64 %base, %base;" if generic else ""
    adds = " ".join(f"add.u32 %d, %d, %w{k};" for k in range(members))
    load = f"ld{'' if generic else '.shared'}.v4.b32 {{%w0, %w1, %w2, %w3}}, [%base+{offset}];"
    body = f"{FILL}\n{convert}\n{load}\nmov.u32 %d, 0; {adds}"
    return check_body(body, {}, {"d": "u32"}, declarations=REGISTERS, module_scope=SHARED, n=32, block=32)


@pytest.mark.parametrize("generic", [False, True], ids=["shared", "generic"])
def test_only_members_that_are_read_must_be_in_the_array(generic: bool) -> None:
    ran = sum_of(3, 16, generic=generic)
    assert ran.findings == () and ran.outputs["d"].tolist() == [104 + 105 + 106] * 32
    assert {f.code for f in sum_of(4, 16, generic=generic).findings} == {"M101"}
    assert {f.code for f in sum_of(3, 32, generic=generic).findings} == {"M101"}


@pytest.mark.parametrize("generic", [False, True], ids=["shared", "generic"])
def test_the_address_must_be_that_of_a_whole_vector(generic: bool) -> None:
    """Three members at byte 4 are in the array, but no GPU loads four from there."""
    assert {f.code for f in sum_of(3, 4, generic=generic).findings} == {"M102"}


COPY = """
.visible .entry copy(.param .u64 x, .param .u64 y) {
  .reg .b32 %t, %w<4>; .reg .b64 %x, %y, %at;
  ld.param.u64 %x, [x]; ld.param.u64 %y, [y];
  mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 16; add.u64 %x, %x, %at; add.u64 %y, %y, %at;
  ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [%x];
  st.global.b32 [%y], %w0; st.global.b32 [%y+4], %w1; st.global.b32 [%y+8], %w2;
  ret;
}
"""


def copy(x: Array, y: Array, threads: int, **options: Any) -> Run:
    binary = Binary("copy.ptx", "sm_89", "by hand", (), ptx_digest="copy", ptx=HEADER + COPY)
    launch = Launch(binary, "copy", 1, threads, [x, y], names=["x", "y"])
    return weft.VirtualGPU(threads=1).run([launch], RunOptions(watch=Probes(InitCheck(), RaceCheck()), **options))


@pytest.mark.parametrize("threads", [32, 33], ids=["a row", "a part of a warp"])
def test_the_last_vector_of_a_buffer_may_lack_what_nothing_reads(threads: int) -> None:
    x, y = np.arange(4 * threads - 1, dtype=np.uint32), np.zeros(4 * threads, np.uint32)
    assert copy(x, y, threads).findings == ()
    expected = np.arange(4 * threads, dtype=np.uint32)
    expected[3::4] = 0
    np.testing.assert_array_equal(y, expected)
    short = copy(x[:-1], y, threads)  # the third member of the last thread is missing
    assert [(f.code, f.name, f.warp, f.lanes) for f in short.findings] == [("M101", "x", *_place(threads - 1))]


def _place(thread: int) -> tuple[int, int]:
    """Return warp and lanes."""
    return thread // 32, 1 << thread % 32


def test_the_checkers_see_the_members_that_are_read() -> None:
    """A vector of which the buffer has three members."""
    x = np.arange(3, dtype=np.uint32)
    (unset,) = copy(x, np.zeros(4, np.uint32), 1, uninitialised=(x,)).findings
    assert (unset.code, unset.name, unset.lanes) == ("I202", "x", 1)


def test_members_are_discarded_from_the_end_only() -> None:
    text = HEADER + """
.visible .entry k(.param .u64 x) {
  .reg .b32 %a, %b, %c, %d; .reg .b64 %x; .reg .pred %p;
  ld.param.u64 %x, [x]; setp.eq.u64 %p, %x, 0;
  @%p ld.global.v4.b32 {%a, %b, %c, %d}, [%x];
  ld.volatile.global.v2.b32 {%b, %c}, [%x];
  st.global.b32 [%x], %b;
  ret;
}
"""  # fmt: skip
    body = parse(text).functions["k"].body
    targets = [item.operand("d") for item in body if isinstance(item, Instruction) and item.has("vec")]
    assert targets == [Vec((Reg("%a"), Reg("%b"), Discard(), Discard())), Vec((Reg("%b"), Reg("%c")))]
