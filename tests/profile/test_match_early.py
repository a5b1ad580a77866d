"""An access with two widths in SASS is counted at both: brute force, and the kernel of the ladder that has it."""

from pathlib import Path

import numpy as np
import pytest

import weft
from tests.profile.test_patterns import SPACE_BYTES, binary, patterns, wavefronts
from weft.engines.kernel_file import load
from weft.engines.sample import CtaSample
from weft.profile.kernel_match import match_kernel
from weft.profile.profiler import Profiler
from weft.profile.site_probe import ALIGNED, EARLY, SPAN, SiteProbe, site_name

ENTRY = "shared_load<4>"


@pytest.mark.parametrize("early", [1, 3])
def test_early_words_next_to_wide_accesses(early: int) -> None:
    """Eight adjacent words: two accesses of 16 bytes, and `early` accesses of 4 bytes anywhere among them."""
    starts = np.minimum(patterns(16, seed=early)[:400], SPACE_BYTES - 32)
    words = np.stack([np.where(starts >= 0, starts + 4 * word, -1) for word in range(8)], axis=1)
    kernel = match_kernel(binary(), ENTRY)
    (line,) = [match.access.line for match in kernel.matches if match.access.opcode.startswith("ld.shared")]
    watch = SiteProbe(kernel.last_line, {line: (16 | ALIGNED | early * EARLY | 32 * SPAN, 0)})
    args = [words.reshape(-1).astype(np.int32), np.zeros(words.size, np.uint32)]
    gpu = weft.VirtualGPU(threads=1)
    run = gpu.launch(binary(), ENTRY, words.size // 32, 32, args, shared_bytes=SPACE_BYTES, watch=watch)
    rows = [(row[0], 16) for row in words.tolist()] + [(row[4], 16) for row in words.tolist()]
    rows += [(row[number], 4) for row in words.tolist() for number in range(7, 7 - early, -1)]
    waves, ideal = np.sum([wavefronts(row, width, load=True) for row, width in rows], axis=0).tolist()
    found = [run.counters[site_name(f"shared_{name}", line)] for name in ("accesses", "wavefronts", "ideal")]
    assert found == [len(starts) * (2 + early), waves, ideal]


def test_the_kernel_of_the_ladder_that_loads_early() -> None:
    """128 x 128 results of 8 warps; k-tiles of 8, in which a lane reads eight rows of A and eight words of B.

    A: two broadcast LDS.128 per row and k-tile, two wavefronts each, and one LDS of two words in the same bank.
    B: two LDS.128 per k with 16 bytes of every 32, so that each phase meets half of the banks twice. Eight STS.
    """
    folder = Path(__file__).parents[2] / "benchmarks" / "sgemm"
    profiler = Profiler(weft.VirtualGPU("sm_86", threads=1))
    load(folder / "kernel_5.cu", arch="sm_86").run(profiler, {}, sizes={"N": 128}, ctas=CtaSample(((0, 0),)))
    counts = profiler.counts[-1][1]
    tiles = 8 * (128 // 8)
    assert counts.matched == 1.0 and not counts.notes
    assert counts.ncu["smsp__sass_inst_executed_op_shared_ld.sum"] == tiles * (8 * (2 + 1) + 8 * 2)
    assert counts.ncu["memory_l1_wavefronts_shared"] == tiles * (8 * (2 * 2 + 2) + 8 * 2 * 8 + 8)
    assert counts.ncu["memory_l1_wavefronts_shared_ideal"] == tiles * (8 * (2 * 2 + 1) + 8 * 2 * 4 + 8)
