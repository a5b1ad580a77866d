"""An engine that launches nothing: it notes what a kernel file would launch, and how."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.core.chips import chip_of
from weft.core.records import Binary, Run
from weft.engines.arguments import Array
from weft.engines.host_arrays import dim3
from weft.engines.protocol import Capabilities
from weft.engines.sample import Sample
from weft.engines.written import EVERYTHING_WRITTEN, Written
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation


class LaunchList:
    """Launches in order, as plain data, with the number of the binary each is of."""

    name = "list"
    capabilities = Capabilities(can_watch=False, can_sample=False, exact=False)

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self.shared_limit_bytes = chip_of(arch).architecture.shared_bytes_per_block
        self.binaries: dict[str, Binary] = {}
        """By digest, in the order they are launched."""
        self.launches: list[list[Any]] = []

    def launch(
        self,
        binary: Binary,
        entry: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        names: Sequence[str] = (),
        max_steps: int = 1 << 32,
        watch: Instrumentation = PLAIN,
        ctas: Sample | None = None,
        written: Written = EVERYTHING_WRITTEN,
    ) -> Run:
        """Keep it. Arrays count by their name, numbers by their value, the kernel by its place in its binary."""
        self.binaries.setdefault(binary.ptx_digest, binary)
        kernel = list(binary.entries).index(entry)
        passed = [
            name if isinstance(value, np.ndarray) and value.ndim else repr(value)
            for name, value in zip(names, args, strict=True)
        ]
        number = list(self.binaries).index(binary.ptx_digest)
        self.launches.append([number, kernel, dim3(grid), dim3(block), shared_bytes, passed])
        return Run((entry,), (), "", 0, binary.source_digest, binary.ptx_digest, binary.defines)

    def set_symbol(self, binary: Binary, entry: str, name: str, value: Array) -> None:
        """Part of how it is launched."""
        self.launches.append(["symbol", np.ascontiguousarray(value).tobytes().hex()])

    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Whether it is too much is judged where it runs."""
        return 0

    def check_sample(self, binary: Binary, entry: str) -> None:
        """Nothing is sampled."""

    @contextmanager
    def sequence(self, binary: Binary, entry: str) -> Iterator[None]:
        """Nothing is placed, so nothing moves."""
        yield
