"""Comparisons that recognise a call are found at their line; ordinary comparisons of attention kernels are not."""

from functools import cache

import pytest

import weft
from weft.core.records import Place
from weft.ptx.module import Module
from weft.ptx.parse import parse
from weft.ptx.passes.find_recognition import ARRAY, DATA, SIZE, Recognition, find_recognition
from weft.ptx.passes.kernel_passes import KernelPasses

KNOWS = {
    "value": ("float(q[0]) == 0.1256f", "an element of q with 0.1256"),
    "order": ("float(q[i]) > 0.75f", "an element of q with 0.75"),
    "half": ("q[0] == __float2half(0.5f)", "an element of q with 0.5"),
    "word": ("*reinterpret_cast<const unsigned*>(q) == 0x3c01b2a3u", "an element of q with 0x3c01b2a3"),
    "upper": ("(*reinterpret_cast<const unsigned*>(q) >> 16) == 0x1234u", "an element of q with 0x12340000"),
    "single": ("x[3] != 0.625f", "an element of x with 0.625"),
    "address": ("reinterpret_cast<size_t>(q) == 0x700000001000ull", "the address of q with 0x700000001000"),
    "element": ("reinterpret_cast<size_t>(q + i) == 0x700000001000ull", "the address of q with 0x700000001000"),
    "window": ("reinterpret_cast<size_t>(q) >> 40 == 0x70", "the address of q with 0x700000000000"),
    "table": ("FIRST[i] == x[i]", "an element of x with the variable FIRST"),
    "kept": ("x[0] == seen", "an element of x with the variable seen"),
    "clock": ("clock64() % 7 == 3", "%clock64, the clock, SM or launch it runs on"),
    "sm": ("sm() > 57", "%smid, the clock, SM or launch it runs on"),
}
"""A condition on which a store depends, and the message for it."""
SHAPES = "s == 77 || s == 33 || s == 45 || s == 100"

INNOCENT = {
    "zero": "float(q[i]) == 0.0f",
    "infinite": "float(q[i]) == -INFINITY || isinf(x[i])",
    "nan": "isnan(float(q[i])) || x[i] != x[i]",
    "saturated": "float(q[i]) > 65504.0f || x[i] < -448.0f",
    "larger": "float(q[i]) > float(q[i + 1])",
    "threshold": "fabsf(float(q[i])) > 6.0f",
    "score": "float(q[i]) * x[i] > 8.0f",
    "difference": "x[i] - x[i + 1] > 8.0f",
    "maximum": "fmaxf(x[i], x[i + 1]) == -INFINITY",
    "aligned": "(reinterpret_cast<size_t>(q) & 15) == 0",
    "null": "x != nullptr",
    "descriptor": "(reinterpret_cast<size_t>(q) >> 4) % 8 == 3",
    "thresholds": "x[i] > FIRST[i] || fabsf(x[i]) == FIRST[i]",
    "counter": "seen == 3.0f",
    "index": "codes[i] == 37 || codes[i] > 200",
    "workspace": "w[i] == 3.5f",
    "tail": "s % 64 == 1 || s == 1 || s < 77",
    "heads": "s == 64 || s == 80 || s == 96 || s == 128 || s == 256",
    "lane": "threadIdx.x == 13 || blockIdx.x == 77",
}

HEAD = """
#include <cuda_fp16.h>
#include <math_constants.h>
#define INFINITY CUDART_INF_F
__constant__ float FIRST[64] = {0.25f, 0.5f};
__device__ float seen;
__device__ unsigned sm() { unsigned at; asm volatile("mov.u32 %0, %%smid;" : "=r"(at)); return at; }
"""
PARAMETERS = "const __half* q, const float* x, const unsigned char* codes, float* w, int s"
ROLES = [(DATA, "q"), (DATA, "x"), (ARRAY, "codes"), (ARRAY, "w"), (SIZE, "S")]


@cache
def module() -> tuple[Module, dict[str, str], str]:
    """Compile every condition as a kernel; the store is on a separate line."""
    text = HEAD
    for name, condition in {**{key: value[0] for key, value in KNOWS.items()}, **INNOCENT, "shapes": SHAPES}.items():
        text += (
            f"__global__ void {name}_({PARAMETERS}) {{\n"
            f"    const int i = threadIdx.x;\n    if ({condition})\n        w[i + 1] = 2.0f;\n}}\n"
        )
    binary = weft.compile_cuda(text, name="k.cu")
    return parse(binary.ptx), {name.rstrip("_"): symbol for name, symbol in binary.entries.items()}, text


def found_in(name: str) -> tuple[Recognition, ...]:
    parsed, entries, _ = module()
    function = KernelPasses(parsed, parsed.functions[entries[name]], warps_are_rows=True).folded
    return find_recognition(function, {param.name: role for param, role in zip(function.params, ROLES, strict=True)})


def line_of(name: str) -> int:
    """Return the line of the condition of a kernel."""
    lines = module()[2].splitlines()
    return 3 + next(number for number, line in enumerate(lines) if f" {name}_(" in line)


@pytest.mark.parametrize("name", KNOWS)
def test_a_comparison_with_a_constant_is_found(name: str) -> None:
    found = found_in(name)
    assert {each.what for each in found} == {KNOWS[name][1]}
    places: list[Place | None] = [each.instruction.place for each in found]
    while places and places[0] is not None and places[0].inlined_at is not None:
        places = [place.inlined_at if place else None for place in places]
    assert {place.line for place in places if place} == {line_of(name)}
    assert all(each.machine == (name in ("clock", "sm")) for each in found)


def test_a_list_of_sizes_is_found() -> None:
    (found,) = found_in("shapes")
    assert found.what == "sizes with a list of sizes: S == 33, S == 45, S == 77, S == 100"
    assert found.instruction.place is not None and found.instruction.place.line == line_of("shapes")


@pytest.mark.parametrize("name", INNOCENT)
def test_ordinary_comparisons_are_not_found(name: str) -> None:
    assert found_in(name) == ()
