"""FlashInfer's unmodified kernels for batches, judged by the tasks of a paged cache and of packed sequences."""

import numpy as np
import pytest

from tests.in_turn import one_in
from tests.production.agreement import HERE, where
from tests.production.test_flashinfer import DECODE, NO_SYNCWARP, ROWS_NOT_FILLED
from weft.attention.dtypes import Array
from weft.attention.shapes import shape
from weft.core.status import Status
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.probes.tools import watch_for
from weft.tasks.registry import TASKS
from weft.tasks.task import Declared, Problem, Workload
from weft.toolchain.cuda_headers import package_file

package, header = DECODE
INCLUDES = (str(package_file(package, header).parents[header.count("/")]),)


@pytest.mark.parametrize(
    ("dtype", "mask", "regime", "sizes"),
    one_in(
        3,
        [
            ("f16", "none", "unit_normal", "b5-hq4-hkv2-sq1-skv130-d64"),
            ("f16", "bottom_right", "offsets", "b5-hq4-hkv2-sq1-skv130-d64"),
            ("bf16", "none", "logits_16", "b4-hq4-hkv4-sq1-skv77-d64"),
            ("bf16", "bottom_right", "one_hot", "b3-hq8-hkv2-sq1-skv300-d128"),
        ],
        several=True,
    ),
)
def test_paged_decode(dtype: str, mask: str, regime: str, sizes: str) -> None:
    candidate = Candidate(HERE / "flashinfer_paged.cu", include_dirs=INCLUDES)
    verdict = check(candidate, TASKS["paged_decode"], Workload(shape(sizes), dtype, mask, regime, 1))
    assert (verdict.status, verdict.findings) == (Status.PASSED, ()), verdict.message


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    one_in(3, [("f16", "b5-hq2-hkv1-sq77-skv70-d64"), ("bf16", "b4-hq4-hkv4-sq33-skv70-d128")], several=True),
)
def test_packed_sequences(dtype: str, sizes: str) -> None:
    """One sequence has no query, one no key. The findings are those of the kernel for a single request."""
    task = TASKS["sdpa_varlen"]
    problem = task.draw(Workload(shape(sizes), dtype, "none", "unit_normal", 1))
    kernel = Candidate(HERE / "flashinfer_ragged.cu", include_dirs=INCLUDES).load(problem)
    gpu = VirtualGPU(kernel.gpu)
    checked, _ = kernel.run(gpu, _copies(problem), watch=watch_for(["all"]))  # ends with the launch that has findings
    assert where(checked.findings) == {NO_SYNCWARP, ROWS_NOT_FILLED}
    _, arrays = kernel.run(gpu, _copies(problem))
    outputs = {output.name: arrays[output.name] for output in task.outputs}
    assert np.isneginf(outputs["lse"]).any()  # of the sequence without keys
    judged = task.judge(problem, outputs, Declared())
    assert judged.passed, judged.gates


def _copies(problem: Problem) -> dict[str, Array]:
    return {name: array.copy() for name, array in problem.arrays.items()}
