"""A second look at initialisation, in a build where every variable lies in memory.

The optimiser may delete a read of an uninitialised variable (its value is anybody's choice), and then no checker sees
it in the optimised PTX. A device-debug build (-G) keeps every read: arrays lie in local memory, scalars in registers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.core.records import Run
from weft.probes.initcheck import DebugInitCheck

from .kernel_file import KernelFile
from .virtual import VirtualGPU


def check_debug_build(
    kernel: KernelFile, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}, seed: int = 0
) -> Run:
    """Run the file's -G build under initcheck. It is many times slower: give a small shape. Given arrays are copied."""
    copies = {name: array.copy() if hasattr(array, "copy") else array for name, array in arrays.items()}
    gpu = VirtualGPU(kernel.gpu)
    return replace(kernel, debug=True).run(gpu, copies, sizes=sizes, seed=seed, watch=DebugInitCheck()).run
