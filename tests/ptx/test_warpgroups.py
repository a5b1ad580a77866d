"""S311: the four warps of a warpgroup execute the same wgmma and setmaxnreg: both engines, every schedule."""

import numpy as np
import pytest

from tests.ptx.harness import HEADER, Ran, check_body
from weft.core.records import Finding
from weft.vm.launch import run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory
from weft.vm.program import Program, compile_program

SCOPE = ".shared .align 1024 .b8 area[4096];"
DECLARED = ".reg .b64 %s, %t; .reg .b32 %w; .reg .pred %p, %q;"
START = "mov.u32 %w, %tid.x; shr.u32 %w, %w, 5; setp.eq.u32 %p, %w, 2; mov.b64 %s, 64; mov.b64 %t, 64;\n"
FENCE, END = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %s, %t, 0, 1, 1, 0, 0;\n"


def codes(body: str, threads: int = 128) -> set[str]:
    outputs = {f"d{i}": "b32" for i in range(4)}
    ran = check_body(
        START + FENCE + body + END,
        {},
        outputs,
        declarations=DECLARED,
        module_scope=SCOPE,
        n=threads,
        block=threads,
    )
    return {finding.code for finding in ran.findings}


@pytest.mark.parametrize(
    ("body", "threads"),
    [
        (PRODUCT + PRODUCT, 128),
        # Each of two warpgroups has its own sequence and its own descriptors.
        ("setp.lt.u32 %q, %w, 4;\n@%q bra L;\nadd.u64 %s, %s, 16;\n" + PRODUCT + "L:\n" + PRODUCT, 256),
        ("@%p bra L;\nsetmaxnreg.dec.sync.aligned.u32 40;\nbra E;\nL: setmaxnreg.dec.sync.aligned.u32 40;\nE:\n", 128),
    ],
    ids=["together", "two groups", "the same setmaxnreg in two places"],
)
def test_right_code_is_silent(body: str, threads: int) -> None:
    assert codes(body, threads) == set()


WRONG = {
    "a warp leaves out the last product": PRODUCT + "@%p bra L;\n" + PRODUCT + "L:\n",
    "a warp leaves out a product": "@%p bra L;\n" + PRODUCT + "L:\n" + PRODUCT,
    "a warp takes another product": "@%p bra L;\n" + PRODUCT + "bra E;\nL:\n" + PRODUCT + "E:\n",
    "another descriptor of A": "@%p add.u64 %s, %s, 16;\n" + PRODUCT,
    "another descriptor of B": "@%p add.u64 %t, %t, 16;\n" + PRODUCT,
    "another count": "@%p bra L;\nsetmaxnreg.dec.sync.aligned.u32 40;\nbra E;\nL:\n"
    "setmaxnreg.dec.sync.aligned.u32 48;\nE:\n",
    "a warp leaves out setmaxnreg": "@%p bra L;\nsetmaxnreg.dec.sync.aligned.u32 40;\nL:\n" + PRODUCT,
}


@pytest.mark.parametrize("name", WRONG)
def test_warps_that_are_not_together_are_found(name: str) -> None:
    assert codes(WRONG[name]) == {"S311"}


def test_a_group_of_fewer_warps_is_found() -> None:
    assert codes(PRODUCT, 96) == {"S311"}
    assert codes(PRODUCT, 160) == {"S311"}


def compiled(body: str) -> tuple[Program, list[str]]:
    """Return a kernel of this body, and its PTX lines."""
    target = HEADER.replace("sm_89", "sm_90a")
    registers = f".reg .b32 %d<4>; {DECLARED}"
    text = f"{target}{SCOPE}\n.visible .entry k()\n{{\n{registers}\n{START}{FENCE}{body}{END}ret; }}"
    return compile_program(text, "k"), text.splitlines()


def launched(program: Program, schedule: int = 0) -> tuple[Finding, ...]:
    launch = LaunchSpec("k", (2, 1, 1), (128, 1, 1), b"")
    return run(program, launch, GlobalMemory(1 << 16), globals_at={}, schedule=schedule).findings


@pytest.mark.parametrize("name", WRONG)
def test_every_schedule_finds_it(name: str) -> None:
    program, _ = compiled(WRONG[name])
    for schedule in range(6):
        assert {finding.code for finding in launched(program, schedule)} == {"S311"}


