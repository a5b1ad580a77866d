"""Every statement that orders or initialises memory is dropped alone: the checkers find each one with an effect.

Of the first of each kind in each file one in eight is tested in every run of the tests, the others in
`scripts/test -m sweep`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.kernels
from tests.bad.drop_one import Dropped, drop_each
from tests.kernels.case import CUDA_FOLDER, Case, Cuda
from tests.kernels.cases import CASES
from tests.kernels.test_kernels import _argument, _poisoned
from weft.core.finding_codes import Severity
from weft.core.records import Finding
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.judge.local_runs import check_debug_build
from weft.kernels.ladder import RUNGS
from weft.probes.initcheck import DebugInitCheck
from weft.probes.tools import watch_for

SIZES = {"B": 1, "HQ": 2, "HKV": 1, "SQ": 40, "SKV": 72, "D": 64}
NO_KEYS = {"B": 1, "HQ": 1, "HKV": 1, "SQ": 90, "SKV": 20, "D": 64}
"""With a mask from the bottom right, the first CTA sees no key."""
SMALL = {"B": 1, "HQ": 1, "HKV": 1, "SQ": 20, "SKV": 40, "D": 32}

SUITE = {
    "atomics.cu": (),
    "constant_filter.cu": (),
    "cooperative_rms_norm.cu": (),
    "divergence.cu": ("reverse_blocks_777_100",),
    "fp8_gemm.cu": (),
    "mma_attention.cu": ("mma_attention_B2_S200_fp16_w4_causal_sm_89",),
    "row_softmax.cu": ("softmax_block_per_row_3x1000",),
    "tiled_gemm.cu": (),
    "wmma_attention.cu": (),
}
"""Files of the kernel suite, and the cases that reach the statement; without a name, the file's first."""

NOT_MEANT = {
    ("split_k.cu", "o[row * D + d] = ELEMENT(0.0f);"): "the result itself: the judge finds the poison that stays there",
    ("split_k.cu", "lse[row] = -CUDART_INF_F;"): "the result itself",
    ("mma_attention.cu", "score[n][e] = -CUDART_INF_F;"): "a mask: it overwrites a score, nothing is left unset",
    ("pipelined.cu", "s[n][e] = -CUDART_INF_F;"): "a mask as well",
    ("hopper_tma.cu", "s[i] = -CUDART_INF_F;"): "a mask as well",
    ("fp8_hopper.cu", "s[i] = -CUDART_INF_F;"): "a mask as well",
}
"""Statements that the pattern takes for an initialisation, and what they are."""

REDUNDANT = {
    ("row_softmax.cu", "__syncthreads();  // the previous reduction has been read"): (
        "max and sum are two instantiations of block_reduce, each with its own array that is used once"
    ),
    **{
        (file, "__syncwarp();  // every lane has read sM[row]"): "a shuffle of all lanes needs what they have read"
        for file in ("wmma.cu", "fp8_wmma.cu", "wmma_attention.cu")
    },
}
"""Lines that can go without harm in these kernels, and why."""


def _rung_findings(path: Path, dropped: Dropped) -> Iterator[Finding]:
    """Return findings in the order of cost: the usual call, one without keys, the -G build."""
    kernel = load(path)

    def known(sizes: dict[str, int]) -> dict[str, int]:
        return {name: value for name, value in sizes.items() if name in kernel.sizes}

    for sizes, mask in ((SIZES, "0"), (NO_KEYS, "2")):
        masked = load(path, defines={"CAUSAL": mask} if "CAUSAL" in path.read_text() else {})
        yield from masked.run(VirtualGPU(masked.gpu), sizes=known(sizes), watch=watch_for(("all",))).run.findings
    if dropped.kind == "initialising":
        yield from check_debug_build(kernel, sizes=known(SMALL)).findings


def _case_findings(case: Case, path: Path, dropped: Dropped) -> Iterator[Finding]:
    assert isinstance(case.source, Cuda)
    for debug in (False, True) if dropped.kind == "initialising" else (False,):
        binary = weft.compile_cuda(
            path, arch=case.source.arch, defines=case.source.defines, entries=case.source.entries, debug=debug
        )
        gpu = VirtualGPU(case.source.arch)
        inputs = case.inputs(np.random.default_rng(1))
        arrays = {**inputs, **{name: _poisoned(buffer) for name, buffer in case.outputs.items()}}
        for launch in case.launches:
            args = [_argument(argument, arrays) for argument in launch.args]
            watch = DebugInitCheck() if debug else watch_for(("all",))
            yield from gpu.launch(
                binary, launch.entry, launch.grid, launch.block, args, shared_bytes=launch.shared_bytes, watch=watch
            ).findings


def _cases(file: str) -> list[Case]:
    names = SUITE[file]
    known = [c for c in CASES if isinstance(c.source, Cuda) and c.source.file == file and not c.source.debug]
    return [c for c in known if c.name in names] or known[:1]


Find = Callable[[Path, Dropped], Iterator[Finding]]


def _everything() -> Iterator[tuple[str, Dropped, tuple[Find, ...]]]:
    for rung in RUNGS.values():
        for dropped in drop_each(rung.path.read_text()):
            yield rung.path.name, dropped, (_rung_findings,)
    for file in SUITE:
        finders = tuple(lambda path, dropped, case=case: _case_findings(case, path, dropped) for case in _cases(file))
        for dropped in drop_each((CUDA_FOLDER / file).read_text()):
            yield file, dropped, finders


DROPPED = [row for row in _everything() if (row[0], row[1].statement) not in NOT_MEANT]


def _rows() -> Iterator[object]:
    left = set(list(dict.fromkeys((file, dropped.kind) for file, dropped, _ in DROPPED))[::8])
    for file, dropped, finders in DROPPED:
        marks = [] if (file, dropped.kind) in left else [pytest.mark.sweep]
        left.discard((file, dropped.kind))
        yield pytest.param(file, dropped, finders, marks=marks, id=f"{file}:{dropped}")


@pytest.mark.parametrize(("file", "dropped", "finders"), list(_rows()))
def test_what_is_missing_is_found(file: str, dropped: Dropped, finders: tuple[Find, ...], tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_text(dropped.text)
    every = (finding for find in finders for finding in find(path, dropped))
    found = next((finding for finding in every if finding.level is not Severity.INFO), None)
    expected = "R" if dropped.kind == "ordering" else "I"
    if (file, dropped.source) in REDUNDANT:
        assert found is None, f"not redundant: {found}"
    else:
        assert found is not None
        assert found.code[0] in expected + "I", f"{found}: another story"


def test_the_sweep_contains_every_kind() -> None:
    statements = {row[1].statement.split("(")[0].split("<")[0] for row in DROPPED}
    assert {"__syncthreads", "__syncwarp", "wait_copies", "wmma::fill_fragment"} <= statements
    assert len(DROPPED) >= 70
