"""The ladder on an L4 by the cycle model: docs/reference/ladder_profile.md is written by it. Nothing is measured.

    python benchmarks/profile_ladder.py [--write FILE] [--rungs wmma pipelined] [--shapes mission]

The mission shape runs whole. Of larger ones one head runs and counts as many times as there are heads: heads have their
own Q, K, V and O and do the same, and a launch whose grid is not exactly that many times larger is refused.
"""

import argparse
import json
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from weft.attention.shapes import SHAPES, Shape
from weft.core.chips import chip
from weft.core.errors import UsageError
from weft.engines.kernel_file import load
from weft.kernels.ladder import RUNGS
from weft.model.bounds import lower_bounds
from weft.model.counters import work_of
from weft.model.estimate import estimate
from weft.model.roofline import attention_roof, attention_work
from weft.model.work import Work
from weft.profile.baseline import integers
from weft.profile.kernel_profile import KernelProfile, LaunchProfile, profile_kernel

GPU = chip("l4")
ORDER = (
    "scalar", "fa1", "split_k", "wmma_qk", "wmma", "pipelined", "fa_triton",
    "fp8_scalar", "fp8_wmma", "fp8_mma", "fp8_pipelined", "fp8_triton",
)  # fmt: skip
WHOLE = ("mission",)
LARGER = ("validation_2048", "validation_2048_d128")
WEIGHTS = (0.5, 1.27)
"""The estimate's c as fitted on an RTX 3090 and on an A100."""
COLUMNS = (
    "rung", "launches", "limiter", "excess wavefronts", "LB_warm", "LB_cold", "EST_warm", "EST_warm µs", "c = 0.5",
    "c = 1.27", "without quantising", "matched",
)  # fmt: skip
SUMMARY, TABLES = "profile_ladder_summary", "profile_ladder"
"""The names of the marks of the page, `<!-- name -->` and `<!-- /name -->`, between which the tables go."""


@dataclass(frozen=True)
class Row:
    """One rung at one shape; cycles."""

    rung: str
    shape: str
    launches: int
    limiter: str
    excess: int
    lb_warm: int
    lb_cold: int
    est: tuple[float, float]
    est_at: tuple[float, ...]
    """At each of WEIGHTS."""
    last_est: tuple[float, float]
    """Of the last launch alone: without those that quantise, in a rung that has them."""
    matched: float

    def cells(self) -> str:
        low, high = self.est
        times = f"{low / GPU.boost_ghz / 1e3:.1f} to {high / GPU.boost_ghz / 1e3:.1f}"
        alone = "{:,.0f} to {:,.0f}".format(*self.last_est) if RUNGS[self.rung].task == "quantised_sdpa" else ""
        cells = [
            f"`{self.rung}`",
            str(self.launches),
            self.limiter,
            f"{self.excess:,}",
            f"{self.lb_warm:,}",
            f"{self.lb_cold:,}",
            f"{low:,.0f} to {high:,.0f}",
            times,
            *(f"{value:,.0f}" for value in self.est_at),
            alone,
            f"{self.matched:.0%}",
        ]
        return f"| {' | '.join(cells)} |"

    def short(self) -> str:
        """Microseconds: least, and expected."""
        low, high = (each / GPU.boost_ghz / 1e3 for each in self.est)
        return f"≥ {self.lb_warm / GPU.max_ghz / 1e3:,.1f}, {low:,.1f} to {high:,.1f}"


def sizes(shape: Shape) -> dict[str, int]:
    """Under the names of the launch lines."""
    return {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}


def row(rung: str, name: str) -> Row:
    """Profile one rung at one shape."""
    shape = SHAPES[name]
    kernel = load(RUNGS[rung].path)
    if name in WHOLE:
        profile, heads = profile_kernel(kernel, GPU, target=rung, sizes=sizes(shape)), 1
    else:
        heads = shape.b * shape.hq
        one = {**sizes(shape), "B": 1, "HQ": 1, "HKV": 1}
        grids = [prod(grid) for grid in kernel.grids(sizes=sizes(shape))]
        if grids != [heads * prod(grid) for grid in kernel.grids(sizes=one)]:
            raise UsageError(f"{rung} at {name}: its grids are not {heads} times those of one head")
        profile = profile_kernel(kernel, GPU, target=rung, sizes=one)
    works = [times(launch, heads) for launch in profile.launches]
    return _row(profile, name, works, heads)


