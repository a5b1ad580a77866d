"""The brief of a search as files that users can edit: `00_task.md`, `01_generate.md` and `metrics.txt`.

`write_brief` writes them, `read_brief` reads them; their texts are sent to the model.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from weft.attention.shapes import shape as shape_of
from weft.core.chips import TensorKind
from weft.core.chips import chip as find_chip
from weft.core.errors import UsageError
from weft.evolve.search import start_source
from weft.evolve.settings import Settings
from weft.tasks.registry import find_task

TASK_FILE, GENERATE_FILE, METRICS_FILE = "00_task.md", "01_generate.md", "metrics.txt"
MOST_CHARS = 40_000
"""Limit of one file, so that prompts stay bounded."""
_MADE_FOR = re.compile(r"^<!-- weft evolve init: task (\S+), chip (\S+) -->$", re.MULTILINE)
METRICS: Mapping[str, str] = MappingProxyType(
    {
        "issued": "warp instructions issued",
        "mma": "tensor core instructions",
        "fp32": "warp instructions on the fp32 pipe",
        "alu": "warp instructions on the integer and compare pipe",
        "mufu": "exponentials and other special functions, warp instructions",
        "lsu": "warp instructions on the load/store unit",
        "ldg": "loads from global memory, warp instructions",
        "ldgsts": "cp.async copies, warp instructions",
        "sts": "stores to shared memory, warp instructions",
        "shuffles": "warp shuffles",
        "barriers": "warps that arrive at a barrier of their CTA",
        "shared_wavefronts": "cycles that shared memory is busy",
        "excess_wavefronts": "the part of them that is lost to bank conflicts",
        "global_sectors": "sectors of 32 bytes moved between L1 and L2",
        "registers": "per thread",
        "spill_bytes": "bytes of registers spilled to local memory, per thread",
        "shared_bytes": "shared memory of a CTA",
        "blocks_per_sm": "CTAs that fit on an SM at once",
        "ctas": "CTAs of all launches",
        "wave_factor": "how much longer it takes than with all SMs evenly busy; 1 is best",
    }
)
"""The counters that a proposal may predict, with descriptions: the names of `weft.evolve.levers.effects.observed`."""


@dataclass(frozen=True)
class Brief:
    """The three texts."""

    task: str
    generate: str
    metrics: str

    @property
    def counters(self) -> tuple[str, ...]:
        """The names in the list of metrics."""
        lines = (line.partition("#")[0].strip() for line in self.metrics.splitlines())
        return tuple(line.partition(":")[0].strip() for line in lines if line)


def make_brief(settings: Settings) -> Brief:
    """Return the brief that `weft evolve init` writes."""
    listed = "".join(f"{name}: {what}\n" for name, what in METRICS.items())
    head = "# Counters that a proposal may predict, one per line. Delete those that do not matter to you.\n"
    return Brief(_task_text(settings), GENERATE, head + listed)


def write_brief(folder: Path, settings: Settings) -> tuple[Path, ...]:
    """Write the brief to a folder, which is created. Existing files are an error: the user may have edited them."""
    brief = make_brief(settings)
    texts = {TASK_FILE: brief.task, GENERATE_FILE: brief.generate, METRICS_FILE: brief.metrics}
    there = [name for name in texts if (folder / name).exists()]
    if there:
        raise UsageError(f"{folder} has {', '.join(there)} already: choose another folder, or delete these files")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error
    return tuple(folder / name for name in texts)


def read_brief(folder: Path, settings: Settings) -> Brief:
    """Read the files. Raises UsageError for a file that is missing, too long or written for another task or GPU."""
    brief = Brief(*(_read(folder / name) for name in (TASK_FILE, GENERATE_FILE, METRICS_FILE)))
    made_for = _MADE_FOR.search(brief.task)
    if made_for and (made_for[1], made_for[2]) != (settings.task, settings.chip):
        raise UsageError(
            f"{folder / TASK_FILE} was written for task {made_for[1]} on {made_for[2]}, not for {settings.task} on "
            f"{settings.chip}: write another with weft evolve init"
        )
    unknown = [name for name in brief.counters if name not in METRICS]
    if unknown or not brief.counters:
        raise UsageError(f"{folder / METRICS_FILE}: no counter {', '.join(unknown)}; there are {', '.join(METRICS)}")
    return brief


def _read(path: Path) -> str:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}; weft evolve init writes it") from error
    if len(text) > MOST_CHARS:
        raise UsageError(f"{path} has {len(text)} characters; a brief has at most {MOST_CHARS}")
    return text


def _task_text(settings: Settings) -> str:
    return "\n".join(
        (
            f"<!-- weft evolve init: task {settings.task}, chip {settings.chip} -->",
            f"# Task: {settings.task}",
            "",
            *_what(settings),
            "## How it is judged",
            "",
            *_judged(settings),
            "",
            "## The chip",
            "",
            *_chip(settings),
            "",
            "## Launch lines",
            "",
            RULES,
            "The start declares:",
            "",
            "```cuda",
            *_start_lines(settings),
            "```",
            "",
            "## What a candidate may not contain",
            "",
            MAY_NOT,
        )
    )


def _what(settings: Settings) -> tuple[str, ...]:
    task = find_task(settings.task)
    outputs = ", ".join(f"`{each.name}`{' (optional)' if each.optional else ''}" for each in task.outputs)
    inputs = ", ".join(f"`{name}`" for name in task.inputs)
    stages = " → ".join(task.stages)
    contract = ATTENTION if {"q", "k", "v"} <= set(task.inputs) else ""
    return (task.what, "", f"Inputs: {inputs}. Outputs: {outputs}.", f"Stages: {stages}.", "", contract)


def _judged(settings: Settings) -> tuple[str, ...]:
    choice, score, quick = settings.choice, settings.score_on, find_task(settings.task).quick
    shapes = dict.fromkeys((*(choice.shapes or quick.shapes), score.shape))
    rows = [
        f"| `{name}` | {row.b} | {row.hq} | {row.hkv} | {row.sq} | {row.skv} | {row.d} |"
        for name, row in ((name, shape_of(name)) for name in shapes)
    ]
    return (
        "| shape | B | HQ | HKV | SQ | SKV | D |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Inputs: {', '.join(choice.regimes or quick.regimes)}. Masks: {', '.join(choice.masks or quick.masks)}.",
        "Every candidate is compiled and run on a virtual GPU. Out-of-bounds accesses, races, reads of memory that was",
        "never written and results that change from run to run fail it; so does an output further from the float64",
        "reference than the rounding of its arithmetic explains. There is no tolerance that can be used for speed.",
        "A candidate that wins is judged again on many other shapes, masks, inputs and seeds: one that is correct",
        "only on those above does not win.",
        "",
        f"Score: modelled cycles (EST, inputs in L2) at `{score.shape}` {score.dtype}, mask {score.mask}; lower is",
        f"better. A child is kept if it is at least {settings.gain:.0%} better than its parent.",
    )


def _chip(settings: Settings) -> tuple[str, ...]:
    chip = find_chip(settings.chip)
    sm = chip.architecture
    tensor = chip.tensor_macs.get(TensorKind.F16_F32)
    return (
        f"{chip.title}, compute capability {sm.capability}: {chip.sms} SMs at {chip.boost_ghz} GHz, "
        f"{chip.dram_gbs:g} GB/s of DRAM, {chip.l2_bytes >> 20} MB of L2.",
        f"An SM holds {sm.max_warps} warps, {sm.max_blocks} CTAs, {sm.registers} registers and "
        f"{sm.shared_bytes} bytes of shared memory; a CTA has at most {sm.shared_bytes_per_block} of them.",
        f"Per cycle an SM issues {sm.issue_slots} warp instructions and does {sm.fp32_lanes} fp32, {sm.alu_lanes} "
        f"integer and {sm.mufu_lanes} special operations, {sm.shared_wavefronts} wavefront of shared memory"
        + (f" and {tensor} multiply-adds of f16 on tensor cores." if tensor else "."),
    )


def _start_lines(settings: Settings) -> tuple[str, ...]:
    text = start_source(settings.start).text
    return tuple(line.strip() for line in text.splitlines() if re.match(r"\s*//\s*weft\s*:", line))


# Texts of the brief that are the same for every search.

RULES = """\
A candidate is one CUDA C++ file: device code, and comment lines that start with `// weft:`.

