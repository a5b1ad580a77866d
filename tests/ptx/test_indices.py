"""Index arithmetic followed in two versions: which wraps count, which rounds are skipped, what is found."""

import pytest

from weft.ptx.indices.find_overflows import ArrayPlace, IndexLaunch, Overflow, find_overflows, index_steps
from weft.ptx.indices.numbers import Difference
from weft.ptx.parse import parse

BASE = 1 << 44
HEAD = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
"""
STORE = """\
    add.s64 %rd3, %rd1, %rd2;
    st.global.f32 [%rd3], 0f00000000;
"""


def overflows(body: str, *, n: int, size_bytes: int = 1 << 40) -> tuple[Overflow, ...]:
    module = parse(HEAD + body + "    ret;\n}\n")
    launch = IndexLaunch(
        (64, 1, 1),
        (1, 1, 1),
        BASE.to_bytes(8, "little") + n.to_bytes(4, "little"),
        (ArrayPlace("x", BASE, size_bytes),),
    )
    return find_overflows(module.functions["k"], index_steps(module, "k"), launch)


@pytest.mark.parametrize(
    ("arithmetic", "is_found"),
    [
        ("mul.lo.s32 %r3, %r2, %r1; mul.wide.s32 %rd2, %r3, 4;", True),
        ("mul.wide.s32 %rd2, %r2, %r1; shl.b64 %rd2, %rd2, 2;", False),
        ("mul.lo.s32 %r3, %r2, %r1; cvt.u64.u32 %rd2, %r3;", False),  # 63 · 2^26 fits unsigned
        ("mul.lo.s32 %r3, %r2, %r1; shl.b32 %r3, %r3, 2; cvt.u64.u32 %rd2, %r3;", True),
        ("mad.lo.s32 %r3, %r2, %r1, %r1; sub.s32 %r3, %r3, %r1; cvt.u64.u32 %rd2, %r3;", False),
        ("mul.lo.s32 %r3, %r2, %r1; sub.s32 %r4, %r3, %r3; cvt.s64.s32 %rd2, %r4;", False),
        ("mul.lo.s32 %r3, %r2, %r1; div.u32 %r4, %r3, 64; mul.wide.u32 %rd2, %r4, 4;", False),
        ("mul.lo.s32 %r3, %r2, %r1; shl.b32 %r3, %r3, 1; div.u32 %r4, %r3, 64; mul.wide.u32 %rd2, %r4, 4;", True),
        ("mul.lo.s32 %r3, %r2, 0x100000; bfi.b32 %r4, %r3, %r2, 6, 26; mul.wide.s32 %rd2, %r4, 4;", True),
        ("bfi.b32 %r4, %r2, %r1, 6, 26; mul.wide.s32 %rd2, %r4, 4;", False),
        ("bfi.b32 %r4, -1, %r2, 6, 2; mul.wide.s32 %rd2, %r4, 4;", False),
        ("mul.lo.s32 %r3, %r2, %r1; lop3.b32 %r4, %r3, %r2, 0, 0xFC; mul.wide.s32 %rd2, %r4, 4;", True),  # a | b
        ("mul.lo.s32 %r3, %r2, %r1; lop3.b32 %r4, %r3, 15, %r2, 0xC0; mul.wide.s32 %rd2, %r4, 4;", False),  # a & b
        ("shl.b32 %r3, %r2, 27; shr.s32 %r4, %r3, 31; and.b32 %r4, %r4, 64; cvt.s64.s32 %rd2, %r4;", False),
        ("add.s32 %r3, %r2, -63; sub.s32 %r4, %r3, 1; and.b32 %r4, %r4, 15; cvt.u64.u32 %rd2, %r4;", False),
        ("sub.s32 %r3, %r2, %r1; max.u32 %r4, %r3, -128; neg.s32 %r5, %r4; cvt.s64.s32 %rd2, %r5;", False),  # 128
        ("mul.lo.s32 %r3, %r2, %r1; max.s32 %r4, %r3, 5; mul.wide.s32 %rd2, %r4, 4;", True),
        ("mul.lo.s32 %r3, %r2, %r1; min.u32 %r4, %r3, 5; mul.wide.u32 %rd2, %r4, 4;", False),
    ],
)
def test_a_wrap_counts_only_where_it_reaches_the_address(arithmetic: str, is_found: bool) -> None:
    lines = "".join(f"    {part.strip()};\n" for part in arithmetic.split(";") if part.strip())
    assert bool(overflows(lines + STORE, n=1 << 26)) == is_found


LOOP = """\
    mov.u32 %r3, 0;
    mov.u32 %r5, 0;
$loop:
    mul.wide.s32 %rd2, %r3, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.f32 [%rd3], 0f00000000;
    add.s32 %r3, %r3, STEP;
    add.s32 %r5, %r5, 1;
    setp.lt.s32 %p1, %r5, %r1;
    @%p1 bra $loop;
"""


@pytest.mark.parametrize(
    ("step", "rounds", "is_found"), [(4096, 1 << 19, False), (4096, (1 << 19) + 1, True), (1, 5, False)]
)
def test_a_long_loop_is_seen_at_its_end(step: int, rounds: int, is_found: bool) -> None:
    """The last index is step · (rounds - 1): 4096 · 2^19 is the first that does not fit."""
    found = overflows(LOOP.replace("STEP", str(step)), n=rounds)
    assert [overflow.value for overflow in found] == ([1 << 31] if is_found else [])


def test_addresses_outside_every_array_were_guarded() -> None:
    arithmetic = "    mul.lo.s32 %r3, %r2, %r1;\n    mul.wide.s32 %rd2, %r3, 4;\n"
    assert overflows(arithmetic + STORE, n=1 << 26, size_bytes=1 << 32) == ()


def test_a_loop_that_waits_for_data_ends() -> None:
    waits = "$wait:\n    ld.global.u32 %r6, [%rd1];\n    setp.ne.s32 %p2, %r6, 0;\n    @%p2 bra $wait;\n"
    arithmetic = "    mul.lo.s32 %r3, %r2, %r1;\n    mul.wide.s32 %rd2, %r3, 4;\n"
    (found,) = overflows(waits + arithmetic + STORE, n=1 << 26)
    assert found.value == 63 << 26 and found.array == "x" and found.cta == (63, 0, 0)


@pytest.mark.parametrize(
    ("cmp", "before", "now", "rounds"),
    [
        ("lt", -10, -8, 4),  # -6, -4, -2, 0
        ("lt", -10, -9, 9),
        ("lt", -8, -10, None),  # never
        ("gt", 10, 7, 3),  # 4, 1, -2
        ("ne", 10, 8, 4),
        ("ne", 9, 7, None),  # 5, 3, 1, -1: never equal
        ("eq", 0, 0, None),
        ("ge", 5, 5, None),
    ],
)
def test_when_a_comparison_changes(cmp: str, before: int, now: int, rounds: int | None) -> None:
    assert Difference(cmp, now).steps_to_flip(Difference(cmp, before)) == rounds
