"""kernels/ladder.py agrees with the declarations in the files."""

import re
from pathlib import Path

import pytest

import weft
from weft.attention.quantise import QUANTISERS
from weft.engines.expressions import Expression
from weft.kernels import RUNGS, Rung, table
from weft.kernels.ladder import ELEMENTS, ENCODINGS, FOLDER, MASKS

README = Path(__file__).parents[2] / "README.md"

TABLE = ("block_table", "seq_lens")
ARRAYS = {
    "sdpa": ["q", "k", "v", "o", "lse"],
    "quantised_sdpa": ["q", "k", "v", "o", "lse"],
    "fp8_sdpa": ["q_code", "k_code", "v_code", "q_scale", "k_scale", "v_scale", "o", "lse"],
    "qk_dot": ["q_code", "k_code", "q_scale", "k_scale", "s"],
    "softcap_sinks": ["q", "k", "v", "sinks", "o", "lse"],
    "sdpa_varlen": ["q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "o", "lse"],
    "paged_decode": ["q", "k_cache", "v_cache", *TABLE, "o", "lse"],
    "paged_decode_fp8": ["q", "k_cache_code", "v_cache_code", *TABLE, "k_scale", "v_scale", "o", "lse"],
    "sdpa_backward": ["q", "k", "v", "o", "lse", "do", "dq", "dk", "dv"],
}

every_rung = pytest.mark.parametrize("rung", RUNGS.values(), ids=lambda rung: rung.name)


def defines(rung: Rung) -> dict[str, str]:
    """Return the file's own defines, as text."""
    lines = weft.load(rung.path).lines.defines
    return {line.name: line.value.text if isinstance(line.value, Expression) else line.value for line in lines}


def test_every_file_has_a_row() -> None:
    files = {path.name for path in FOLDER.iterdir() if path.suffix in (".cu", ".py")}
    assert {rung.file for rung in RUNGS.values()} == files - {"__init__.py", "ladder.py"}


@every_rung
def test_arguments_follow_the_task(rung: Rung) -> None:
    kernel = weft.load(rung.path)
    assert sorted(line.name for line in kernel.arrays) == sorted(ARRAYS[rung.task])
    pages = {"B", "SQ", "PAGES", "ENTRIES"}
    lengths = {"sdpa_varlen": {"ENDS", "TOTAL_Q", "TOTAL_K"}, "paged_decode": pages, "paged_decode_fp8": pages}
    assert set(kernel.sizes) == {"HQ", "HKV", "D"} | lengths.get(rung.task, {"B", "SQ", "SKV"})


@every_rung
def test_defines_are_levers_types_and_masks(rung: Rung) -> None:
    found = defines(rung)
    for lever, values in rung.levers.items():
        assert found.pop(lever) == values[0], lever
    if len(rung.masks) > 1:
        assert MASKS[int(found.pop("CAUSAL"))] == "none"
    if {"sliding_window", "softcap_sinks"} & {rung.task, *rung.also}:
        assert found.pop("WINDOW_LEFT") == found.pop("WINDOW_RIGHT") == "-1"
    if len(rung.encodings) > 1:
        assert ENCODINGS[int(found.pop("ENCODING"))] == rung.encodings[0]
    if len(rung.outputs) > 1:
        assert found.pop("ELEMENT") == ELEMENTS[rung.outputs[0]]
    found.pop("SCALED", None)  # of `qk_dot`: it changes the result, so it is not a lever
    found.pop("FUSED_PRODUCTS", None)  # of `fp8_hopper`: the arithmetic of its GPU, which the gate emulates
    found.pop("SOFT_CAP", None)  # of `softcap_sinks`: it changes the result
    found.pop("PAGE", None)  # of pages: the layout of its inputs
    assert not found


@every_rung
def test_rungs_that_take_codes_name_their_encodings(rung: Rung) -> None:
    coded = {line.element for line in weft.load(rung.path).arrays if line.name.endswith("_code") and line.role == "in"}
    assert coded == ({"u8"} if rung.encodings else set())
    assert set(rung.encodings) <= set(ENCODINGS) == set(QUANTISERS)


@every_rung
def test_types_are_those_of_the_arrays(rung: Rung) -> None:
    for element in rung.outputs:
        kernel = weft.load(rung.path, defines={"ELEMENT": ELEMENTS[element]} if len(rung.outputs) > 1 else {})
        types = {line.name: line.element for line in kernel.arrays}
        assert types["s" if rung.task == "qk_dot" else "o"] == element
        inputs = {types[name] for name in types if name in "qkv" or name == "q_code" or name.endswith("_cache")}
        assert inputs == {"u8" if rung.dtypes == ("u8",) else element}
        assert inputs <= set(rung.dtypes)


@every_rung
def test_limits_are_those_of_the_lines(rung: Rung) -> None:
    kernel = weft.load(rung.path)
    assert kernel.lines.gpu == rung.gpu
    given = {"B": 1, "HQ": 2, "HKV": 1, "SQ": 8, "SKV": 8}
    for d in range(1, 17):
        refused = [line for line in kernel.lines.requires if line.broken({**given, "D": d})]
        assert bool(refused) == bool(d % rung.multiple_d)


@every_rung
def test_the_header_has_every_section(rung: Rung) -> None:
    comment = {"CUDA": "//", "Triton": "#"}[rung.language]
    header = rung.path.read_text().partition(f"{comment} weft:")[0]
    assert re.findall(rf"^{comment} ([A-Z]\w+) {{2,}}\S", header, re.MULTILINE) == [
        "Idea",
        "History",
        "Levers",
        "Supports",
    ]
    levers = header.partition(f"{comment} Levers")[2].partition(f"{comment} Supports")[0]
    assert [lever for lever in rung.levers if lever not in levers] == []


def test_the_table_has_a_row_per_rung() -> None:
    lines = table().splitlines()
    assert [re.findall(r"`(\w+)`", line)[0] for line in lines[2:]] == list(RUNGS)
    assert len({line.count("|") for line in lines}) == 1


def test_the_readme_shows_this_table() -> None:
    begin, end = "<!-- ladder -->\n", "<!-- /ladder -->"
    text = README.read_text()
    if begin in text:
        assert text.partition(begin)[2].partition(end)[0].strip() == table().strip()
