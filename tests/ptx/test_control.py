"""Branches, calls, exits, traps, special registers, and device printf and assert, on every engine."""

import struct

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, HEADER, Engine, check_body
from weft.core.errors import LaunchError, Unsupported, WeftError
from weft.ptx.parse import parse
from weft.vm.launch_spec import DeviceRun, LaunchSpec
from weft.vm.layout import lay_out, place_globals
from weft.vm.memory import GlobalMemory
from weft.vm.printf import format_device
from weft.vm.reference import interpreter

N = 1024
OPCODES = [
    "bra",
    "bra.uni",
    "brx.idx",
    "brx.idx.uni",
    "call",
    "call.uni",
    "ret",
    "ret.uni",
    "exit",
    "brkpt",
    "trap",
    "nanosleep.u32",
    "pmevent",
    "griddepcontrol.launch_dependents",
    "griddepcontrol.wait",
    "setmaxnreg.inc.sync.aligned.u32",  # run by test_small_forms_of_sm_90.py
]
PREDICATES = ".reg .pred %p, %q, %r;"


def _run(
    text: str, engine: str, *, block: int = 32, grid: int = 1, params: bytes = b"", max_steps: int = 1 << 20
) -> DeviceRun:
    module = parse(HEADER + text)
    memory = GlobalMemory(1 << 16)
    globals_at = place_globals(module, memory)
    spec = LaunchSpec(module.entries()[0], (grid, 1, 1), (block, 1, 1), params.ljust(8, b"\0"), max_steps=max_steps)
    return Engine(engine, module).run(spec, memory, globals_at)


@pytest.mark.parametrize("bra", ["bra", "bra.uni"])
def test_loop_with_the_same_trip_count_everywhere(bra: str) -> None:
    body = (
        f"mov.u32 %t0, 0; mov.u32 %d, 0; L: add.u32 %d, %d, 3; add.u32 %t0, %t0, 1; "
        f"setp.lt.u32 %p, %t0, 5; @%p {bra} L;"
    )
    ran = check_body(body, {}, {"d": "b32"}, declarations=PREDICATES, n=N)
    assert (ran.outputs["d"] == 15).all()


def test_nested_divergence_and_loops_with_their_own_trip_counts() -> None:
    """d = Σ_{i < lane mod 7} (i odd ? i : 100), computed by hand in Python."""
    body = """mov.u32 %d, 0; mov.u32 %t0, 0; rem.u32 %t1, %tid, 7;
      HEAD: setp.ge.u32 %p, %t0, %t1;
      @%p bra END;
      and.b32 %t2, %t0, 1; setp.ne.u32 %q, %t2, 0;
      @%q bra ODD;
      add.u32 %d, %d, 100;
      bra NEXT;
      ODD: add.u32 %d, %d, %t0;
      NEXT: add.u32 %t0, %t0, 1;
      bra HEAD;
      END:"""
    ran = check_body(body, {}, {"d": "b32"}, declarations=PREDICATES, n=N)
    expected = [sum(i if i % 2 else 100 for i in range(thread % 7)) for thread in range(N)]
    assert ran.outputs["d"].tolist() == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("index", "lanes"), [("mov.u32 %r, %tid.x;", 0xFFFFFFFC), ("mov.u32 %r, 9;", 0xFFFFFFFF)])
def test_a_branch_index_beyond_its_table_ends_the_launch(engine: str, index: str, lanes: int) -> None:
    text = (
        f".visible .entry k() {{ .reg .b32 %r;\n {index}\n brx.idx %r, table;\n"
        " table: .branchtargets A, B;\n A: ret;\n B: ret; }"
    )
    (finding,) = _run(text, engine).findings
    assert (finding.code, finding.lanes) == ("X403", lanes)


@pytest.mark.parametrize("opcode", ["brx.idx", "brx.idx.uni"])
def test_brx_idx(opcode: str) -> None:
    """Per lane for brx.idx; the same target in the entire warp for .uni."""
    index = "and.b32 %t0, %tid, 3;" if opcode == "brx.idx" else "shr.u32 %t0, %tid, 5; and.b32 %t0, %t0, 3;"
    body = f"""{index}
      table: .branchtargets A, B, C, A;
      {opcode} %t0, table;
      A: mov.u32 %d, 10; bra END;
      B: mov.u32 %d, 20; bra END;
      C: mov.u32 %d, 30;
      END:"""
    ran = check_body(body, {}, {"d": "b32"}, n=N)
    chosen = np.arange(N) % 4 if opcode == "brx.idx" else np.arange(N) // 32 % 4
    np.testing.assert_array_equal(ran.outputs["d"], np.array([10, 20, 30, 10])[chosen])


