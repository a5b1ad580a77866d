"""The parser: what it keeps, what it refuses, and the line in its errors."""

import pytest

from weft.core.errors import ParseError, Unsupported
from weft.core.records import Place
from weft.ptx.module import (
    Args,
    Discard,
    FloatImm,
    Function,
    Imm,
    Instruction,
    Label,
    LabelDef,
    Mem,
    Not,
    Pair,
    Reg,
    Special,
    Sym,
    Vec,
)
from weft.ptx.parse import parse
from weft.ptx.passes.inline_calls import inline_calls

HEADER = ".version 8.4\n.target sm_90\n.address_size 64\n"


def _function(body: str, *, declarations: str = "", params: str = "", scope: str = "") -> Function:
    text = f"{HEADER}{scope}\n.visible .entry k({params})\n{{\n{declarations}\n{body}\n}}\n"
    return parse(text).functions["k"]


def _instructions(function: Function) -> list[Instruction]:
    return [item for item in function.body if isinstance(item, Instruction)]


def _line_of(text: str, needle: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if needle in line)


REGISTERS = ".reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p<4>; .reg .f32 %f<4>; .reg .b16 %rs<4>;"


def test_module_header_files_and_entries() -> None:
    module = parse(
        "//\n// Generated\n//\n.version 7.8\n.target sm_80, debug\n.address_size 64\n"
        '.file 1 "a.cu"\n.file 2 "/x/b.cuh", 0, 12\n'
        ".visible .entry one() { ret; }\n.func two() { ret; }\n.weak .entry three() { ret; }\n"
    )
    assert (module.version, module.target) == ((7, 8), "sm_80")
    assert module.files == {1: "a.cu", 2: "/x/b.cuh"}
    assert module.entries() == ("one", "three")
    assert not module.functions["two"].entry


def test_parameters_with_pointer_hints_arrays_and_directives() -> None:
    text = HEADER + (
        ".visible .entry k(\n .param .u64 .ptr .global .align 16 k_param_0,\n"
        " .param .align 8 .b8 k_param_1[24],\n .param .f32 k_param_2\n)\n"
        '.maxntid 128, 2, 1\n.minnctapersm 4\n.pragma "nounroll";\n{ ret; }\n'
    )
    function = parse(text).functions["k"]
    assert [(v.name, v.type, v.size_bytes, v.align) for v in function.params] == [
        ("k_param_0", "u64", 8, 8),
        ("k_param_1", "b8", 24, 8),
        ("k_param_2", "f32", 4, 4),
    ]
    assert function.directives == {"maxntid": (128, 2, 1), "minnctapersm": (4,)}


@pytest.mark.parametrize(
    "text",
    [
        '.pragma "nounroll";\n.visible .entry k()\n{ ret; }',
        '.visible .entry k() .pragma "nounroll"; { ret; }',
        '.visible .entry k()\n.pragma "nounroll", "other";\n.maxntid 32\n.pragma "third";\n{ ret; }',
        '.func f() .pragma "nounroll"; { ret; }\n.visible .entry k() { ret; }',
        '.visible .entry k() { .pragma "nounroll", "other"; ret; }',
        '.visible .entry k() { ret; }\n.pragma "nounroll";',
    ],
    ids=["module", "entry", "among directives", "func", "statement", "end of module"],
)
def test_a_pragma_may_stand_at_every_scope(text: str) -> None:
    function = parse(HEADER + text).functions["k"]
    assert [ins.opcode for ins in _instructions(function)] == ["ret"]
    assert function.directives == ({"maxntid": (32,)} if "maxntid" in text else {})


@pytest.mark.parametrize("pragma", [".pragma;", ".pragma nounroll;", '.pragma "a" "b";', '.pragma "a",;'])
@pytest.mark.parametrize(
    "text", ["{0} .entry k() {{ ret; }}", ".entry k() {0} {{ ret; }}", ".entry k() {{ {0} ret; }}"]
)
def test_a_pragma_is_a_list_of_strings(text: str, pragma: str) -> None:
    with pytest.raises(ParseError):
        parse(HEADER + text.format(pragma))


