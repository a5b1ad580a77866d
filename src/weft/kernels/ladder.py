"""The table of the ladder: which rungs there are, in order, and what each supports. Data only.

tests/ladder checks that this table agrees with the declarations in each rung's file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

FOLDER = Path(__file__).parent

MASKS = ("none", "top_left", "bottom_right")
"""The define CAUSAL of a rung is the index into this tuple."""

ENCODINGS = ("sim_fp8", "e4m3")
"""The meaning of 8-bit codes, by the names of attention/quantise.py; the define ENCODING is the index into it."""

ELEMENTS: Mapping[str, str] = MappingProxyType({"f32": "float", "f16": "half", "bf16": "__nv_bfloat16"})
"""Type of an array → the define ELEMENT of a rung that supports several types."""

ANY_FLOAT = ("f16", "bf16", "f32")


@dataclass(frozen=True)
class Rung:
    """One kernel file: what it computes, and for which inputs."""

    name: str
    idea: str
    task: str
    """The arguments it takes: `sdpa`, `quantised_sdpa` (the same arguments, quantised by the kernel), `fp8_sdpa` (8-bit
    codes, a scale per head), `qk_dot` (the scores alone), `sdpa_backward` (Q, K, V, O, LSE and dO),
    `sdpa_varlen` (packed sequences, their ends), `paged_decode` (Q, pages of K and V, a table of them) or
    `paged_decode_fp8` (the same with codes in the pages)."""
    dtypes: tuple[str, ...]
    """Types of Q, K and V, the default first; of Q alone where only K and V are codes."""
    outputs: tuple[str, ...] = ANY_FLOAT
    """Types of the result, the default first. In an `sdpa` rung it is the type of Q."""
    encodings: tuple[str, ...] = ()
    """The meanings its 8-bit codes may have, the default first; empty for a rung without codes."""
    largest_d: int | None = None
    """The largest head dimension; None: no limit."""
    multiple_d: int = 1
    """Its head dimensions are multiples of this."""
    masks: tuple[str, ...] = MASKS
    gqa: bool = True
    """Several heads of Q may share one of K and V."""
    ragged: bool = True
    """Sequences may have any length of at least 1, not only complete tiles."""
    f16_range: bool = False
    """It takes only inputs within ±65504, for every type of the result."""
    also: tuple[str, ...] = ()
    """Other tasks that it computes, by the macros that their contract defines."""
    rows: str | None = None
    """The lever that is the number of queries of a CTA: blockIdx.x counts such blocks, blockIdx.y the query heads.
    None: its CTAs divide the work differently."""
    levers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Defines that change how the result is computed, not the result; the default first."""
    language: Literal["CUDA", "Triton"] = "CUDA"
    gpu: str = ""
    """The GPU it is for, where it needs instructions that not every GPU has; empty: any from sm_80 on."""

    @property
    def path(self) -> Path:
        """Return the path of the kernel's file."""
        return FOLDER / f"{self.name}{'.cu' if self.language == 'CUDA' else '.py'}"

    @property
    def file(self) -> str:
        """Return its name."""
        return self.path.name