FUNCTIONS = """
.func (.param .b32 out) twice_plus (.param .b32 a, .param .b64 b)
{
  .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p;
  ld.param.b32 %r0, [a]; ld.param.b64 %rd0, [b]; cvt.u32.u64 %r1, %rd0;
  setp.eq.u32 %p, %r1, 0;
  @%p bra ZERO;
  shl.b32 %r2, %r0, 1; add.u32 %r2, %r2, %r1;
  st.param.b32 [out], %r2;
  ret.uni;
  ZERO: st.param.b32 [out], 0;
  ret;
}
"""


@pytest.mark.parametrize("call", ["call", "call.uni"])
def test_call_of_a_function(call: str) -> None:
    guard = "and.b32 %t1, %tid, 1; setp.eq.u32 %p, %t1, 0;"
    body = f"""{guard}
      mov.b32 %d, 5; and.b32 %t2, %tid, 3; cvt.u64.u32 %wide, %t2;
      {"@%p bra SKIP;" if call == "call" else ""}
      {{ .param .b32 a0; .param .b64 a1; .param .b32 r0;
        st.param.b32 [a0], %tid; st.param.b64 [a1], %wide;
        {call} (r0), twice_plus, (a0, a1);
        ld.param.b32 %d, [r0]; }}
      SKIP:"""
    ran = check_body(body, {}, {"d": "b32"}, declarations=PREDICATES + ".reg .b64 %wide;", module_scope=FUNCTIONS, n=N)
    thread = np.arange(N)
    called = np.where(thread % 4 == 0, 0, 2 * thread + thread % 4)
    np.testing.assert_array_equal(
        ran.outputs["d"], called if call == "call.uni" else np.where(thread % 2 == 0, 5, called)
    )


def test_exit_and_ret_end_single_lanes() -> None:
    """Lanes that leave early store nothing; the others continue without them."""
    body = """mov.b32 %d, 1; rem.u32 %t0, %tid, 3; setp.eq.u32 %p, %t0, 0; setp.eq.u32 %q, %t0, 1;
      @%p exit;
      @%q ret;
      activemask.b32 %d;"""
    ran = check_body(body, {}, {"d": "b32"}, declarations=PREDICATES, n=N)
    for start in range(0, N, 32):
        alive = [thread % 3 == 2 for thread in range(start, start + 32)]
        mask = sum(1 << lane for lane, on in enumerate(alive) if on)
        assert ran.outputs["d"][start : start + 32].tolist() == [mask if on else 0 for on in alive]


def test_brkpt_nanosleep_pmevent_and_griddepcontrol_have_no_effect() -> None:
    body = "brkpt; nanosleep.u32 100; nanosleep.u32 %tid; pmevent 7; griddepcontrol.wait; mov.u32 %d, %tid;"
    ran = check_body(f"{body} griddepcontrol.launch_dependents;", {}, {"d": "b32"}, n=N)
    np.testing.assert_array_equal(ran.outputs["d"], np.arange(N))