def test_operands_of_every_kind() -> None:
    function = _function(
        """mov.u32 %r1, %tid.x;
        mov.b64 %rd1, {%r1, %r2};
        mov.b64 {_, %r3}, %rd1;
        ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1+16];
        st.shared.u32 [tile+-4], %r1;
        ld.param.u64 %rd2, [k_param_0];
        setp.lt.s32 %p1|%p2, %r1, -5;
        selp.b32 %r4, 0x1F, 010, !%p1;
        mov.f32 %f1, 0f3F800000;
        @!%p1 bra L1;
        @%p2 mov.b32 %r5, 0b101;
        mov.u64 %rd3, tile+8;
        L1: ret;""",
        declarations=REGISTERS,
        params=".param .u64 k_param_0",
        scope=".shared .align 16 .b8 tile[64];",
    )
    ins = _instructions(function)
    assert ins[0].operands == (Reg("%r1"), Special("%tid.x"))
    assert ins[1].operand("a") == Vec((Reg("%r1"), Reg("%r2")))
    assert ins[2].operand("d") == Vec((Discard(), Reg("%r3")))
    assert ins[3].operands == (Vec(tuple(Reg(f"%f{i}") for i in range(4))), Mem(Reg("%rd1"), 16))
    assert ins[3].mods["vec"] == "v4" and ins[3].type == "f32"
    assert ins[4].operand("a") == Mem(Sym("tile"), -4)
    assert ins[5].operand("a") == Mem(Sym("k_param_0"))
    assert ins[6].operands[0] == Pair(Reg("%p1"), Reg("%p2")) and ins[6].operands[2] == Imm(-5)
    assert ins[7].operands[1:] == (Imm(31), Imm(8), Not(Reg("%p1")))
    assert ins[8].operand("a") == FloatImm(0x3F800000, 32)
    assert ins[9].guard is not None and ins[9].guard.negated and ins[9].operands == (Label("L1"),)
    assert ins[10].guard is not None and not ins[10].guard.negated and ins[10].operand("a") == Imm(5)
    assert ins[11].operand("a") == Sym("tile", 8)
    assert isinstance(function.body[-2], LabelDef) and function.body[-2].name == "L1"


def test_read_and_written_registers() -> None:
    function = _function("@%p1 add.s32 %r1, %r2, %r3; st.global.b32 [%rd1], %r4;", declarations=REGISTERS)
    add, store = _instructions(function)
    assert [r.name for r in add.written()] == ["%r1"]
    assert {r.name for r in add.read()} == {"%p1", "%r1", "%r2", "%r3"}, "a guarded write keeps the old value"
    assert list(store.written()) == []
    assert {r.name for r in store.read()} == {"%rd1", "%r4"}


def test_nested_scopes_have_their_own_registers_and_labels() -> None:
    function = _function(
        """mov.b32 %r1, 1;
        { .reg .b64 %r1; .reg .pred p; mov.b64 %r1, 2; bra IN; IN: }
        { .reg .f32 %r1; mov.f32 %r1, 0f00000000; bra IN; IN: mov.b32 %r2, 3; }
        mov.b32 %r1, 4;""",
        declarations=REGISTERS,
    )
    moves = [item for item in _instructions(function) if item.form.name == "mov"]
    names = [next(item.written()).name for item in moves]
    types = [function.registers[name] for name in names]
    assert types == ["b32", "b64", "f32", "b32", "b32"]
    assert names[0] == names[4] == "%r1" and len({names[0], names[1], names[2]}) == 3
    labels = [item.name for item in function.body if isinstance(item, LabelDef)]
    branches = [item.operands[0] for item in _instructions(function) if item.form.name == "bra"]
    assert len(set(labels)) == 2
    assert branches == [Label(name) for name in labels], "a forward branch finds the label in its scope"


