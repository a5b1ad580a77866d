"""Kernels of a module are read one by one: where functions start and end, what a kernel can reach, and the cache."""

import re

import pytest

from weft.core.errors import ParseError, Unsupported
from weft.ptx import cut as cutting
from weft.ptx.cut import cut, index_of
from weft.ptx.module import Function, Instruction
from weft.ptx.parse import parse, parse_declarations, parse_kernel
from weft.ptx.passes.inline_calls import inline_calls
from weft.vm.program import compile_program

HEADER = ".version 8.4\n.target sm_89\n.address_size 64\n"

TEXT = (
    HEADER
    + """.file 1 "odd } name { .entry.cu"
// .visible .entry in_a_comment() { ret; }
/* .entry in_another { */
.global .align 4 .u32 counter[2] = {1, 2};
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.func (.param .b32 r) helper(.param .b32 a);
.visible .entry first(
    .param .u64 out
)
.maxntid 128, 1, 1
.pragma "nounroll";
{
    .reg .b32 %r<4>; // a brace in a comment: }
    .reg .b64 %rd<4>;
    /* and another: { */
    ld.param.u64 %rd1, [out];
    {
        .param .b32 arg; .param .b32 back;
        st.param.b32 [arg], 7;
        call.uni (back),
            helper,
            (arg);
        ld.param.b32 %r1, [back];
    }
    st.global.u32 [%rd1], %r1;
    ret;
}
.func (.param .b32 r) helper(.param .b32 a)
{
    .reg .b32 %x;
    ld.param.b32 %x, [a];
    add.u32 %x, %x, 1;
    st.param.b32 [r], %x;
    ret;
}
.weak .entry second()
{
    wgmma.fence.sync.aligned;
    ret;
}
.visible .func unused()
{ ret; }
.section .debug_str { .b8 34, 0 }
"""
)


def _same(one: Function, other: Function) -> bool:
    return (one.body, one.params, one.registers, one.line) == (other.body, other.params, other.registers, other.line)


def test_functions_are_found_with_their_lines() -> None:
    lines = TEXT.splitlines()
    pieces = cut(TEXT).pieces
    assert [(piece.name, piece.entry) for piece in pieces] == [
        ("first", True),
        ("helper", False),
        ("second", True),
        ("unused", False),
    ]
    for piece in pieces:
        assert re.search(rf"\.(entry|func)\b.*{piece.name}", lines[piece.line - 1])
        assert TEXT[piece.body] == "{" and TEXT[piece.end - 1] == "}"


def test_a_kernel_is_read_with_what_it_calls_on_the_same_lines() -> None:
    whole, alone = parse(TEXT), parse_kernel(TEXT, "first")
    for name in ("first", "helper"):
        assert _same(whole.functions[name], alone.functions[name])
    assert not alone.functions["unused"].body and not alone.functions["second"].body
    assert (whole.variables, whole.files, whole.version) == (alone.variables, alone.files, alone.version)
    assert list(whole.functions) == list(alone.functions) and whole.entries() == alone.entries()
    inlined = inline_calls(alone, alone.functions["first"])
    assert [item.opcode for item in inlined.body if isinstance(item, Instruction)] == [
        "ld.param.u64", "st.param.b32", "ld.param.b32", "add.u32", "st.param.b32", "bra", "ld.param.b32",
        "st.global.u32", "ret",
    ]  # fmt: skip


def test_declarations_have_headers_and_variables_only() -> None:
    declared = parse_declarations(TEXT)
    assert declared.entries() == ("first", "second")
    assert declared.functions["first"].directives == {"maxntid": (128, 1, 1)}
    assert [each.size_bytes for each in declared.functions["first"].params] == [8]
    assert [each.name for each in declared.variables] == ["counter"]
    assert not any(function.body for function in declared.functions.values())


def test_another_kernel_may_have_an_instruction_that_is_not_supported() -> None:
    compile_program(TEXT, "first")
    with pytest.raises(Unsupported, match=f"line {1 + TEXT[: TEXT.index('wgmma')].count(chr(10))}: wgmma"):
        compile_program(TEXT, "second")


INDIRECT = (
    HEADER
    + """
.func f(.param .b32 a)
{ ret; }
.func g(.param .b32 a)
{ ret; }
.func h()
{ ret; }
.visible .entry takes(.param .u64 out)
{ .reg .b64 %a, %f; ld.param.u64 %a, [out]; mov.u64 %f, g; st.global.u64 [%a], %f; ret; }
.visible .entry calls(.param .u64 from)
{ .reg .b64 %a, %f; ld.param.u64 %a, [from]; ld.global.u64 %f, [%a];
  P: .callprototype _ (.param .b32 _);
  { .param .b32 x; st.param.b32 [x], 1; call %f, (x), P; } ret; }
.visible .entry other() { ret; }
"""
)


def test_a_call_through_a_register_reaches_functions_that_other_kernels_name() -> None:
    whole = parse(INDIRECT)
    for entry in ("takes", "calls"):
        alone = parse_kernel(INDIRECT, entry)
        assert alone.functions[entry].body == whole.functions[entry].body, "addresses of functions are the same"
    assert [piece.name for piece in cut(INDIRECT).reach("other")] == ["other"]
    assert [piece.name for piece in cut(INDIRECT).reach("takes")] == ["g", "takes"]


def test_addresses_of_functions_in_variables_are_the_same_for_all() -> None:
    text = INDIRECT.replace(".func f(", ".global .u64 table[2] = {h, f};\n.func f(", 1)
    (whole,) = parse(text).variables
    assert len(set(whole.init)) > 2 and not whole.relocations
    for module in (parse_declarations(text), *(parse_kernel(text, entry) for entry in ("takes", "calls", "other"))):
        assert module.variables == (whole,)
    assert parse_kernel(text, "calls").functions["calls"] == parse(text).functions["calls"]


def test_unused_declarations_that_are_not_supported_are_skipped() -> None:
    text = (
        HEADER
        + """.global .texref picture;
.global .align 8 .b8 table[2] = {1, 2};
.func (.reg .b32 r) in_registers(.reg .b32 a) { ret; }
.visible .entry k(.param .u64 out)
{ .reg .b64 %a; ld.param.u64 %a, [out]; ret; }
.visible .entry uses(.param .u64 out)
{ .reg .b64 %a; mov.u64 %a, picture; ret; }
"""
    )
    compile_program(text, "k")
    with pytest.raises(Unsupported, match="line 10: symbol picture"):
        compile_program(text, "uses")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEADER + ".visible .entry k()\n{ ret;\n", 6),
        (HEADER + ".visible .entry k()\n{ ret; } }\n", 5),
        (HEADER + ".visible .entry k()\n/* { ret; }\n", 5),
        (HEADER + ".visible .entry k()\n{ /* ret; }\n", 5),
        (HEADER + ".visible .entry (\n{ ret; }\n", 4),
        ("nothing of PTX", 1),
    ],
    ids=["open", "closed twice", "comment", "comment inside", "no name", "no PTX"],
)
def test_text_that_cannot_be_cut_is_an_error_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ParseError) as failed:
        parse_kernel(text, "k")
    assert failed.value.line == line


def test_the_index_of_a_long_text_is_read_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.setattr(cutting, "CACHED_CHARACTERS", 100)
    index_of.cache_clear()
    first = index_of(TEXT)
    index_of.cache_clear()
    monkeypatch.setattr(cutting, "cut", lambda text: pytest.fail("cut again"))
    assert index_of(TEXT) == first
    index_of.cache_clear()
