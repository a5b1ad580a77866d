"""The host's view of a file: macros, #if and headers, as in nvcc's host pass."""

from pathlib import Path

import pytest

from weft.interop.torch_extension.cpp_tokens import scan_tokens
from weft.interop.torch_extension.join_headers import join_headers
from weft.interop.torch_extension.preprocess import HostText, preprocess


def host(text: str) -> HostText:
    count = text.count("\n") + 1
    return preprocess(scan_tokens(text, "a.cu"), "a.cu", range(1, count + 1), [True] * count)


def words(text: str) -> str:
    """The tokens of the host's view, one space between each two."""
    return " ".join(token.text for token in host(text).source.tokens)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#define F(x) void f_##x() { k_##x##_kernel(); }\nF(half)", "void f_half ( ) { k_half_kernel ( ) ; }"),
        ("#define S(x) #x\nS(a b)", '"a b"'),
        ("#define T float*\nT p;", "float * p ;"),
        ("#define CALL(f, ...) f(__VA_ARGS__)\nCALL(g, 1, (2, 3))", "g ( 1 , ( 2 , 3 ) )"),
        ("#define LOG(f, ...) p(f, ##__VA_ARGS__)\nLOG(x); LOG(x, y)", "p ( x ) ; p ( x , y )"),
        ("#define f(x) (f(x))\nf(1)", "( f ( 1 ) )"),
        ("#define A B\n#define B A\nA", "A"),
        ("#define CAT(a, b) a##b\n#define X CAT(y, z)\nX", "yz"),
        ("#define TWICE(x) x x\n#define ID(x) x\nTWICE(ID(ID(q)))", "q q"),
        ("#define EMPTY\nEMPTY int x;", "int x ;"),
        ("#define F(x) x\nF;", "F ;"),
        ("#define LONG(x) \\\n  one(x); \\\n  two(x)\nLONG(1);", "one ( 1 ) ; two ( 1 ) ;"),
        ("#define BODY(x, ...) if (x) { __VA_ARGS__(); }\nBODY(y, [&] { int a[2] = {1, 2}; })",
         "if ( y ) { [ & ] { int a [ 2 ] = { 1 , 2 } ; } ( ) ; }"),
    ],
)  # fmt: skip
def test_macros(text: str, expected: str) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("#ifdef A", True),
        ("#ifndef A", False),
        ("#if A > 2 && !defined(B)", True),
        ("#if defined A && B", False),
        ("#if A == 3 || C", True),
        ("#if (A << 1) == 6", True),
        ("#ifdef __CUDA_ARCH__", False),
        ("#if __CUDACC_VER_MAJOR__ >= 12", True),
        ("#if nonsense(", False),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    text = f"#define A 3\n{condition}\nyes\n#elif 1\nno\n#else\nnever\n#endif\n"
    assert words(text) == ("yes" if holds else "no")


def test_conditions_nested_in_a_false_one_are_left_out() -> None:
    assert words("#if 0\n#if 1\na\n#else\nb\n#endif\n#else\nc\n#endif\n") == "c"


def test_an_integer_stays_a_name_that_launch_lines_can_define() -> None:
    macros = "#define BLOCK 128\n#define HALF (BLOCK / 2)\n#define RATE 0.5f\n"
    found = host(f"{macros}#if BLOCK == 128\nf(BLOCK, RATE, HALF);\n#endif")
    assert " ".join(token.text for token in found.source.tokens) == "f ( BLOCK , 0.5f , HALF ) ;"
    assert found.integers == {"BLOCK": "128", "HALF": "(BLOCK / 2)"}


def test_an_integer_with_two_values_is_expanded() -> None:
    found = host("#define N 1\nf(N);\n#undef N\n#define N 2\nf(N);")
    assert " ".join(token.text for token in found.source.tokens) == "f ( 1 ) ; f ( 2 ) ;" and not found.integers


def test_tokens_of_a_macro_have_the_line_of_its_use() -> None:
    found = host("#define F(x) a(x); \\\n b(x)\n\nF(1);")
    assert {token.line for token in found.source.tokens} == {4}


def test_headers_next_to_the_file_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "inner.h").write_text("#pragma once\nint inner;\n")
    (tmp_path / "outer.cuh").write_text('#pragma once\n#include "inner.h"\nint outer;\n')
    text = '#include "outer.cuh"\n#include "inner.h"\n#include "missing.h"\nint own;\n'
    joined = join_headers(text, str(tmp_path / "a.cu"))
    assert joined.text.count("int inner;") == 1 and "pragma" not in joined.text and "missing.h" in joined.text
    place = {line.strip(): joined.origins[at] for at, line in enumerate(joined.text.splitlines())}
    assert (place["int inner;"].line, place["int inner;"].main_line) == (2, 1)
    assert Path(place["int outer;"].file).name == "outer.cuh" and place["int own;"].line == 4


def test_a_header_in_a_nearby_folder_is_reported(tmp_path: Path) -> None:
    for folder in ("utils", "kernels/mma"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "utils" / "tiles.h").write_text("int tiles;\n")
    joined = join_headers('#include "tiles.h"\n', str(tmp_path / "kernels" / "mma" / "a.cu"))
    assert "int tiles;" in joined.text and "tiles.h is read from" in joined.notes[0][1]
