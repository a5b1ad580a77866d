"""Runs limited by control flow: after a loop, where paths join, in a nested loop; and a compiled kernel."""

from pathlib import Path

import weft
from weft.engines.kernel_file import load
from weft.engines.sample import CtaSample
from weft.profile.block_runs import find_block_runs, limit_by_flow
from weft.profile.profiler import Profiler
from weft.profile.sass_text import SassBlock, SassInstruction

SGEMM = Path(__file__).parents[2] / "benchmarks" / "sgemm"


def graph(*successors: tuple[int, ...]) -> list[SassBlock]:
    nop = SassInstruction(0, "NOP", "", "", 0)
    return [SassBlock(number, (nop,), ways) for number, ways in enumerate(successors)]


def limits(blocks: list[SassBlock], runs: list[int], *known: int, open_: tuple[int, ...] = ()) -> list[int]:
    found = limit_by_flow(blocks, dict(enumerate(runs)), entered=4, known=known, open_=open_)
    return [found[number] for number in range(len(blocks))]


def test_after_a_loop_its_iterations_do_not_count() -> None:
    """0 → 1 ⟲ → 2: block 2 comes from the loop's latch."""
    assert limits(graph((1,), (1, 2), ()), [4, 400, 400], 1) == [4, 400, 4]


def test_before_a_loop_its_iterations_do_not_count() -> None:
    """Block 0 holds code that was hoisted out of the loop."""
    assert limits(graph((1,), (1, 2), ()), [400, 400, 4], 1) == [4, 400, 4]


def test_two_paths_that_join_are_not_two_runs() -> None:
    assert limits(graph((1, 2), (3,), (3,), ()), [4, 4, 4, 9]) == [4, 4, 4, 4]


def test_a_rarely_taken_path_limits_only_its_own_successors() -> None:
    """Block 1 ran once, and so did 2, which only 1 leads to; 3 is also reached by another path."""
    assert limits(graph((1, 3), (2,), (3,), ()), [4, 1, 9, 9], 1) == [4, 1, 1, 4]


def test_a_loop_in_a_loop() -> None:
    """0 → 1 → 2 ⟲ → 3 → 1 or 4: block 3 runs once per iteration of the outer loop, block 4 once."""
    blocks = graph((1,), (2,), (2, 3), (1, 4), ())
    assert limits(blocks, [4, 40, 400, 400, 400], 1, 2) == [4, 40, 400, 40, 4]


def test_a_block_with_estimated_runs_limits_nothing() -> None:
    """Block 1 got none of the iterations that it shares with others; the blocks after it may still have run."""
    assert limits(graph((1,), (2,), ()), [4, 0, 9], 1, open_=(1,)) == [4, 0, 4]


def test_the_blocks_around_an_unrolled_loop() -> None:
    """k from 0 to 255, unrolled: 32 warps run once through all code outside the loop."""
    profiler = Profiler(weft.VirtualGPU("sm_86", threads=1))
    file = load(SGEMM / "kernel_2.cu", arch="sm_86")
    run = file.run(profiler, {}, sizes={"N": 256}, ctas=CtaSample(((0, 0),))).run
    binary = file.compile(sizes={"N": 256})
    kernel = profiler.kernel(binary, run.entries[0])
    (_, counts) = profiler.counts[0]
    ptx_runs = [run.counters[f"vm__block@{block.id}"] for block in kernel.cfg.blocks]
    found = find_block_runs(kernel.blocks, kernel.cfg, kernel.matches, ptx_runs)
    outside = [number for number, block in enumerate(kernel.blocks) if number not in block.successors]
    assert max(found.runs[number] for number in outside) == 32
    # 256 multiply-adds for each of 32 warps, and one for alpha · sum + beta · C
    assert counts.sass["FFMA"] == 32 * 257