_LADDER = (
    Rung(
        name="qk_dot",
        idea="one warp computes one dot product of quantised Q and K",
        task="qk_dot",
        dtypes=("u8",),
        outputs=("f32",),
        encodings=ENCODINGS,
        masks=("none",),
        levers={"WARPS": ("4", "1", "8")},
    ),
    Rung(
        name="scalar",
        idea="fused, online softmax, no tensor cores: the trusted baseline",
        task="sdpa",
        dtypes=ANY_FLOAT,
        rows="WARPS",
        levers={"WARPS": ("4", "1", "8")},
    ),
    Rung(
        name="fa1",
        idea="FlashAttention tiling, softmax state in fp32",
        task="sdpa",
        dtypes=ANY_FLOAT,
        largest_d=512,
        rows="BLOCK_M",
        levers={"BLOCK_M": ("16", "32"), "BLOCK_N": ("32", "64"), "WARPS": ("4", "2", "8")},
    ),
    Rung(
        name="split_k",
        idea="each part of the keys leaves (U, m, l), a second kernel merges",
        task="sdpa",
        dtypes=ANY_FLOAT,
        rows="WARPS",
        levers={"SPLITS": ("4", "1", "2", "8"), "WARPS": ("4", "1", "8")},
    ),
    Rung(
        name="fp8_scalar",
        idea="8-bit Q, K, V, fused, no tensor cores: the baseline of the 8-bit rungs",
        task="fp8_sdpa",
        dtypes=("u8",),
        encodings=ENCODINGS,
        rows="WARPS",
        levers={"WARPS": ("4", "1", "8")},
    ),
    Rung(
        name="wmma_qk",
        idea="Q·Kᵀ on WMMA with Kᵀ handled at load, P·V scalar",
        task="sdpa",
        dtypes=("f16",),
        outputs=("f16",),
        largest_d=128,
        rows="BLOCK_M",
        levers={
            "K_TRANSPOSE": ("fragment", "copy"),
            "BLOCK_M": ("32", "16", "64"),
            "BLOCK_N": ("32", "64"),
            "WARPS": ("4", "2", "8"),
        },
    ),
    Rung(
        name="wmma",
        idea="Q·Kᵀ and P·V on WMMA, partial tiles padded with zeros",
        task="sdpa",
        dtypes=("f16", "bf16"),
        outputs=("f16", "bf16"),
        largest_d=128,
        rows="BLOCK_M",
        levers={"BLOCK_M": ("32", "16", "64"), "BLOCK_N": ("32", "64"), "WARPS": ("4", "2", "8")},
    ),
    Rung(
        name="fp8_wmma",
        idea="8-bit Q, K, V become fp16 on the way into shared memory, both products on WMMA",
        task="fp8_sdpa",
        dtypes=("u8",),
        encodings=ENCODINGS,
        largest_d=128,
        f16_range=True,
        rows="BLOCK_M",
        levers={
            "DEQUANT": ("lut", "direct"),
            "BLOCK_M": ("32", "16", "64"),
            "BLOCK_N": ("32", "64"),
            "WARPS": ("4", "2", "8"),
        },
    ),
    Rung(
        name="fp8_mma",
        idea="quantises Q, K, V and P to E4M3 itself, both products on FP8 tensor cores",
        task="quantised_sdpa",
        dtypes=ANY_FLOAT,
        largest_d=128,
        levers={
            "FLUSH": ("64", "0"),
            "SMOOTH": ("1", "0"),
            "BLOCK_M": ("64", "32", "128"),
            "BLOCK_N": ("64", "128"),
        },
    ),
    Rung(
        name="pipelined",
        idea="mma.sync on registers, cp.async double buffering, XOR swizzle, split keys where the grid is small",
        task="sdpa",
        dtypes=("f16", "bf16"),
        outputs=("f16", "bf16"),
        largest_d=128,
        also=("sliding_window",),
        rows="BLOCK_M",
        levers={"BLOCK_M": ("64", "32", "128"), "BLOCK_N": ("64", "32"), "SMS": ("58", "1", "108")},
    ),
    Rung(
        name="hopper_tma",
        idea="sm_90a: a producer loads tiles by TMA, consumer warpgroups multiply them by wgmma",
        task="sdpa",
        dtypes=("f16",),
        outputs=("f16",),
        largest_d=128,
        multiple_d=8,
        rows="BLOCK_M",
        levers={"BLOCK_M": ("128", "64", "192"), "BLOCK_N": ("64", "128"), "STAGES": ("2", "3")},
        gpu="h100",
    ),
    Rung(
        name="fp8_pipelined",
        idea="bit-identical to `fp8_mma`, with cp.async double buffering, XOR swizzle, ldmatrix",
        task="quantised_sdpa",
        dtypes=ANY_FLOAT,
        largest_d=128,
        levers={"BLOCK_M": ("64", "32", "128"), "BLOCK_N": ("64", "128")},
    ),
    Rung(
        name="fp8_hopper",
        idea="sm_90a: the recipe of `fp8_mma` by TMA and wgmma, V transposed in shared memory",
        task="quantised_sdpa",
        dtypes=ANY_FLOAT,
        largest_d=128,
        levers={"BLOCK_M": ("128", "64"), "BLOCK_N": ("128", "64"), "STAGES": ("2", "3")},
        gpu="h100",
    ),
    Rung(
        name="fa_triton",
        idea="the same tiling in Triton, which chooses layouts, copies and stages",
        task="sdpa",
        dtypes=("f16", "bf16"),
        outputs=("f16", "bf16"),
        largest_d=128,
        also=("sliding_window",),
        rows="BLOCK_M",
        levers={"BLOCK_M": ("64", "128"), "BLOCK_N": ("32", "64"), "WARPS": ("4", "8"), "STAGES": ("2", "3")},
        language="Triton",
    ),
    Rung(
        name="fp8_triton",
        idea="the recipe of `fp8_mma` in Triton, without merging the flushed sums",
        task="quantised_sdpa",
        dtypes=ANY_FLOAT,
        largest_d=128,
        levers={
            "FLUSH": ("64", "0"),
            "SMOOTH": ("1", "0"),
            "BLOCK_M": ("64", "128"),
            "BLOCK_N": ("64", "128"),
            "WARPS": ("4", "8"),
            "STAGES": ("2", "3"),
        },
        language="Triton",
    ),
    Rung(
        name="backward",
        idea="the backward pass without atomics: a warp per query, then per key",
        task="sdpa_backward",
        dtypes=ANY_FLOAT,
        levers={"WARPS": ("4", "1", "8")},
    ),
    Rung(
        name="backward_mma",
        idea="the same on tiles by mma.sync",
        task="sdpa_backward",
        dtypes=("f16", "bf16"),
        outputs=("f16", "bf16"),
        largest_d=128,
        levers={"BLOCK_M": ("64", "32"), "BLOCK_N": ("64", "32")},
    ),
    Rung(
        name="backward_triton",
        idea="the same on tiles and tensor cores, in Triton",
        task="sdpa_backward",
        dtypes=("f16", "bf16"),
        outputs=("f16", "bf16"),
        largest_d=128,
        levers={"BLOCK_M": ("32", "64"), "BLOCK_N": ("32", "64"), "WARPS": ("4", "8"), "STAGES": ("2", "3")},
        language="Triton",
    ),
    Rung(
        name="varlen_triton",
        idea="`fa_triton` on packed sequences",
        task="sdpa_varlen",
        dtypes=("f16", "bf16"),
        outputs=("f16", "bf16"),
        largest_d=128,
        levers={"BLOCK_M": ("64", "128"), "BLOCK_N": ("32", "64"), "WARPS": ("4", "8"), "STAGES": ("2", "3")},
        language="Triton",
    ),
    Rung(
        name="paged_decode",
        idea="decode over pages of keys, in splits that a second kernel merges",
        task="paged_decode",
        dtypes=ANY_FLOAT,
        masks=("none", "bottom_right"),
        levers={"SPLITS": ("4", "1", "2", "8"), "WARPS": ("4", "1", "8")},
    ),
    Rung(
        name="paged_decode_fp8",
        idea="the same on E4M3 codes of K and V, read as words, scaled after the sums",
        task="paged_decode_fp8",
        dtypes=ANY_FLOAT,
        encodings=("e4m3",),
        masks=("none", "bottom_right"),
        levers={"SPLITS": ("4", "1", "2", "8"), "WARPS": ("4", "1", "8")},
    ),
)

RUNGS: Mapping[str, Rung] = MappingProxyType({rung.name: rung for rung in _LADDER})
"""The rungs by name, in their order on the ladder."""


def table() -> str:
    """Return the ladder as a Markdown table."""
    rows = ["| rung | idea | Q, K, V | D | masks | levers |", "|---|---|---|---|---|---|"]
    for rung in RUNGS.values():
        largest = "any" if rung.largest_d is None else f"≤ {rung.largest_d}"
        causal = ", ".join(f"`{mask}`" for mask in rung.masks if mask != "none") or "none"
        masks = "all" if rung.masks == MASKS else causal
        levers = ", ".join(f"`{lever}`" for lever in rung.levers)
        rows.append(f"| `{rung.name}` | {rung.idea} | {', '.join(rung.dtypes)} | {largest} | {masks} | {levers} |")
    return "\n".join(rows) + "\n"
