"""The tokenizer: what is code and what only looks like it, and matching brackets."""

import pytest

from weft.core.errors import Unsupported
from weft.interop.torch_extension.cpp_items import read_items
from weft.interop.torch_extension.cpp_tokens import read_tokens


def words(text: str) -> list[str]:
    return [token.text for token in read_tokens(text, "a.cu").tokens]


def test_comments_strings_and_raw_strings_hide_their_brackets() -> None:
    text = 'f(/* ) } */ "}\\"{", \'{\', R"x(}{ )" )x"); // }\ng();'
    assert words(text) == ["f", "(", '"}\\"{"', ",", "'{'", ",", 'R"x(}{ )" )x"', ")", ";", "g", "(", ")", ";"]
    assert [token.line for token in read_tokens(text, "a.cu").tokens][-4:] == [2, 2, 2, 2]


def test_a_preprocessor_line_is_one_token_with_its_continuations() -> None:
    text = '#define F(x) \\\n    { x /* {\n */ "//" }  // rest {\nint y; a # b'
    tokens = read_tokens(text, "a.cu").tokens
    assert tokens[0].kind == "directive" and tokens[0].text.startswith("#define F(x)") and '"//" }' in tokens[0].text
    assert [(token.text, token.line) for token in tokens[1:4]] == [("int", 4), ("y", 4), (";", 4)]
    assert [token.text for token in tokens[4:]] == ["a", "#", "b"]  # only at the start of a line


def test_launches_templates_and_numbers() -> None:
    assert words("k<T<64>><<<g, b>>>(x)")[:8] == ["k", "<", "T", "<", "64", ">", ">", "<<<"]
    source = read_tokens("k<A<1>, B>(x); if (a < b && c > d) f(i < n);", "a.cu")
    assert [source.spelled(start, end + 1) for start, end in source.angles.items()] == ["<A<1>, B>", "<1>"]
    assert words("1'000.5e-3f 0x1Fu .5 a.b") == ["1'000.5e-3f", "0x1Fu", ".5", "a", ".", "b"]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("int f() {\n", 1, "never closed"),
        ("a\n)\n", 2, "has no opening bracket"),
        ("#if A\nint f() {\n#else\nint f(int) {\n#endif\n}", 2, "never closed"),
        ('x\ny = "open\n;', 2, "is not closed"),
        ('x = R"(open', 1, "is not closed"),
    ],
)
def test_unmatched_brackets_are_refused_with_their_line(text: str, line: int, what: str) -> None:
    with pytest.raises(Unsupported, match=rf"a\.cu:{line}: .*{what}"):
        read_tokens(text, "a.cu")


def test_items() -> None:
    text = """
    #pragma once
    namespace a { inline namespace b { struct P { int x; void f() {} }; } }
    extern "C" __global__ void k(int n) { if (n) { } }
    template <typename T, int N = 3> __device__ T g(T (&x)[N]) { return x[0]; }
    static const float table[2] = {1, 2};
    constexpr int c = 3; int h(int);
    """
    source = read_tokens(text, "a.cu")
    items = read_items(source)
    kinds = [item.kind for item in items]
    expected = [
        "directive",
        "open",
        "open",
        "other",
        "close",
        "close",
        "function",
        "function",
        "other",
        "other",
        "function",
    ]
    assert kinds == expected
    assert [bool(item.body) for item in items if item.kind == "function"] == [True, True, False]
    assert items[3].scope == ("a", "b")
