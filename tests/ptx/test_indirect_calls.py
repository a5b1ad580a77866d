"""Calls through registers, on both engines: the functions they can reach are known from the module."""

import struct

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, HEADER, Array, Engine
from weft.core.errors import ParseError
from weft.core.records import Finding
from weft.ptx.parse import parse
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import place_globals
from weft.vm.memory import GlobalMemory

FUNCTIONS = """
.func (.param .b32 r) twice(.param .b32 a)
{ .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, %x; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) square(.param .b32 a)
{ .reg .b32 %x; ld.param.b32 %x, [a]; mul.lo.u32 %x, %x, %x; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) other(.param .b32 a, .param .b32 b)
{ .reg .b32 %x; ld.param.b32 %x, [b]; st.param.b32 [r], %x; ret; }
"""
CALL = """{{ .param .b32 arg; .param .b32 back; st.param.b32 [arg], %t;
   {label}
   {guard} call (back), %f, (arg), {which}; {guard} ld.param.b32 %v, [back]; }}"""
PROTOTYPE = "P: .callprototype (.param .b32 _) _ (.param .b32 _);"


def _kernel(choose: str, call: str) -> str:
    """Each thread chooses a function (%f), calls it with its number (%t), and stores the result (%v)."""
    return f"""{HEADER}.global .u64 table[2] = {{square, twice}};{FUNCTIONS}
    .visible .entry k(.param .u64 out)
    {{ .reg .b32 %t, %v, %b; .reg .b64 %a, %at, %f, %g; .reg .pred %p, %q;
       ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4; add.u64 %a, %a, %at; mov.u32 %v, 7;
       and.b32 %b, %t, 1; setp.ne.u32 %p, %b, 0; setp.lt.u32 %q, %t, 20;
       {choose} {call} st.global.u32 [%a], %v; ret; }}"""


def _run(engine: str, text: str) -> tuple[Array, tuple[Finding, ...]]:
    module = parse(text)
    memory = GlobalMemory(1 << 16)
    globals_at = place_globals(module, memory)
    out = memory.allocate(4 * 64)
    memory.write(out, bytes(4 * 64))
    spec = LaunchSpec("k", (1, 1, 1), (64, 1, 1), struct.pack("<Q", out), max_steps=1 << 20)
    outcome = Engine(engine, module).run(spec, memory, globals_at)
    return memory.read(out, 4 * 64).view(np.uint32), outcome.findings


ALL_ALIKE = "mov.u64 %f, square;"
EACH_ITS_OWN = "mov.u64 %f, twice; mov.u64 %g, square; selp.b64 %f, %f, %g, %p;"
FROM_MEMORY = "mul.wide.u32 %g, %b, 8; mov.u64 %f, table; add.u64 %f, %f, %g; ld.global.u64 %f, [%f];"
THREADS = np.arange(64, dtype=np.uint32)
ODD = THREADS % 2 == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("choose", "expected"),
    [(ALL_ALIKE, THREADS**2), (EACH_ITS_OWN, np.where(ODD, 2 * THREADS, THREADS**2)),
     (FROM_MEMORY, np.where(ODD, 2 * THREADS, THREADS**2))],
    ids=["all alike", "each its own", "from memory"],
)  # fmt: skip
def test_the_function_that_the_register_names_is_called(engine: str, choose: str, expected: Array) -> None:
    for label in (PROTOTYPE, "P: .calltargets twice, square;"):
        out, findings = _run(engine, _kernel(choose, CALL.format(label=label, guard="", which="P")))
        assert not findings
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_under_a_guard(engine: str) -> None:
    out, findings = _run(engine, _kernel(EACH_ITS_OWN, CALL.format(label=PROTOTYPE, guard="@%q", which="P")))
    assert not findings
    called = np.where(ODD, 2 * THREADS, THREADS**2)
    np.testing.assert_array_equal(out, np.where(THREADS < 20, called, 7))


@pytest.mark.parametrize("engine", ENGINES)
def test_two_calls_on_one_line(engine: str) -> None:
    call = CALL.format(label=PROTOTYPE, guard="", which="P").replace("\n", " ")
    again = call.replace("[arg], %t", "[arg], %v")
    out, findings = _run(engine, _kernel(EACH_ITS_OWN, f"{call} {again}"))
    assert not findings
    np.testing.assert_array_equal(out, np.where(ODD, 4 * THREADS, THREADS**4))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("choose", ["mov.u64 %f, 64;", "mov.u64 %g, square; mov.u64 %f, other;"])
def test_a_pointer_to_no_such_function_stops_the_launch(engine: str, choose: str) -> None:
    out, findings = _run(engine, _kernel(choose, CALL.format(label=PROTOTYPE, guard="", which="P")))
    assert findings and not out.any()


def test_an_address_of_code_is_no_address_of_data() -> None:
    for engine in ENGINES:
        _, findings = _run(engine, _kernel("mov.u64 %f, square;", "ld.global.u32 %v, [%f];"))
        assert {finding.code for finding in findings} == {"M104"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_call_that_no_function_fits_stops_the_launch_where_it_is_reached(engine: str) -> None:
    none = "P: .callprototype (.param .b64 _) _ (.param .b32 _);"
    call = CALL.format(label=none, guard="@%q", which="P")
    out, findings = _run(engine, _kernel(ALL_ALIKE, call))
    assert {finding.code for finding in findings} == {"X401"} and not out.any()
    assert "the address of no function of this module" in findings[0].message
    out, findings = _run(engine, _kernel(f"{ALL_ALIKE} setp.gt.u32 %q, %t, 64;", call))
    assert not findings, "no thread calls"
    assert (out == 7).all()


@pytest.mark.parametrize(
    "call",
    [
        CALL.format(label="", guard="", which="P"),
        CALL.format(label=PROTOTYPE, guard="", which="Q"),
        CALL.format(label=PROTOTYPE, guard="", which="P").replace("%f", "%t"),
        CALL.format(label=PROTOTYPE, guard="", which="P").replace(", P;", ";"),
        CALL.format(label=PROTOTYPE, guard="", which="P").replace("%f", "twice"),
    ],
    ids=["no prototype", "another label", "32 bits", "no label", "a name with a prototype"],
)
def test_calls_that_are_not_ptx(call: str) -> None:
    with pytest.raises(ParseError):
        parse(_kernel(ALL_ALIKE, call))
