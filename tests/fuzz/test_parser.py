"""A hundred thousand changed PTX texts: a module, or an error with a line. `benchmarks/fuzz.py` does more."""

from collections import Counter

import pytest

from tests.fuzz.mutate import Mutator, outcome
from tests.fuzz.ptx_corpus import BY_HAND, corpus
from tests.in_turn import one_in
from weft.core.errors import ParseError
from weft.ptx.cursor import MOST_NESTING
from weft.ptx.parse import parse

PARTS, TEXTS = 8, 12_500


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return corpus(400)


@pytest.mark.parametrize("seed", one_in(4, range(PARTS)))
def test_mutated_texts_end_in_a_module_or_an_error_with_a_line(seed: int, texts: list[str]) -> None:
    mutator = Mutator(texts, seed)
    counts = Counter(outcome(mutator.text()) for _ in range(TEXTS))
    # Mutations that break everything, or nothing, would test little.
    assert all(counts[end] > TEXTS // 50 for end in ("module", "parse error", "unsupported")), counts


@pytest.mark.parametrize("text", BY_HAND)
def test_texts_by_hand_are_modules(text: str) -> None:
    assert outcome(text) == "module"


HEAD = ".version 8.4\n.target sm_89\n"
BODY = HEAD + ".visible .entry k() {\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BODY + "{" * 5000, 4),
        (BODY + "call " + "(" * 5000, 4),
        (HEAD + ".global .b32 x[2] = " + "{" * 5000, 3),
        (HEAD + f".global .b32 x = {'9' * 5000};", 3),
        (HEAD + ".global .b32 x = 18446744073709551616;", 3),
        (HEAD + ".global .f32 x = 1e300;", 3),
        (".version 1e5\n", 1),
        (".version 8.4e5\n", 1),
        (HEAD + ".global .align 3 .b32 x;", 3),
        (HEAD + ".global .b32 ٣;", 3),
    ],
)
def test_what_fuzzing_found_is_a_parse_error(text: str, line: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert caught.value.line == line


def test_a_text_cannot_decide_how_much_memory_is_used() -> None:
    for declared in (".reg .b32 %r<1048576>, %q<1048576>;", ".shared .b8 x[1048576][1048576][1048576];"):
        function = parse(BODY + declared + "ret; }").functions["k"]
        assert function.refused is not None
        assert not function.registers
        assert not function.variables


def test_nesting_as_compilers_write_it_is_no_error() -> None:
    depth = MOST_NESTING - 1  # the function's own braces are one
    assert parse(BODY + "{" * depth + "ret;" + "}" * depth + "}").entries() == ("k",)
