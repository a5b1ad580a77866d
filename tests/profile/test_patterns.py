"""Wavefronts, sectors and tags of 5,000 random address patterns for every width, compared with a direct formula."""

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.records import Binary
from weft.profile.kernel_match import KernelMatch, match_kernel
from weft.profile.site_probe import SiteProbe, site_name

SOURCE = Path(__file__).parent / "cuda/patterns.cu"
WIDTHS = (1, 2, 4, 8, 16)
KINDS = ("shared_load", "shared_store", "global_load")
PATTERNS, BATCH = 5_000, 50
SPACE_BYTES = 16 * 1024


@cache
def device() -> weft.VirtualGPU:
    return weft.VirtualGPU(threads=1)


@cache
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, entries=[f"{kind}<{width}>" for kind in KINDS for width in WIDTHS])


def patterns(width: int, seed: int) -> np.ndarray:
    """Return offsets of 32 lanes each, -1 for an inactive lane; some with equal neighbours, some with few lanes."""
    rng = np.random.default_rng(seed)
    reach = rng.choice([1, 2, 8, 64, 512, SPACE_BYTES // width], (PATTERNS, 1)).clip(max=SPACE_BYTES // width)
    offsets = width * (rng.integers(0, 1 << 30, (PATTERNS, 32)) % reach)
    alike = rng.choice([0, 1, 2, 3], PATTERNS)
    lane = np.arange(32)
    for bits in (1, 2, 3):
        offsets[alike == bits] = offsets[alike == bits][:, lane & ~bits]
    regular = rng.random(PATTERNS) < 0.3
    stride = rng.choice([1, 2, 4, 8, 9, 16, 33], (PATTERNS, 1))
    offsets[regular] = (width * stride * lane)[regular] % SPACE_BYTES
    off = rng.random((PATTERNS, 32)) < rng.choice([0, 0, 0.2, 0.9], (PATTERNS, 1))
    offsets[off] = -1
    offsets[:, 5] = np.maximum(offsets[:, 5], 0)  # at least one lane is active
    return offsets.astype(np.int32)


def wavefronts(offsets: list[int], width: int, *, load: bool) -> tuple[int, int]:
    active = [lane for lane in range(32) if offsets[lane] >= 0]
    phase = {16: 8, 8: 16}.get(width, 32)
    if load and width > 4:
        for distance in (1, 2):
            if all(offsets[lane ^ distance] in (-1, offsets[lane]) for lane in active):
                phase *= 2
                break
    waves = ideal = 0
    for first in range(0, 32, phase):
        lanes = [lane for lane in active if first <= lane < first + phase]
        words = {(offsets[lane] + byte) // 4 for lane in lanes for byte in range(0, width, 4)}
        waves += max(Counter(word % 32 for word in words).values(), default=0)
        ideal += bool(lanes)
    return waves, ideal


def counters(kernel: KernelMatch, entry: str, offsets: np.ndarray, width: int, opcode: str) -> dict[str, int]:
    """Return what the probe counted on the one line with `opcode`."""
    out = np.zeros(16 * offsets.size, np.uint8)
    args = [offsets.reshape(-1), out]
    if entry.startswith("global"):
        args.append(np.zeros(SPACE_BYTES, np.uint8))
    watch = SiteProbe(kernel.last_line, kernel.widths())
    run = device().launch(binary(), entry, len(offsets), 32, args, shared_bytes=SPACE_BYTES, watch=watch)
    lines = [m.access for m in kernel.matches if m.access.opcode.startswith(opcode)]
    (line,) = [access.line for access in lines if access.bytes == width][-1:]
    names = ("shared_accesses", "shared_wavefronts", "shared_ideal", "global_requests", "global_sectors", "global_tags")
    return {name: run.counters.get(site_name(name, line), 0) for name in names}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["shared_load", "shared_store"])
def test_wavefronts(kind: str, width: int) -> None:
    entry = f"{kind}<{width}>"
    kernel = match_kernel(binary(), entry)
    load = kind == "shared_load"
    offsets = patterns(width, seed=width)
    for first in range(0, PATTERNS, BATCH):
        some = offsets[first : first + BATCH]
        found = counters(kernel, entry, some, width, "ld.shared" if load else "st.shared")
        expected = np.sum([wavefronts(row, width, load=load) for row in some.tolist()], axis=0).tolist()
        assert [found["shared_accesses"], found["shared_wavefronts"], found["shared_ideal"]] == [BATCH, *expected]


@pytest.mark.parametrize("width", WIDTHS)
def test_sectors_and_tags(width: int) -> None:
    entry = f"global_load<{width}>"
    kernel = match_kernel(binary(), entry)
    offsets = patterns(width, seed=width)
    for first in range(0, PATTERNS, BATCH):
        some = offsets[first : first + BATCH]
        found = counters(kernel, entry, some, width, "ld.global")
        sectors = sum(len({at // 32 for at in row if at >= 0}) for row in some.tolist())
        tags = sum(len({at // 128 for at in row if at >= 0}) for row in some.tolist())
        assert [found["global_requests"], found["global_sectors"], found["global_tags"]] == [BATCH, sectors, tags]