def test_call_with_and_without_lists() -> None:
    scope = ".extern .func (.param .b32 r) f (.param .b64 a);\n.extern .func g;\n.extern .func h (.param .b32 x);"
    function = _function(
        "{ .param .b64 p0; .param .b32 r0; st.param.b64 [p0], %rd1; call.uni (r0), f, (p0); call g; call h, (r0); }",
        declarations=REGISTERS,
        scope=scope,
    )
    calls = [item for item in _instructions(function) if item.form.name == "call"]
    assert [len(call.operands) for call in calls] == [3, 3, 3]
    returns, target, arguments = calls[0].operands
    assert target == Sym("f") and isinstance(returns, Args) and isinstance(arguments, Args)
    assert len(returns.items) == 1 and len(arguments.items) == 1
    assert calls[1].operands == (Args(()), Sym("g"), Args(()))


def test_branch_tables() -> None:
    function = _function("T: .branchtargets A, B;\nbrx.idx %r1, T;\nA: ret;\nB: ret;", declarations=REGISTERS)
    assert function.tables["T"].targets == ("A", "B")
    assert _instructions(function)[0].operands == (Reg("%r1"), Label("T"))


def test_source_places_with_inlining() -> None:
    scope = '.file 1 "k.cu"\n.file 2 "lib.cuh"'
    function = _function(
        ".loc 1 10 3\nmov.b32 %r1, 1;\n"
        ".loc 2 7 5, function_name $L__info_string0, inlined_at 1 12 9\nmov.b32 %r2, 2;\nmov.b32 %r3, 3;",
        declarations=REGISTERS,
        scope=scope,
    )
    first, second, third = _instructions(function)
    assert first.place == Place("k.cu", 10, 3)
    assert second.place == third.place
    assert second.place is not None and second.place.inlined_at is not None
    assert (second.place.file, second.place.line) == ("lib.cuh", 7)
    assert (second.place.inlined_at.file, second.place.inlined_at.line) == ("k.cu", 12)


def test_a_chain_of_inlined_calls_leads_to_the_outermost() -> None:
    chain = (
        ".loc 1 10 3\n.loc 2 7 5, function_name $L__info_string0, inlined_at 1 10 3\n"
        ".loc 2 3 1, function_name $L__info_string1, inlined_at 2 7 5\nmov.b32 %r1, 1;\n"
    )
    again = ".loc 2 3 1, function_name $L__info_string1, inlined_at 2 3 1\nmov.b32 %r2, 2;\n"
    function = _function(chain + again, declarations=REGISTERS, scope='.file 1 "k.cu"\n.file 2 "lib.cuh"')
    first, second = _instructions(function)
    assert first.place == Place("lib.cuh", 3, 1, Place("lib.cuh", 7, 5, Place("k.cu", 10, 3)))
    assert second.place == Place("lib.cuh", 3, 1, Place("lib.cuh", 3, 1)), "a line inlined into itself does not grow"


def test_debug_sections_are_skipped() -> None:
    module = parse(
        HEADER + ".visible .entry k() { ret; }\n.section .debug_str\n{\n$L__info_string0:\n.b8 95,90,0\n{ .b8 1 }\n}\n"
    )
    assert module.entries() == ("k",)


def test_initialisers() -> None:
    text = HEADER + (
        ".const .align 4 .f32 weights[4] = {0f3F800000, 2.0, 1, 0};\n"
        ".global .align 8 .u64 table[3] = {other, generic(other)+16, 5};\n"
        ".global .align 4 .b8 other[8] = {1, 0xFF, -1};\n"
        ".global .align 4 .s32 grid2[2][2] = {{1, 2}, {3, 4}};\n.global .u32 zero;\n"
    )
    variables = {variable.name: variable for variable in parse(text.replace("2.0, 1, 0}", "2.0}")).variables}
    assert variables["weights"].init == bytes.fromhex("0000803f00000040")
    assert variables["weights"].size_bytes == 16
    assert variables["table"].relocations == ((0, Sym("other")), (8, Sym("other", 16)))
    assert variables["table"].init[16:] == (5).to_bytes(8, "little")
    assert variables["other"].init == b"\x01\xff\xff" and variables["other"].size_bytes == 8
    assert variables["grid2"].init == bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0])
    assert variables["zero"].init == b"" and variables["zero"].size_bytes == 4


