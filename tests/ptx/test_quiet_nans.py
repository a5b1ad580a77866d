"""Minimum and maximum of numbers that are never signalling NaNs: which registers hold such, and the same results."""

import re
from itertools import product

import numpy as np
import pytest

from tests.ptx.harness import HEADER, check_body
from weft.ptx.parse import parse
from weft.ptx.passes.kernel_passes import KernelPasses
from weft.vm import jit
from weft.vm.program import RANGES, llvm_text

SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.5, float("inf"), float("-inf"), float("nan"), 1e-42, -1e-42, 3e38]
SIGNALLING = np.array([0x7F800001, 0xFFA00000, 0x7FC00001, 0xFFFFFFFF], np.uint32).view(np.float32)
VALUES = np.concatenate([np.array(SPECIAL, np.float32), SIGNALLING])


def quiet(body: str) -> frozenset[str]:
    registers = ".reg .f32 %f<20>; .reg .b32 %r<20>; .reg .b64 %a; .reg .b16 %h; .reg .f64 %d; .reg .pred %p;"
    text = f"{HEADER}.visible .entry k() {{ {registers} ld.global.f32 %f0, [%a]; add.f32 %f1, %f0, %f0; {body} ret; }}"
    module = parse(text)
    found = KernelPasses(module, module.functions["k"], warps_are_rows=True).quiet_nans
    return found.intersection(re.findall("%f[1-9]|%r1", body))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mul.f32 %f2, %f0, %f0;", {"%f2"}),
        ("mul.f32 %f2, %f0, 0f3E000000; mul.f32 %f3, %f0, 0f3F800000; add.f32 %f4, %f0, 0f80000000;", {"%f2"}),
        ("mov.f32 %f2, 0f3F800000; mul.f32 %f3, %f0, %f2; fma.rn.f32 %f4, %f0, %f0, %f2;", {"%f2"}),
        ("mov.f32 %f2, 0f3F800000; mul.f32 %f3, %f1, %f2;", {"%f1", "%f2", "%f3"}),
        ("mov.f32 %f2, 0f40000000; mul.f32 %f2, %f2, 0f3F000000; mul.f32 %f3, %f0, %f2;", {"%f2"}),
        ("@%p ld.global.f32 %f2, [%a]; mul.f32 %f3, %f0, %f2;", set()),
        ("max.f32 %f2, %f1, %f1; max.f32 %f3, %f0, %f1;", {"%f1", "%f2"}),
        ("neg.f32 %f2, %f1; abs.f32 %f3, %f0;", {"%f1", "%f2"}),
        ("shfl.sync.bfly.b32 %r1, %f1, 1, 31, -1; max.f32 %f2, %r1, %f1;", {"%r1", "%f1", "%f2"}),
        ("mov.f32 %f2, 0fFF800000; mov.f32 %f2, %f1;", {"%f1", "%f2"}),
        ("mov.f32 %f2, 0f7F800001;", set()),
        ("mov.b32 %r1, %f1; add.s32 %r1, %r1, 1; max.f32 %f2, %r1, %f1;", {"%f1"}),
        ("cvt.f32.f16 %f2, %h; cvt.f32.bf16 %f3, %h; cvt.f64.f32 %d, %f0; cvt.rn.f32.f64 %f4, %d;", {"%f2"}),
        ("L: max.f32 %f2, %f3, %f1; mov.f32 %f3, %f2; @%p bra L;", {"%f1", "%f2", "%f3"}),
        ("L: max.f32 %f2, %f3, %f1; mov.f32 %f3, %f2; @%p mov.f32 %f3, %f0; @%p bra L;", {"%f1"}),
        ("selp.f32 %f2, %f1, %f0, %p; selp.f32 %f3, %f1, %f1, %p;", {"%f3", "%f1"}),
        ("mov.b32 {%h, _}, %f1; copysign.f32 %f3, %f0, %f1;", {"%f1"}),
    ],
)
def test_which_registers_are_never_signalling(body: str, expected: set[str]) -> None:
    assert quiet(body) == expected


@pytest.mark.parametrize("opcode", ["min.f32", "max.f32", "min.ftz.f32", "max.xorsign.abs.f32", "max.NaN.f32"])
@pytest.mark.parametrize("made_quiet", [True, False])
def test_every_pair_of_special_numbers(opcode: str, made_quiet: bool) -> None:
    pairs = np.array(list(product(VALUES.view(np.uint32), repeat=2)), np.uint32)
    x, y = (np.resize(column, 256).copy().view(np.float32) for column in pairs.T)
    prepare = (
        "mul.f32 %u, %x, 0f3F800000; mul.f32 %v, %y, 0f3F800000;" if made_quiet else "mov.f32 %u, %x; mov.f32 %v, %y;"
    )
    body = f"{prepare} {opcode} %d, %u, %v; {opcode} %e, %d, %u;"
    check_body(body, {"x": ("f32", x), "y": ("f32", y)}, {"d": "f32", "e": "f32"}, declarations=".reg .f32 %u, %v;")


def test_one_instruction_gives_the_larger_number_where_the_cpu_has_it() -> None:
    text = (
        f"{HEADER}.visible .entry k(.param .u64 out) {{ .reg .f32 %f<4>; .reg .b32 %t; .reg .b64 %o;"
        " ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; cvt.rn.f32.u32 %f1, %t; max.f32 %f2, %f1, 0f40000000;"
        " st.global.f32 [%o], %f2; ret; }"
    )
    assert ("range.ps" in llvm_text(text, "k")) == (RANGES in jit.host()[1])
