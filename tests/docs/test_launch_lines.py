"""docs/reference/launch_lines.md: its example computes attention, and its tables list what the code supports."""

import re
from pathlib import Path

import numpy as np

import weft
from weft.engines.element_types import ELEMENT_TYPES, FILLS
from weft.engines.expressions import FUNCTIONS
from weft.engines.launch_lines import CLAUSES, KEYWORDS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "launch_lines.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_example_is_attention(tmp_path: Path) -> None:
    (example,) = re.findall(r"^`attention\.cu`:\n```cuda\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "attention.cu"
    file.write_text(example)
    run, arrays = weft.load(file).run(weft.VirtualGPU())
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    weights = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    expected = weights @ v / weights.sum(-1, keepdims=True)
    assert run.clean and run.entries == ("partial<32>", "merge<32>")
    # O is rounded to fp16, half an ulp of 2^-10; the fp32 arithmetic before it is far finer.
    np.testing.assert_allclose(arrays["o"].astype(np.float64), expected, rtol=2.0**-11, atol=1e-5)


def test_every_line_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("Kinds of lines"), re.MULTILINE)
    assert sorted(rows) == sorted(KEYWORDS)


def test_every_type_initialiser_function_and_clause_is_named() -> None:
    types = re.search(r"`([^`]*)`", section("Types"))
    assert types and set(types[1].replace("·", "").split()) == set(ELEMENT_TYPES)
    assert {name for name in FILLS if f"`{name}" in section("Initialisers")} == set(FILLS)
    assert " ".join(FUNCTIONS) in section("Formulas")
    assert all(clause in section("The launch line") for clause in CLAUSES)
