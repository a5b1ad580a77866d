"""The brief of a search as files that people read and edit: `00_task.md`, `01_generate.md` and `metrics.txt`.

`write_brief` writes them, `read_brief` reads them back: what they say is what the model is told.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from weft.attention.shapes import SHAPES
from weft.core.chips import TensorKind
from weft.core.chips import chip as find_chip
from weft.core.errors import UsageError
from weft.evolve.search import start_source
from weft.evolve.settings import Settings
from weft.tasks.registry import find_task

from .metrics import METRICS
from .wording import ATTENTION, GENERATE, MAY_NOT, RULES

TASK_FILE, GENERATE_FILE, METRICS_FILE = "00_task.md", "01_generate.md", "metrics.txt"
MOST_CHARS = 40_000
"""Of one file: prompts stay bounded."""
_MADE_FOR = re.compile(r"^<!-- weft evolve init: task (\S+), chip (\S+) -->$", re.MULTILINE)


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
    """As `weft evolve init` writes it."""
    listed = "".join(f"{name}: {what}\n" for name, what in METRICS.items())
    head = "# Counters that a proposal may predict, one per line. Delete those that do not matter to you.\n"
    return Brief(_task_text(settings), GENERATE, head + listed)


def write_brief(folder: Path, settings: Settings) -> tuple[Path, ...]:
    """Into a folder, which is made; files that are there already are an error: somebody may have edited them."""
    brief = make_brief(settings)
    texts = {TASK_FILE: brief.task, GENERATE_FILE: brief.generate, METRICS_FILE: brief.metrics}
    there = [name for name in texts if (folder / name).exists()]
    if there:
        raise UsageError(f"{folder} has {', '.join(there)} already: choose another folder, or delete what is there")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error
    return tuple(folder / name for name in texts)


def read_brief(folder: Path, settings: Settings) -> Brief:
    """What the files say now. Raises UsageError for one that is missing, too long or made for something else."""
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
        for name, row in ((name, SHAPES[name]) for name in shapes)
    ]
    return (
        "| shape | B | HQ | HKV | SQ | SKV | D |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Inputs: {', '.join(choice.regimes or quick.regimes)}. Masks: {', '.join(choice.masks or quick.masks)}.",
        "Every candidate is compiled and run on a virtual GPU. Out-of-bounds accesses, races, reads of memory that was",
        "never written and results that change from run to run fail it; so does an output further from the float64",
        "reference than the rounding of its own arithmetic explains. There is no tolerance to spend on speed.",
        "A candidate that wins is judged again on many other shapes, masks, inputs and seeds: one that is right on",
        "those above only does not win.",
        "",
        f"Score: modelled cycles (EST, inputs in L2) at `{score.shape}` {score.dtype}, mask {score.mask}; less is",
        f"better. A child lives on if it is at least {settings.gain:.0%} better than its parent.",
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
