"""Candidate causes for the unsolved cases of the logs, as edits, and the result of each.

All of it is reconstruction: the kernels of the logs are not available, only their symptoms.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import weft
from tests.zoo.bug import FOLDER, Edit
from tests.zoo.zoo import BUGS
from weft.attention.quantise import SimFp8
from weft.attention.reference import attention
from weft.attention.shapes import SHAPES
from weft.kernels import RUNGS
from weft.kernels.ladder import MASKS

Array = npt.NDArray[Any]

SPLIT_SHAPES = ("split_4", "split_64", "split_65", "split_128", "split_192", "split_256", "split_512")

DRAWS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "normal / 10": lambda rng, size: rng.standard_normal(size) / 10,
    "uniform": lambda rng, size: rng.random(size),
}
"""How the logs may have drawn their inputs: randn, randn · 0.1, rand."""


@dataclass(frozen=True)
class Candidate:
    """A possible cause."""

    key: str
    title: str
    edits: tuple[Edit, ...]


SPLIT_K = (
    Candidate("offsets", "partials written as [split, query], read as [query, split]", BUGS["Z07"].edits),
    Candidate("counted_twice", "merge weighs unnormalised U with l · exp(m - M)", BUGS["Z05"].edits),
    Candidate(
        "half_warp",
        "the reduction of the dot product starts at offset 8: each half of the warp has its own score",
        (Edit("offset = 16; offset > 0", "offset = 8; offset > 0"),),
    ),
    Candidate(
        "lane_column",
        "merge reads column lane instead of column d: columns 32 to 63 repeat 0 to 31",
        (Edit("part_u[part * D + d];\n        }", "part_u[part * D + lane];\n        }"),),
    ),
    Candidate(
        "small_scale",
        "the scale of the first test, 1/√4, stayed in the wrapper",
        (Edit("// weft: scalar    scale : f32 = 1 / sqrt(D)", "// weft: scalar    scale : f32 = 0.5"),),
    ),
    Candidate(
        "half_tile_u",
        "P·V walks 32 keys of a tile of 64, l sums all of them",
        (Edit("+ p * float(v[row + d]);", "+ (key % 64 < 32 ? p : 0.0f) * float(v[row + d]);"),),
    ),
    Candidate(
        "second_key_twice",
        "a lane has two keys of a tile of 64, and l counts the second twice",
        (Edit("l = l * rescale + p;", "l = l * rescale + (key % 64 < 32 ? p : 2.0f * p);"),),
    ),
)


def write(candidate: Candidate, source: Path, folder: Path) -> Path:
    """The candidate as a kernel file."""
    text = source.read_text()
    for edit in candidate.edits:
        text = edit.apply(text)
    path = folder / f"{candidate.key}.cu"
    path.write_text(text)
    return path


@dataclass(frozen=True)
class Setting:
    """What the logs do not say: how inputs were drawn, whether there was a mask, how many keys a split has."""

    draw: str = "normal"
    mask: str = "none"
    keys_per_split: int = 64


def split_errors(
    candidate: Candidate, setting: Setting, folder: Path, *, shapes: tuple[str, ...] = SPLIT_SHAPES
) -> list[float]:
    """Largest error of O at each shape."""
    path = write(candidate, RUNGS["split_k"].path, folder)
    errors = []
    for name in shapes:
        shape = SHAPES[name]
        rng = np.random.default_rng(shape.skv)
        q, k, v = (DRAWS[setting.draw](rng, size).astype(np.float16) for size in (shape.q, shape.kv, shape.kv))
        splits = -(-shape.skv // setting.keys_per_split)
        flags = {"SPLITS": str(splits), "CAUSAL": str(MASKS.index(setting.mask))}
        _, arrays = weft.load(path, defines=flags).run(weft.VirtualGPU(), {"q": q, "k": k, "v": v})
        expected = attention(q, k, v, causal=None if setting.mask == "none" else "top_left").o
        errors.append(float(np.abs(arrays["o"].astype(np.float64) - expected).max()))
    return errors


_FIXED = Edit("// weft: define  BUG = 1", "// weft: define  BUG = 0")
_DUMP = (
    Edit("// weft: scalar  scale ", "// weft: out     table          : f32[3, 256]\n// weft: scalar  scale "),
    Edit("o, lse, HKV, SQ, SKV, scale)\n", "o, lse, HKV, SQ, SKV, scale, table)\n"),
    Edit("int HKV, int SQ, int SKV, float scale) {", "int HKV, int SQ, int SKV, float scale, float* table) {"),
    Edit(
        "#pragma unroll\n    for (int r = 0; r < ROWS; ++r) {\n        const int query",
        "    if (blockIdx.x + blockIdx.y + blockIdx.z == 0)\n"
        "        for (int i = threadIdx.x; i < 3 * 256; i += THREADS) table[i] = tables[i];\n"
        "#pragma unroll\n    for (int r = 0; r < ROWS; ++r) {\n        const int query",
    ),
)
"""The tables of the first CTA as they are after the last tile: what the engineer printed."""

TABLES = (
    Candidate("fixed", "the right kernel", (_FIXED,)),
    Candidate("not_compiled", "the fix never reached the binary: the old one was found by its name", ()),
    Candidate(
        "padding",
        "the offset now counts floats but not the padding of the score rows",
        (
            _FIXED,
            Edit("S_OFFSET + BLOCK_M * S_STRIDE * sizeof(float);", "S_OFFSET + BLOCK_M * BLOCK_N * sizeof(float);"),
        ),
    ),
    Candidate(
        "one_table",
        "the table of K was moved, that of V was not",
        (
            _FIXED,
            Edit("first_key, BLOCK_N, SKV, tables + 256);", "first_key, BLOCK_N, SKV, tables - 256);"),
            Edit("tables[256 + code] =", "tables[code - 256] ="),
            Edit("table[i] = tables[i];", "table[i] = tables[i / 256 == 1 ? i - 512 : i];"),
        ),
    ),
    Candidate(
        "short_block",
        "the tables moved, the launch still asks for the old size",
        (_FIXED, Edit("+ 4 * BLOCK_M * (BLOCK_N + 4)", "+ 2 * BLOCK_M * (BLOCK_N + 4)")),
    ),
)


@dataclass(frozen=True)
class TableReading:
    """What is seen of a candidate."""

    ones: tuple[int, ...]
    """Entries that read exactly 1.0, in the tables of K and V."""
    positive: float
    """Share of outputs above zero; about half in a right kernel."""
    error: float
    """Largest error of O."""
    codes: tuple[str, ...]
    """Findings."""


def read_tables(candidate: Candidate, folder: Path, *, shape_name: str = "split_128") -> TableReading:
    """Run a candidate on unit-normal inputs."""
    shape = SHAPES[shape_name]
    given: dict[str, Array] = {}
    meant: list[Array] = []
    rng = np.random.default_rng(0)
    for name, size in zip("qkv", (shape.q, shape.kv, shape.kv), strict=True):
        coded = SimFp8().encode(rng.standard_normal(size).astype(np.float32))
        given |= {f"{name}_code": coded.codes, f"{name}_scale": coded.scale}
        meant.append(SimFp8().decode(*coded))
    dumping = Candidate(candidate.key, candidate.title, (*_DUMP, *candidate.edits))
    run, arrays = weft.load(write(dumping, FOLDER / "z04.cu", folder)).run(weft.VirtualGPU(), given)
    o, expected = arrays["o"].astype(np.float64), attention(*meant).o
    return TableReading(
        ones=tuple(int((arrays["table"][i] == 1.0).sum()) for i in (0, 1)),
        positive=float((o > 0).mean()),
        error=float(np.abs(o - expected).max()),
        codes=tuple(sorted({finding.code for finding in run.findings})),
    )