def test_dynamic_shared_memory_is_unsized() -> None:
    variables = parse(HEADER + ".extern .shared .align 16 .b8 dyn[];").variables
    assert (variables[0].count, variables[0].extern, variables[0].align) == (0, True, 16)


def test_comments_and_strings_keep_the_lines_right() -> None:
    text = (
        HEADER
        + ".visible .entry k() {\n/* two\nlines */ // a tail {\n.reg .b32 %r<2>;\n\n mov.b32 %r1, 0; // here\n ret; }\n"
    )
    function = parse(text).functions["k"]
    assert _instructions(function)[0].line == _line_of(text, "mov.b32")


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "frobnicate.b32 %r1, %r2;",
        "add.s33 %r1, %r2, %r3;",
        "add.rn.s32 %r1, %r2, %r3;",
        "ld.global.v3.f32 {%f0, %f1, %f2}, [%rd1];",
        "ld.mystery.u32 %r1, [%rd1];",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "mov.u32 %r1, %is_explicit_cluster;",
        ".mystery 5;",
    ],
)
def test_unknown_but_plausible_ptx_is_unsupported_with_its_line(statement: str) -> None:
    text = f"{HEADER}.visible .entry k()\n{{\n{REGISTERS}\n\n  {statement}\n  ret;\n}}\n"
    module = parse(text)
    with pytest.raises(Unsupported) as caught:
        inline_calls(module, module.functions["k"])
    assert caught.value.line == _line_of(text, statement)


CALLS = (
    ".func unknown() { mystery.b32; ret; }\n"
    ".func middle() { call unknown, (); ret; }\n"
    ".extern .func declared() .mystery;\n"
    ".visible .entry plain() { ret; }\n"
    ".visible .entry asks() .blocksareclusters { .reg .b32 %r<2>; { mov.b32 %r0, 1; } ret; }\n"
    ".visible .entry calls() { call middle, (); ret; }\n"
    ".visible .entry last() { ret; }\n"
)


def test_only_the_launched_kernel_and_what_it_calls_must_be_supported() -> None:
    module = parse(HEADER + CALLS)
    assert module.entries() == ("plain", "asks", "calls", "last")
    for name in ("plain", "last"):
        assert len(inline_calls(module, module.functions[name]).body) == 1
    for name, why in (("asks", "blocksareclusters"), ("calls", "mystery")):
        with pytest.raises(Unsupported, match=why):
            inline_calls(module, module.functions[name])


@pytest.mark.parametrize("text", [".reg.b32 %r<3>;", ".reg .b32 %r<3>;", ".reg.b32 %r0, %r1, %r2;"])
def test_registers_are_declared_with_and_without_a_blank(text: str) -> None:
    assert _function("mov.b32 %r1, %r2;", declarations=text).registers == dict.fromkeys(("%r0", "%r1", "%r2"), "b32")


@pytest.mark.parametrize(
    ("written", "manual"),
    [
        ("red.and.release.cta.b32 [%rd1], %r1;", "red.release.cta.and.b32 [%rd1], %r1;"),
        ("atom.add.release.gpu.u32 %r1, [%rd1], %r2;", "atom.release.gpu.add.u32 %r1, [%rd1], %r2;"),
        ("atom.global.gpu.acq_rel.add.u32 %r1, [%rd1], %r2;", "atom.acq_rel.gpu.global.add.u32 %r1, [%rd1], %r2;"),
        ("ld.global.volatile.u32 %r1, [%rd1];", "ld.volatile.global.u32 %r1, [%rd1];"),
        ("ld.gpu.acquire.global.u32 %r1, [%rd1];", "ld.acquire.gpu.global.u32 %r1, [%rd1];"),
        ("ld.global.f32.v2 {%f0, %f1}, [%rd1];", "ld.global.v2.f32 {%f0, %f1}, [%rd1];"),
        ("cvt.f32.rn.s32 %f1, %r1;", "cvt.rn.f32.s32 %f1, %r1;"),
        ("shfl.down.sync.b32 %r1, %r2, 1, 31, -1;", "shfl.sync.down.b32 %r1, %r2, 1, 31, -1;"),
        (
            "ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%r1, %r2}, [%r3];",
            "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1, %r2}, [%r3];",
        ),
    ],
)
def test_modifiers_are_taken_in_every_order_that_ptxas_takes(written: str, manual: str) -> None:
    one, other = (_instructions(_function(text, declarations=REGISTERS))[0] for text in (written, manual))
    assert (one.form, one.mods, one.operands) == (other.form, other.mods, other.operands)


