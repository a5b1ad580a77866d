"""S310: registers of wgmma that are touched while the product may use them, found in PTX without running it."""

import re
from functools import cache

import pytest

from tests.kernels.triton_kernels import flash_attention
from tests.ptx.harness import check_body
from weft.ptx.parse import parse
from weft.ptx.passes.find_in_flight import InFlight
from weft.ptx.passes.kernel_passes import KernelPasses
from weft.toolchain.triton_aot import compile_triton

HEADER = ".version 8.4\n.target sm_90a\n.address_size 64\n"
REGISTERS = "\n.reg .b32 %d<4>, %e<4>, %a<4>, %x, %i; .reg .b64 %s; .reg .pred %p, %q;"
D, E, A = ("{%x0, %x1, %x2, %x3}".replace("x", name) for name in "dea")
FENCE, COMMIT, TOUCH = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;", "add.u32 %x, %x, %d0;"
LOAD = "ld.shared.b32 %a0, [%x];"


def wait(groups: int) -> str:
    return f"wgmma.wait_group.sync.aligned {groups};"


def product(d: str = D, a: str = "%s") -> str:
    trans = "0" if a.startswith("{") else "0, 0"
    return f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d}, {a}, %s, 1, 1, 1, {trans};"


def tf32(d: str = D) -> str:
    return f"wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {d}, %s, %s, 1, 1, 1;"


def found(lines: list[str], target: str = "sm_90a") -> list[tuple[str, str, bool]]:
    """Return the text of each line that is reported, of the line it refers to, and whether it is too early."""
    text = f"{HEADER.replace('sm_90a', target)}.visible .entry k()\n{{{REGISTERS}\n" + "\n".join([*lines, "ret;", "}"])
    rows = text.split("\n")
    return [(rows[each.line - 1], rows[each.other - 1] if each.other else "", each.early) for each in _find(text)]


def _find(text: str) -> tuple[InFlight, ...]:
    module = parse(text)
    (entry,) = module.entries()
    return KernelPasses(module, module.functions[entry], warps_are_rows=True).in_flight


@pytest.mark.parametrize(
    "lines",
    [
        [FENCE, product(), product(), COMMIT, wait(0), TOUCH],
        [FENCE, product(), COMMIT, product(E), COMMIT, wait(1), TOUCH],
        [FENCE, product(), COMMIT, COMMIT, wait(1), TOUCH],
        [FENCE, product(), COMMIT, wait(0), TOUCH, FENCE, product(), COMMIT, wait(0), TOUCH],
        [LOAD, FENCE, product(D, A), product(E, A), COMMIT, "add.u32 %x, %x, %a0;", wait(0), TOUCH],
        [FENCE, product(), COMMIT, wait(0), product(), COMMIT, wait(0), TOUCH],
        [FENCE, "L:", product(), COMMIT, wait(1), "@%p bra L;", wait(0), TOUCH],
        ["@%p bra L;", FENCE, product(), COMMIT, wait(0), "L:", TOUCH],
        [FENCE, product(), COMMIT, "add.u32 %x, %x, %e0;", "add.u64 %s, %s, 2;", wait(0), TOUCH],
    ],
    ids=[
        "a chain", "two accumulators", "an empty group", "touched and fenced", "A read by two", "waited in between",
        "in flight around a loop", "a branch around it", "other registers and descriptors",
    ],
)  # fmt: skip
def test_right_code_is_silent(lines: list[str]) -> None:
    assert found(lines) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([FENCE, product(), COMMIT, TOUCH, wait(0)], [(TOUCH, product(), True)]),
        ([FENCE, product(), wait(0), TOUCH], [(TOUCH, product(), True)]),
        ([FENCE, product(), COMMIT, product(E), COMMIT, wait(2), TOUCH], [(TOUCH, product(), True)]),
        ([FENCE, product(E), COMMIT, product(), COMMIT, wait(1), TOUCH], [(TOUCH, product(), True)]),
        ([FENCE, product(), COMMIT, "@%q " + wait(0), TOUCH], [(TOUCH, product(), True)]),
        ([FENCE, product(), COMMIT, "@%p bra L;", wait(0), "L:", TOUCH], [(TOUCH, product(), True)]),
        ([FENCE, product(D, A), COMMIT, LOAD, wait(0)], [(LOAD, product(D, A), True)]),
        ([FENCE, product(), product(E, D), COMMIT, wait(0)], [(product(E, D), product(), True)]),
        ([product(), COMMIT, wait(0)], [(product(), "", False)]),
        ([FENCE, product(), COMMIT, wait(0), TOUCH, product(), COMMIT, wait(0)], [(product(), TOUCH, False)]),
        ([FENCE, LOAD, product(D, A), COMMIT, wait(0)], [(product(D, A), LOAD, False)]),
        ([FENCE, "L:", product(), COMMIT, wait(0), TOUCH, "@%p bra L;"], [(product(), TOUCH, False)]),
        ([FENCE, product(), tf32(), COMMIT, wait(0)], [(tf32(), "", False)]),
    ],
    ids=[
        "no wait", "no commit", "a group too many", "the younger of two", "a wait under a guard",
        "a way around the wait", "A overwritten", "D read as A", "no first fence", "no fence after a use",
        "no fence after writing A", "no fence in a loop", "another shape",
    ],
)  # fmt: skip
def test_wrong_code_is_found_at_its_line(lines: list[str], expected: list[tuple[str, str, bool]]) -> None:
    assert found(lines) == expected