def times(launch: LaunchProfile, heads: int) -> Work:
    """The work of so many heads."""
    counts = launch.counts.times(heads)
    distinct = {key: heads * value for key, value in launch.counts.vm.items() if key.startswith("vm__distinct_")}
    grid = replace(launch.work.launch, grid=heads * launch.work.launch.grid)
    return work_of(grid, counts.sass, counts.ncu, {**counts.vm, **distinct})


def _row(profile: KernelProfile, shape: str, works: list[Work], heads: int) -> Row:
    bounds = [lower_bounds(work, GPU) for work in works]
    guesses = [estimate(work, GPU) for work in works]
    return Row(
        rung=profile.target,
        shape=shape,
        launches=len(works),
        limiter=max(bounds, key=lambda each: each.warm).warm_limiter,
        excess=heads * sum(integers(launch)["excess_wavefronts"] for launch in profile.launches),
        lb_warm=sum(each.warm for each in bounds),
        lb_cold=bounds[0].cold + sum(each.warm for each in bounds[1:]),
        est=(sum(each.low for each in guesses), sum(each.high for each in guesses)),
        est_at=tuple(sum(estimate(work, GPU, issue_weight=c).high for work in works) for c in WEIGHTS),
        last_est=(guesses[-1].low, guesses[-1].high),
        matched=min(launch.counts.matched for launch in profile.launches),
    )


def table(name: str, rows: list[Row]) -> str:
    """Markdown of one shape."""
    shape = SHAPES[name]
    roof = attention_roof(attention_work(shape), GPU)
    lines = [
        f"### {name}: B {shape.b}, H {shape.hq}, S {shape.sq}, D {shape.d}",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
        *(each.cells() for each in rows),
        f"| any fp16 kernel | | tensor / dram | | {roof.warm:,.0f} | {roof.cold:,.0f} | | | | | | |",
    ]
    return "\n".join(lines)


def short_table(rows: list[Row]) -> str:
    """Returns one table of all shapes in microseconds: the lower bound (LB) and the estimate (EST)."""
    names = list(dict.fromkeys(each.shape for each in rows))
    heads = [f"B {SHAPES[name].b}, H {SHAPES[name].hq}, S {SHAPES[name].sq}, D {SHAPES[name].d}" for name in names]
    lines = [f"| rung | limiter | excess wavefronts | {' | '.join(heads)} |", "|" + "---|" * (3 + len(names))]
    for rung in dict.fromkeys(each.rung for each in rows):
        here = {each.shape: each for each in rows if each.rung == rung}
        first = here[names[0]]
        lines.append(
            f"| `{rung}` | {first.limiter} | {first.excess:,} | {' | '.join(here[n].short() for n in names)} |"
        )
    roofs = [attention_roof(attention_work(SHAPES[name]), GPU).warm / GPU.max_ghz / 1e3 for name in names]
    lines.append(f"| any fp16 kernel | tensor | | {' | '.join(f'≥ {roof:,.1f}' for roof in roofs)} |")
    return "\n".join(lines)


def put(file: Path, name: str, text: str) -> None:
    """Replaces what is between the page's marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, rest = file.read_text().split(begin)
    file.write_text(head + begin + "\n" + text + "\n" + end + rest.split(end)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rungs", nargs="+", choices=ORDER)
    parser.add_argument("--shapes", nargs="+", choices=(*WHOLE, *LARGER), default=[*WHOLE, *LARGER])
    parser.add_argument("--write", type=Path, help="the page with the marks between which the tables go")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.shapes:
        for rung in chosen.rungs or ORDER:
            rows.append(row(rung, name))
            print(rows[-1].cells(), flush=True)
    tables = "\n\n".join(table(name, [each for each in rows if each.shape == name]) for name in chosen.shapes)
    if chosen.write:
        put(chosen.write, SUMMARY, short_table(rows))
        put(chosen.write, TABLES, tables)
    print(json.dumps({"rows": [vars(each) for each in rows]}))


if __name__ == "__main__":
    main()