def test_types_state_spaces_and_layouts_keep_their_order() -> None:
    for statement in (
        "cvt.s32.rn.f32 %r1, %f1;",
        "cp.async.ca.global.shared [%r1], [%rd1], 4;",
        "mma.sync.aligned.m16n8k8.col.row.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2}, {%r3}, {%r1, %r2};",
    ):
        assert _function(statement, declarations=REGISTERS).refused is not None


@pytest.mark.parametrize(
    "statement",
    [
        "add.s32 %r1, %r2;",
        "add.s32 %r1, %r2, %r3, %r4;",
        "add.s32 %r1 %r2, %r3;",
        "add.s32 %r1, {%r2, %r3}, %r4;",
        "add.s32 %r1|%r2, %r3, %r4;",
        "mov.b32 %r1, `;",
        "@%r9q mov.b32 %r1, 0;",
        "mov.b32 %r1, 09;",
        "ld.global.u32 %r1, [%tid.x];",
    ],
)
def test_invalid_ptx_is_a_parse_error_with_its_line(statement: str) -> None:
    text = f"{HEADER}.visible .entry k()\n{{\n{REGISTERS}\n\n  {statement}\n  ret;\n}}\n"
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert caught.value.line == _line_of(text, statement)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello world",
        ".version 8.4\n.target sm_89\n.visible .entry k() { ret;",
        HEADER + "ret;",
        HEADER + ".visible .entry k() { .reg .b32 %r<2; }",
        HEADER + ".global .u32 a = ;",
        HEADER + ".global .u8 a[2] = {1, 2, 3};",
        "\x00\x01\x02",
    ],
)
def test_garbage_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert 1 <= caught.value.line <= text.count("\n") + 1


@pytest.mark.parametrize(
    "text",
    [
        ".version 8.4\n.target sm_50\n.address_size 32\n",
        HEADER + ".alias a, b;\n",
    ],
)
def test_unsupported_declarations(text: str) -> None:
    with pytest.raises((Unsupported, ParseError)) as caught:
        parse(text)
    assert caught.value.line is not None


def test_a_branch_to_an_undefined_label_is_refused() -> None:
    with pytest.raises((ParseError, Unsupported)):
        _function("bra NOWHERE;", declarations=REGISTERS)


def test_a_name_declared_twice_in_one_scope_is_refused() -> None:
    with pytest.raises(ParseError):
        _function("L: ret;\nL: ret;")


def test_managed_variables() -> None:
    text = HEADER + (
        ".visible .global .attribute(.managed) .align 4 .u32 shared_with_host = 7;\n"
        ".global .attribute(.unified(19, 95), .managed) .b64 both;\n.global .u32 plain;\n"
    )
    variables = parse(text).variables
    assert [(each.name, each.managed) for each in variables] == [
        ("shared_with_host", True),
        ("both", True),
        ("plain", False),
    ]
    assert variables[0].init == (7).to_bytes(4, "little")


def test_recursion_is_refused_with_its_chain_and_line() -> None:
    text = HEADER + (
        ".func a() { call b; ret; }\n.func b()\n{\ncall a; ret; }\n.visible .entry k()\n{ call a; ret; }\n"
    )
    module = parse(text)
    with pytest.raises(Unsupported, match=r"line 7: recursion: k → a → b → a .*loop"):
        inline_calls(module, module.functions["k"])
