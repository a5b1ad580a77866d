"""CUTLASS' own pipeline for Hopper (PipelineTmaAsync): a warp-specialised product with and without a cluster."""

from pathlib import Path

import numpy as np
import pytest

from tests.in_turn import one_in
from weft import VirtualGPU
from weft.core.finding_codes import Severity
from weft.engines.kernel_file import load
from weft.probes.tools import watch_for
from weft.toolchain.cuda_headers import package_file


@pytest.mark.parametrize("cluster", one_in(3, [2, 1, 4]))
@pytest.mark.parametrize("schedule", [0, 1, 2], ids=["late", "at issue", "shuffled"])
def test_equals_numpy(cluster: int, schedule: int) -> None:
    headers = package_file("nvidia-cutlass", "cute/tensor.hpp").parents[1]
    file = Path(__file__).with_name("cute_pipeline.cu")
    kernel = load(file, arch="sm_90a", defines={"CLUSTER": str(cluster)}, include_dirs=[headers])
    rng = np.random.default_rng(cluster)
    a, b = (rng.integers(-3, 4, (rows, 320)).astype(np.float16) for rows in (256, 128))
    gpu = VirtualGPU("h100", schedule=schedule)
    run, after = kernel.run(gpu, {"a": a, "b": b}, watch=watch_for(["all"]))
    assert [str(each) for each in run.findings if each.level is not Severity.INFO] == []
    np.testing.assert_array_equal(after["c"], a.astype(np.float32) @ b.astype(np.float32).T)