- `sizes`, `in`, `out`, `workspace`, `scalar`: arrays and numbers. Inputs and outputs keep their names, types and
  shapes.
- `define NAME = value`: a macro, and a name in formulas. `ELEMENT`, `CAUSAL`, `WINDOW_LEFT` and `WINDOW_RIGHT`, where
  the start has them, are set by the judge: keep them.
- `launch name<{D}>(arguments)  grid(x, y, z) block(x, y, z) shared(bytes) opt_in_shared when(formula)`: one launch.
  Several lines run in order. `grid`, `block` and the rest may be on a separate line below.
- Formulas have `+ - * / // % **`, comparisons, `min max cdiv sqrt ceil log2`, and nothing else; use `//` or `cdiv` for
  integers. More than 48 KB of shared memory needs `shared(bytes) opt_in_shared`.
- `workspace name : f32[...]` is scratch memory between launches; it starts as bytes of 0xFF, as outputs do.
"""

MAY_NOT = """\
- host code of any kind: no `main`, no `<<<…>>>`, no calls of the CUDA runtime, no library calls;
- includes other than CUDA's own device headers (`cuda_fp16.h`, `cuda_bf16.h`, `mma.h`, `cuda_pipeline.h` …);
  no `#line`, `#embed` or `#import`;
- options of the compiler beyond `-default-device`, `-std`, `-use_fast_math`, `-maxrregcount`, `-ftz`, `-prec-div`,
  `-prec-sqrt`, `-extra-device-vectorization`;
