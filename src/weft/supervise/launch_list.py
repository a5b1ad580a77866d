"""What a kernel file would launch, and how, as plain data. Nothing runs."""

from typing import Any

import numpy as np

from weft.core.records import Binary
from weft.engines.bound_kernel import BoundKernel


def launch_list(bound: BoundKernel) -> tuple[list[Binary], list[Any]]:
    """The binaries, in the order they are launched, and the launches in order.

    Arrays count by their name, numbers by their value, a binary by its number, a kernel by its place in its binary;
    what variables start with is part of how it is launched.
    """
    binaries: dict[str, Binary] = {}
    rows: list[Any] = [["symbol", np.ascontiguousarray(value).tobytes().hex()] for value in bound.constants.values()]
    for launch in bound.launches:
        binary = binaries.setdefault(launch.binary.ptx_digest, launch.binary)
        number, kernel = list(binaries).index(binary.ptx_digest), list(binary.entries).index(launch.entry)
        passed = [
            name if isinstance(value, np.ndarray) and value.ndim else repr(value)
            for name, value in zip(launch.names, launch.args, strict=True)
        ]
        rows.append([number, kernel, launch.grid, launch.block, launch.shared_bytes, passed])
    return list(binaries.values()), rows