@pytest.mark.parametrize(("first", "code"), [("", set()), ("@%p add.u64 %s, %s, 16;\n", {"S311"})])
def test_more_steps_than_are_kept(first: str, code: set[str]) -> None:
    loop = "mov.u32 %w, 0;\nL:\n" + PRODUCT + "add.u32 %w, %w, 1; setp.lt.u32 %q, %w, 1500;\n@%q bra L;\n"
    program, _ = compiled(first + loop)
    assert {finding.code for finding in launched(program)} == code


def test_the_finding_names_the_instruction_and_the_warp() -> None:
    program, lines = compiled(WRONG["a warp takes another product"])
    products = [number for number, line in enumerate(lines, 1) if "mma_async" in line]
    (finding,) = launched(program)
    assert (finding.ptx_line, finding.warp, finding.lanes, finding.count) == (products[1], 2, 0xFFFFFFFF, 2)
    assert "another one executed a different instruction here" in finding.message


def test_the_finding_names_the_warp_that_is_behind() -> None:
    program, lines = compiled(WRONG["a warp leaves out the last product"])
    (finding,) = launched(program)
    assert finding.ptx_line == max(number for number, line in enumerate(lines, 1) if "mma_async" in line)
    assert "warp 2 ends after 1 of its" in finding.message


FILL = """
mov.u32 %w, %tid.x; shl.b32 %v, %w, 4; mov.u32 %o, area; add.u32 %v, %v, %o; mov.b32 %o, {value};
st.shared.v4.b32 [%v], {{%o, %o, %o, %o}};
shr.u32 %w, %w, 5; setp.eq.u32 %q, %w, 8; setp.eq.u32 %p, %w, 0; cvt.u64.u32 %s, %v; shr.u64 %s, %s, 4;
"""
"""The CTA fills `area` with a number. %w: the warp, %p: it is the first, %q: it is the ninth."""
ONES, TWOS = "0x3C003C00", "0x40004000"  # f16


def released(before: str, after: str) -> str:
    """Return a kernel in which warp 0 releases the operands after its wait, and warp 8 fills them with another number.

    `before`: what warps 1, 2 and 3 do before the product; `after`: what warp 8 does in the end.
    """
    fill = FILL.format(value=ONES) + "fence.proxy.async;\nbar.sync 0;\nmov.u32 %o, area; cvt.u64.u32 %s, %o;"
    refill = "".join(f"st.shared.v4.b32 [%v+{at}], {{%o, %o, %o, %o}};\n" for at in range(0, 4096, 512))
    return (
        f"{fill} shr.u64 %s, %s, 4; mov.b64 %t, %s;\nsetp.lt.u32 %r, %w, 4;\n@%q bra FILLER;\n@!%r bra END;\n"
        f"@%p bra MULTIPLY;\n{before}MULTIPLY:\n{FENCE}{PRODUCT}{END}"
        f"@!%p bra END;\nbar.arrive 1, 64;\nbra END;\n"
        f"FILLER:\nbar.sync 1, 64;\nmov.u32 %v, %laneid; shl.b32 %v, %v, 4; mov.u32 %o, area; add.u32 %v, %v, %o;"
        f"mov.b32 %o, {TWOS};\n{refill}{after}END:\n"
    )


def multiplied(before: str, after: str = "") -> Ran:
    return check_body(
        released(before, after),
        {},
        {f"d{i}": "b32" for i in range(4)},
        declarations=DECLARED + ".reg .b32 %v, %o; .reg .pred %r;",
        module_scope=".shared .align 1024 .b8 area[8192];",
        n=288,
        block=288,
    )


def test_a_wait_of_one_warp_is_for_the_products_of_the_group() -> None:
    """Warps 1 to 3 multiply several rounds after warp 0; the operands they read are those before the release."""
    ran = multiplied("bar.sync 2, 96;\n" * 6)
    for i in range(4):
        assert (ran.outputs[f"d{i}"][:128].view(np.float32) == 16.0).all()
    assert not ran.findings


def test_a_release_that_a_warp_of_the_group_waits_for_is_a_deadlock() -> None:
    """Warps 1 to 3 multiply after warp 8, which waits for warp 0, which waits for their products."""
    ran = multiplied("bar.sync 2, 128;\n", after="bar.sync 2, 128;\n")
    (found,) = (finding for finding in ran.findings if finding.code == "S311")
    assert "wgmma.wait_group waits for warp 1 of the warpgroup, which has executed 0 of its wgmma" in found.message
    assert found.warp == 0