def test_a_debug_build_is_not_checked() -> None:
    wrong = [FENCE, product(), COMMIT, TOUCH, wait(0)]
    assert found(wrong) and found(wrong, "sm_90a, debug") == []


def test_both_engines_report_it() -> None:
    body = f"mov.b64 %s, 64; {FENCE} {product('{%d0, %d1, %d2, %d3}')} {COMMIT}"
    scope = ".shared .align 1024 .b8 area[4096];"
    ran = check_body(
        body, {}, {f"d{i}": "b32" for i in range(4)}, declarations=".reg .b64 %s;", module_scope=scope, n=128
    )
    assert {finding.code for finding in ran.findings} == {"S310"}


@cache
def _attention() -> tuple[str, ...]:
    """Return the PTX lines of Triton's attention: a loop with two chains of products."""
    signature = {**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), "*fp16"), "lse_ptr": "*fp32"}
    made = compile_triton(
        flash_attention,
        signature={**signature, "S": "i32", "scale": "fp32"},
        constexprs={"D": 64, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": False},
        arch="sm_90",
        attrs=dict.fromkeys((*signature, "S"), 16),
    )
    return tuple(made.ptx.split("\n"))


def _lines(text: str) -> list[int]:
    return [number for number, line in enumerate(_attention()) if text in line]


def _changed(at: int, line: str) -> tuple[InFlight, ...]:
    return _find("\n".join((*_attention()[:at], line, *_attention()[at + 1 :])))


def test_compiled_code_is_silent() -> None:
    assert len(_lines("wgmma.mma_async")) >= 8
    assert _find("\n".join(_attention())) == ()


def test_every_fence_of_compiled_code_is_needed() -> None:
    fences, products = _lines("wgmma.fence"), _lines("wgmma.mma_async")
    assert len(fences) >= 2
    for at in fences:
        first = _changed(at, "")[0]
        assert first.line == 1 + min(number for number in products if number > at) and not first.early


@pytest.mark.parametrize("instead", ["", "wgmma.wait_group.sync.aligned 1;"], ids=["no wait", "a group too many"])
def test_the_waits_for_scores_and_results_of_compiled_code_are_needed(instead: str) -> None:
    products, waits = _lines("wgmma.mma_async"), _lines("wgmma.wait_group.sync.aligned 0;")
    for at in (waits[0], waits[-1]):
        early = [each for each in _changed(at, instead) if each.line > at]
        chain = [1 + number for number in products if number < at]
        assert early and all(each.early for each in early) and early[0].other == max(chain)
        assert re.search(rf"{re.escape(early[0].register)}\b", _attention()[early[0].line - 1])
