"""Source lines inside inline assembly are those of its statement."""

from weft.toolchain.inline_asm_lines import steady_lines

AS_LLVM_HAS_IT = """
	.loc	1 14 13
	// begin inline asm
	.loc	1 14 13
	mov.u32 %r1, 0x0;
	.loc	1 15 13
	ld.global.b32 { %r1 }, [ %rd1 + 0 ];
	// end inline asm
	.loc	1 17 39, function_name $L__info_string1, inlined_at 1 20 5
	// begin inline asm
	mov.b32 %r2, %r1;
	.loc	1 18 39, function_name $L__info_string1, inlined_at 1 20 5
	mov.b32 %r3, %r2;
	// end inline asm
	.loc	1 18 2
	ret;
"""


def test_every_line_of_an_assembly_is_where_it_began() -> None:
    expected = AS_LLVM_HAS_IT.replace("1 15 13", "1 14 13").replace("1 18 39", "1 17 39")
    assert steady_lines(AS_LLVM_HAS_IT) == expected


def test_text_without_assembly_is_left_alone() -> None:
    ptx = "\t.loc 1 2 3\n\tret;\n\t.loc 1 4 5\r\n"
    assert steady_lines(ptx) == ptx
