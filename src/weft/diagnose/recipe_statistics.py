"""Who computed a wrong mean or step of the FP8 recipe.

A code is e4m3((x - mean) · 1 / step). Where the codes of a block are wrong because its mean or step is, the mistake is
where that statistic is computed. A step is the largest magnitude / 448: a largest that is too large is wrong where it
first appears, one that is too small where the right one was seen last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.e4m3 import E4M3PerBlock
from weft.attention.quantise import E4M3_MAX
from weft.ptx import isa

from .acts import Act
from .board import Sheet
from .compare import Compared
from .divergence import first_index
from .nodes import Nodes, Numbers, Where
from .recipe_expected import RecipeStages
from .start_lines import start_line
from .tags import INPUTS, Sizes, Tags
from .taps import Operand, Site

NEAR_MEAN = 2.0**-6
"""Relative: the order of a sum may decide how a mean is rounded to bf16."""
NEAR_STEP = 1e-5
SAME = 1e-6
"""Relative distance of two float32 values of one number, before and after a division and its inverse."""
NEAR_CODE = 2.0**-3
"""Relative: E4M3 has three fraction bits."""
FEW_COLUMNS = 8
"""With fewer, a difference may be equal to a key by coincidence."""
_STAGES = ("q", "k", "v")


@dataclass
class Statistics:
    """What was subtracted from each element of Q, K and V, and what it was multiplied with or divided by."""

    sizes: Sizes
    means: dict[str, Sheet] = field(default_factory=dict)
    factors: dict[str, tuple[Sheet, Sheet]] = field(default_factory=dict)
    """The first and the last one: Q is also multiplied with K's mean, for the LSE."""

    def __post_init__(self) -> None:
        for stage in _STAGES:
            rows = self.sizes.q_rows if stage == "q" else self.sizes.kv_rows
            first, last, mean = (Sheet.blank(rows, self.sizes.shape.d) for _ in range(3))
            self.factors[stage], self.means[stage] = (first, last), mean

    def multiplied(self, stage: str, elements: Tags, factors: Tags, values: Numbers, where: Where) -> None:
        """Record the factors of some elements."""
        first, last = self.factors[stage]
        at = elements["row"], elements["col"]
        fresh = first.event[at] == 0
        rest = tuple(each[fresh] for each in at)
        first.put(rest, values[fresh], where.only(fresh), factors["node"][fresh])
        last.put(at, values, where, factors["node"])

    def subtracted(self, stage: str, elements: Tags, means: Tags, values: Numbers, where: Where) -> None:
        """Record what is subtracted from some elements."""
        self.means[stage].put((elements["row"], elements["col"]), values, where, means["node"])


def wrong_statistic(
    found: Compared, statistics: Statistics, nodes: Nodes, acts: Sequence[Act], stages: RecipeStages
) -> Operand | None:
    """Return the wrong mean or step of the first wrong code, or that it has no step, where it is loaded; None if
    they are right or unknown.
    """
    stage = found.key[0]
    if stage not in _STAGES:
        return None
    index = first_index(found.wrong)
    head, row, column = _flat(found, index, stages)
    at = head * getattr(stages.problem.workload.shape, "sq" if stage == "q" else "skv") + row, column
    x = float(getattr(stages.run, stage)[index[0], index[1], row, column])
    mean, should = statistics.means[stage], _mean(stages, stage, index)
    if mean.event[at]:
        used_mean = float(mean.values[at]) + 0.0  # never -0
        excess = used_mean - should
        if abs(excess) > NEAR_MEAN * abs(should) + 1e-6:
            lacking = _lacking(mean, at, stages, index)
            if lacking is not None:
                words = f"the mean lacks key {lacking}: it is {used_mean:.4g}, not {should:.4g}"
                return _operand(_first_load(acts, stage), words)
            site = _from(_site(nodes, mean, at), excess * stages.problem.workload.shape.skv, NEAR_MEAN)
            return _operand(site, f"the mean is {used_mean:.4g}, not {should:.4g}")
        x -= used_mean
    if not found.tap.made[index] and not any(sheet.event[at] for sheet in statistics.factors[stage]):
        return _operand(_load(acts, stage), "it is not divided by a step")
    actual, step = float(found.tap.values[index]), _step(stages, stage, (index[0], index[1], row, column))
    for sheet in statistics.factors[stage]:
        for used in _as_step(float(sheet.values[at])) if sheet.event[at] else ():
            explained = min(max(x / used, -E4M3_MAX), E4M3_MAX)
            if abs(actual - explained) <= NEAR_CODE * abs(explained) and abs(used - step) > NEAR_STEP * step:
                site = _site(nodes, sheet, at, _of_largest(nodes, used * E4M3_MAX, step * E4M3_MAX))
                site = _at_start(nodes, site, used * E4M3_MAX)
                return _operand(site, f"the step is {used:.4g}, not {step:.4g}")
    return None