def test_special_registers() -> None:
    names = {
        "lane": "laneid",
        "warp": "warpid",
        "warps": "nwarpid",
        "x": "tid.x",
        "y": "tid.y",
        "z": "tid.z",
        "nx": "ntid.x",
        "ny": "ntid.y",
        "cx": "ctaid.x",
        "cy": "ctaid.y",
        "gx": "nctaid.x",
        "gz": "nctaid.z",
        "eq": "lanemask_eq",
        "lt": "lanemask_lt",
        "le": "lanemask_le",
        "gt": "lanemask_gt",
        "ge": "lanemask_ge",
        "sm": "smid",
        "sms": "nsmid",
        "dynamic": "dynamic_smem_size",
    }
    body = "\n".join(f"mov.u32 %{name}, %{special};" for name, special in names.items())
    ran = check_body(body, {}, dict.fromkeys(names, "b32"), n=N, shared_bytes=256)
    thread, lane = np.arange(N) % 128, np.arange(N) % 32
    one = np.uint64(1) << lane.astype(np.uint64)
    expected = {
        "lane": lane,
        "warp": thread // 32,
        "warps": 4,
        "x": thread,
        "y": 0,
        "z": 0,
        "nx": 128,
        "ny": 1,
        "cx": np.arange(N) // 128,
        "cy": 0,
        "gx": 8,
        "gz": 1,
        "eq": one,
        "lt": one - np.uint64(1),
        "le": 2 * one - np.uint64(1),
        "gt": 0xFFFFFFFF - (2 * one - np.uint64(1)),
        "ge": 0xFFFFFFFF - (one - np.uint64(1)),
        "sm": 0,
        "sms": 1,
        "dynamic": 256,
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(ran.outputs[name], np.broadcast_to(values, N), name)


def test_clock_grows_and_is_no_host_time() -> None:
    body = "mov.u64 %a, %clock64; add.u32 %t0, %tid, 1; bra N; N: mov.u64 %b, %clock64; mov.u32 %c, %clock_hi;"
    ran = check_body(
        body + "sub.u64 %d, %b, %a; setp.gt.u64 %p, %d, 0; setp.lt.u64 %q, %d, 1000;",
        {},
        {"p": "pred", "q": "pred", "c": "b32"},
        declarations=".reg .b64 %a, %b, %d;",
        n=N,
    )
    assert ran.outputs["p"].all() and ran.outputs["q"].all() and not ran.outputs["c"].any()


def test_three_dimensional_blocks_and_grids() -> None:
    text = """.visible .entry k(.param .u64 out) {
      .reg .b32 %r<20>; .reg .b64 %rd<5>;
      mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ctaid.x;
      mov.u32 %r4, %ctaid.y; mov.u32 %r5, %ctaid.z;
      mad.lo.u32 %r6, %r2, 3, %r1; mad.lo.u32 %r6, %r6, 5, %r0;
      mad.lo.u32 %r7, %r5, 2, %r4; mad.lo.u32 %r7, %r7, 2, %r3; mad.lo.u32 %r8, %r7, 60, %r6;
      mad.lo.u32 %r9, %r0, 10, %r1; mad.lo.u32 %r9, %r9, 10, %r2; mad.lo.u32 %r9, %r9, 10, %r3;
      mad.lo.u32 %r9, %r9, 10, %r4;
      mad.lo.u32 %r9, %r9, 10, %r5;
      ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r8, 4; add.u64 %rd0, %rd0, %rd1;
      st.global.u32 [%rd0], %r9; ret; }"""
    expected = [
        int(f"{x}{y}{z}{i}{j}{k}")
        for k in range(2)
        for j in range(2)
        for i in range(2)
        for z in range(4)
        for y in range(3)
        for x in range(5)
    ]
    for engine in ENGINES:
        module = parse(HEADER + text)
        memory = GlobalMemory(1 << 16)
        out = memory.allocate(4 * len(expected))
        Engine(engine, module).run(LaunchSpec("k", (2, 2, 2), (5, 3, 4), struct.pack("<Q", out)), memory, {})
        assert memory.read(out, 4 * len(expected)).view(np.uint32).tolist() == expected, engine


@pytest.mark.parametrize("engine", ENGINES)
def test_trap_is_a_finding(engine: str) -> None:
    text = (
        ".visible .entry k() { .reg .pred %p; .reg .b32 %r; mov.u32 %r, %tid.x;\n"
        " setp.eq.u32 %p, %r, 3;\n @%p trap;\n ret; }"
    )
    findings = _run(text, engine).findings
    assert [f.code for f in findings] == ["X401"]
    assert findings[0].lanes == 8
    assert findings[0].ptx_line == 6


@pytest.mark.parametrize("engine", ENGINES)
def test_an_infinite_loop_ends_with_the_budget(engine: str) -> None:
    findings = _run(".visible .entry k() { L: bra L; }", engine, max_steps=10_000).findings
    assert [f.code for f in findings] == ["S302"]


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_spinning_on_a_lock_held_by_their_warp_finish(engine: str) -> None:
    """Independent thread scheduling: the holder gets its turn although the others are at a lower line."""
    text = """.global .u32 lock; .global .u32 count;
    .visible .entry k() { .reg .b32 %r<4>; .reg .pred %p;
      SPIN: atom.global.cas.b32 %r0, [lock], 0, 1;
      setp.ne.u32 %p, %r0, 0;
      @%p bra SPIN;
      ld.volatile.global.u32 %r1, [count]; add.u32 %r1, %r1, 1; st.volatile.global.u32 [count], %r1;
      atom.global.exch.b32 %r2, [lock], 0;
      ret; }"""
    module = parse(HEADER + text)
    memory = GlobalMemory(1 << 16)
    globals_at = place_globals(module, memory)
    outcome = Engine(engine, module).run(
        LaunchSpec("k", (1, 1, 1), (32, 1, 1), bytes(8), max_steps=1 << 24), memory, globals_at
    )
    assert not outcome.findings
    assert memory.read(globals_at["count"], 4).view(np.uint32)[0] == 32


PRINTING = """
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 fmt[20] = {37, 100, 58, 37, 53, 46, 50, 102, 124, 37, 115, 124, 37, 108, 108, 120, 10};
.global .align 1 .b8 word[4] = {97, 98, 99};
.visible .entry k()
{
  .local .align 8 .b8 args[32]; .reg .b64 %rd<6>; .reg .b32 %r<4>; .reg .f64 %fd<2>; .reg .pred %p;
  mov.u32 %r0, %tid.x;
  setp.gt.u32 %p, %r0, 1;
  @%p bra END;
  mov.u64 %rd0, args; cvta.local.u64 %rd1, %rd0;
  st.local.u32 [%rd0], %r0;
  mov.f64 %fd0, 0d3FF8000000000000; st.local.f64 [%rd0+8], %fd0;
  mov.u64 %rd2, word; cvta.global.u64 %rd2, %rd2; st.local.u64 [%rd0+16], %rd2;
  mov.u64 %rd3, 0x123456789AB; st.local.u64 [%rd0+24], %rd3;
  mov.u64 %rd4, fmt; cvta.global.u64 %rd4, %rd4;
  { .param .b64 p0; .param .b64 p1; .param .b32 r0;
    st.param.b64 [p0], %rd4; st.param.b64 [p1], %rd1;
    call.uni (r0), vprintf, (p0, p1);
    ld.param.b32 %r1, [r0]; }
  END: ret;
}
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_vprintf_prints_lane_after_lane(engine: str) -> None:
    outcome = _run(PRINTING, engine, grid=2)
    line = "{}: 1.50|abc|123456789ab\n"
    assert outcome.printed == 2 * (line.format(0) + line.format(1))


ASSERTING = """
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 what[4] = {120, 62, 48};
.global .align 1 .b8 file[5] = {97, 46, 99, 117};
.visible .entry k()
{
  .reg .b64 %rd<6>;
  mov.u64 %rd0, what; cvta.global.u64 %rd0, %rd0; mov.u64 %rd1, file; cvta.global.u64 %rd1, %rd1;
  { .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4;
    st.param.b64 [p0], %rd0; st.param.b64 [p1], %rd1; st.param.b32 [p2], 12; st.param.b64 [p3], %rd1;
    st.param.b64 [p4], 1;
    call.uni __assertfail, (p0, p1, p2, p3, p4); }
  ret;
}
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_assertfail_is_a_finding_with_its_text(engine: str) -> None:
    findings = _run(ASSERTING, engine).findings
    assert {f.code for f in findings} == {"X402"}
    assert "x>0" in findings[0].message


SETTING = """
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry k()
{
  .reg .b64 %rd<2>; .reg .b32 %r<3>;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mad.lo.u32 %r1, %r0, 100, %r1;
  cvt.u64.u32 %rd0, %r0; add.u64 %rd0, %rd0, 7;
  { .param .b64 p0; .param .b32 p1; st.param.b64 [p0], %rd0; st.param.b32 [p1], %r1;
    call.uni cudaGraphSetConditional, (p0, p1); }
  ret;
}
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_the_last_value_of_a_condition_counts(engine: str) -> None:
    outcome = _run(SETTING, engine, grid=3)
    assert dict(outcome.conditions) == {7: 31, 8: 131, 9: 231} and not outcome.findings


def test_call_of_an_unknown_extern_is_unsupported() -> None:
    text = (
        ".extern .func mystery (.param .b32 a);\n"
        ".visible .entry k() { .param .b32 a; st.param.b32 [a], 0; call mystery, (a); ret; }"
    )
    for engine in ENGINES:
        with pytest.raises(Unsupported, match="mystery"):
            _run(text, engine)


def test_a_call_of_a_function_with_an_unsupported_body_is_refused() -> None:
    text = (
        ".func middle() { mystery.b32; ret; }\n"
        ".visible .entry k() { call middle, (); ret; }\n"
        ".visible .entry other() { mystery.b32; ret; }"
    )
    for engine in ENGINES:
        with pytest.raises(Unsupported, match="mystery"):
            _run(text, engine)
    for engine in ENGINES:
        assert _run(text.replace("call middle, ();", ""), engine).findings == ()


def test_launch_with_too_few_parameters_is_refused() -> None:
    module = parse(HEADER + ".visible .entry k(.param .u64 a, .param .u64 b) { ret; }")
    memory = GlobalMemory(1 << 16)
    for engine in ENGINES:
        with pytest.raises((LaunchError, WeftError)):
            Engine(engine, module).run(LaunchSpec("k", (1, 1, 1), (32, 1, 1), bytes(8)), memory, {})


def test_recursion_keeps_registers_and_frames_apart() -> None:
    """fact(n) by recursion in the interpreter; compiled code inlines calls and does not support recursion."""
    text = """.func (.param .b32 out) fact (.param .b32 n) {
      .reg .b32 %r<4>; .reg .pred %p;
      ld.param.b32 %r0, [n]; setp.gt.u32 %p, %r0, 1; @%p bra MORE;
      st.param.b32 [out], 1; ret;
      MORE: sub.u32 %r1, %r0, 1;
      { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call.uni (r), fact, (a); ld.param.b32 %r2, [r]; }
      mul.lo.u32 %r3, %r2, %r0; st.param.b32 [out], %r3; ret; }
    .visible .entry k(.param .u64 to) {
      .reg .b32 %r<4>; .reg .b64 %rd<4>;
      mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 7;
      { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call.uni (r), fact, (a); ld.param.b32 %r2, [r]; }
      ld.param.u64 %rd0, [to]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r2; ret; }"""
    module = parse(HEADER + text)
    memory = GlobalMemory(1 << 16)
    out = memory.allocate(128)
    layout = lay_out(module, module.functions["k"])
    interpreter.run(
        module, LaunchSpec("k", (1, 1, 1), (32, 1, 1), struct.pack("<Q", out)), memory, layout=layout, globals_at={}
    )
    factorials = [1, 1, 2, 6, 24, 120, 720, 5040]
    assert memory.read(out, 128).view(np.uint32).tolist() == factorials * 4


@pytest.mark.parametrize(
    ("fmt", "args", "text"),
    [
        (b"%d %u %x %X|", struct.pack("<iIII", -5, 7, 255, 255), "-5 7 ff FF|"),
        (b"%5d|%-5d|%05d|%+d", struct.pack("<iiii", 42, 42, 42, 42), "   42|42   |00042|+42"),
        (b"%d%lld", struct.pack("<i4xq", 1, -2), "1-2"),
        (b"%f %.3e %g", struct.pack("<ddd", 1.5, 12345.678, 0.0001), "1.500000 1.235e+04 0.0001"),
        (b"%c%c%%", struct.pack("<ii", 72, 105), "Hi%"),
        (b"%*d|%.*f", struct.pack("<iii4xd", 6, 42, 2, 3.14159), "    42|3.14"),
        (b"%p %s", struct.pack("<QQ", 0x7000, 0), "0x7000 (null)"),
        (b"%hhd %hu", struct.pack("<iI", 300, 65537), "44 1"),
        (b"%lu %zu", struct.pack("<QQ", 2**63, 5), "9223372036854775808 5"),
        (b"%#x %#o", struct.pack("<II", 255, 8), "0xff 010"),
    ],
)
def test_format_device(fmt: bytes, args: bytes, text: str) -> None:
    assert format_device(fmt, args)[0] == text


def test_format_device_reads_strings_and_counts_arguments() -> None:
    text, used = format_device(b"<%s|%d>", struct.pack("<Qi", 0x10, 3), {0x10: b"abc"}.__getitem__)
    assert (text, used) == ("<abc|3>", 2)


def test_the_workspace_of_a_cooperative_launch_is_zero_and_writable() -> None:
    """%envreg1 and %envreg2 are the halves of its address; the system has the first 1024 bytes of shared memory."""
    body = """mov.u32 %t0, %envreg1; mov.u32 %t1, %envreg2; mov.b64 %at, {%t1, %t0};
      ld.global.u32 %d, [%at+4]; red.global.add.u32 [%at+4], 1;
      mov.u32 %begin, %reserved_smem_offset_begin; mov.u32 %end, %reserved_smem_offset_end;"""
    outputs = {"d": "b32", "begin": "b32", "end": "b32"}
    for _ in range(2):
        ran = check_body(body, {}, outputs, declarations=".reg .b64 %at;", n=32, block=32)
        assert not ran.findings
        assert (ran.outputs["d"] == 0).all()
        assert (ran.outputs["end"] - ran.outputs["begin"] == 1024).all()