- code that depends on a particular shape, seed, address or value in order to pass; results that are kept from one
  launch to the next; writes to inputs; loops without an end;
- less precision than the start has: sums of products and the softmax's state are fp32.
"""

ATTENTION = """\
- q is [B, HQ, SQ, D], k and v are [B, HKV, SKV, D]; HQ is a multiple of HKV: query head h reads key head
  h / (HQ / HKV).
- O = softmax(q·kᵀ·scale + mask)·v in q's type; LSE is float32 [B, HQ, SQ], natural logarithm.
- Masks: `none`; `top_left`: query i sees keys j ≤ i; `bottom_right`: j ≤ i + SKV - SQ. A row that sees no key gives
  O = 0 and LSE = -inf, never NaN.
"""

GENERATE = """\
# How to propose a child

You improve one CUDA kernel, the parent, by small and reasoned steps. Everything you propose is compiled, judged and
profiled; your predictions are compared with the measurements, and both are kept.

1. Read what limits the parent, its counters, and the insights. A refuted insight is as useful as a confirmed one:
   do not repeat it in other words.
2. Change **exactly two levers**: two design decisions that can be named, such as the CTA tile, the number of warps, the
   depth of the pipeline, the layout of shared memory, how tiles are copied, where Q or the scores are kept, how exp is
   computed, when the output is rescaled, how the tail is masked, the number of splits. Leave everything else as it is.
3. State a hypothesis: why these two together make the kernel faster on this chip.
4. Predict which counters of the list fall or rise, and why. Predict only what you expect to move by 1 % or more.
5. Write the whole file, with all launch lines. It must be correct first: a fast wrong kernel has no value.

## Reply

Exactly one block of CUDA and one of JSON, and no other fenced block:

```cuda
// weft: … all launch lines …
… the whole file …
```
```json
{
  "levers": [
    {"name": "BLOCK_N", "before": "32", "after": "64"},
    {"name": "COPY", "before": "plain", "after": "async"}
  ],
  "hypothesis": "one or two sentences",
  "predicted": [
    {"counter": "barriers", "direction": "falls", "why": "half as many tiles"}
  ]
}
```
"""