def _operand(site: Site | None, words: str) -> Operand | None:
    return Operand(site, words) if site is not None else None


def _flat(found: Compared, index: tuple[int, ...], stages: RecipeStages) -> tuple[int, int, int]:
    """Return the head of an element, counted over the batch, its row in the head, and its column."""
    stage, tile = found.key
    b, h, row, column = index
    heads = getattr(stages.problem.workload.shape, "hq" if stage == "q" else "hkv")
    first = stages.tiles[tile].keys.start if tile is not None else 0
    return b * heads + h, first + row, column


def _mean(stages: RecipeStages, stage: str, index: tuple[int, ...]) -> float:
    return float(stages.run.k_coded.mean[index[0], index[1], index[3]]) if stage == "k" else 0.0


def _lacking(mean: Sheet, at: tuple[int, int], stages: RecipeStages, index: tuple[int, ...]) -> int | None:
    """Return the one key of K that all observed means of a head lack; None if there is none, or several."""
    k = stages.run.k[index[0], index[1]].astype(np.float64)
    row = at[0]
    known = mean.event[row] != 0
    should = stages.run.k_coded.mean[index[0], index[1]]
    lost = (should - mean.values[row]) * len(k)
    near = np.abs(k - lost) <= NEAR_MEAN * (np.abs(should) * len(k) + np.abs(k)) + 1e-5
    found = np.flatnonzero(near[:, known].all(axis=1))
    return int(found[0]) if found.size == 1 and known.sum() >= FEW_COLUMNS else None


def _step(stages: RecipeStages, stage: str, index: tuple[int, ...]) -> float:
    run, (b, h, row, column) = stages.run, index
    if stage == "v":
        return float(run.v_coded.scale[b, h, column])
    x, coded = (run.q, run.q_coded) if stage == "q" else (run.k, run.k_coded)
    rows = stages.recipe.block_m if stage == "q" else stages.recipe.block_n
    spread: Array = E4M3PerBlock(rows).spread(coded.scale, x.shape)
    return float(spread[b, h, row, 0])


def _as_step(factor: float) -> Iterator[float]:
    """Yield the step, if the value was multiplied with its inverse or divided by it."""
    if factor and np.isfinite(factor):
        yield 1 / factor
        yield factor


def _of_largest(nodes: Nodes, used: float, right: float) -> int | None:
    """Return the node of the largest magnitude where it went wrong."""
    wrong, lost = _computed(nodes, used), _computed(nodes, right)
    if used < right and lost:
        return lost[-1]
    return next((node for node in wrong if _is_largest(nodes, node)), None)


def _computed(nodes: Nodes, magnitude: float) -> list[int]:
    """Return the nodes of this magnitude that are no input, in the order of time."""
    apart = np.abs(np.abs(nodes.values[: nodes.count]) - magnitude)
    return np.flatnonzero((apart <= SAME * magnitude) & (nodes.event_of[: nodes.count] != 0)).tolist()


def _at_start(nodes: Nodes, site: Site | None, largest: float) -> Site | None:
    """Return the site, at the line where the largest starts if it is a start: no element has this magnitude."""
    inputs = nodes.event_of[: nodes.count] == 0
    if site is None or (np.abs(np.abs(nodes.values[: nodes.count][inputs]) - largest) <= SAME * largest).any():
        return site
    return _from(site, largest, SAME)


def _from(site: Site | None, start: float, near: float) -> Site | None:
    """Return the site, at the line that gives the sum or the largest this start, if there is one."""
    line = start_line(site.place if site is not None else None, lambda number: abs(number - start) <= near * abs(start))
    return replace(site, place=line) if site is not None and line is not None else site


def _first_load(acts: Sequence[Act], stage: str) -> Site | None:
    event = next((act.event for act in acts if act.what == "load" and act.kinds == (INPUTS[stage],)), None)
    return Site.of(event, 0) if event is not None else None


def _load(acts: Sequence[Act], stage: str) -> Site | None:
    """Return the load of an input in the launch that stores its codes."""
    moved = [act for act in acts if act.kinds == (INPUTS[stage],) and act.space == "global"]
    coding = [act.event.launch for act in moved if act.what == "store"]
    event = next((act.event for act in moved if act.what == "load" and act.event.launch in coding), None)
    return Site.of(event, 0) if event is not None else None


def _is_largest(nodes: Nodes, node: int) -> bool:
    known = isa.lookup(nodes.events[int(nodes.event_of[node])].opcode)
    return known is not None and known[0].facts.computes == "larger"


def _site(nodes: Nodes, sheet: Sheet, at: tuple[int, int], made: int | None = None) -> Site | None:
    """Return who computed a statistic of an element: by its own node, or by an earlier one."""
    event = nodes.events[int(nodes.event_of[made or int(sheet.node[at])])]
    return Site.of(event, int(sheet.lane[at])) if event.place is not None else None
