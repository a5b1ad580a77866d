"""The contract between the runtime and whoever watches: which events are compiled in, and with what code.

The runtime calls a method of `Instrumentation` where an event happens; the base class writes nothing, so a run
without probes carries no trace of them. A probe subclasses it and emits IR at the events it wants. Its reports
have numbers from FIRST_PROBE_CODE up, which `codes` turns into findings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ir import Builder, Value


@dataclass(frozen=True)
class Lines:
    """The bytes of an access as `count` lines of `bytes` each; line i starts at start + i * step (both i64)."""

    start: Value
    step: Value
    count: int
    bytes: int


@dataclass(frozen=True)
class Access:
    """A warp touches memory. Values belong to the function being built, which has `warp` and `site` parameters."""

    store: bool
    space: str
    bytes: int
    """Bytes per lane."""
    offsets: Value
    """<32 x iA>: byte offset of each lane in its window (for generic and local accesses: the generic address)."""
    lanes: Value
    """i32 mask of lanes that do access."""
    contiguous: bool
    """Known at compile time: all 32 lanes in one aligned run, lowest lane first."""
    uniform: bool = False
    """Known at compile time: one address for all lanes."""
    atomic: bool = False
    """Reads and writes at once; with `store`, what was there does not matter (exch)."""
    copied: bool = False
    """The bytes of an asynchronous copy arrive: it was announced by `copy` before."""
    lines: Lines | None = None
    """The same bytes (all of them, if any lane is on) as lines, where that is known."""


class Instrumentation:
    """Watches nothing. `key` distinguishes the compiled functions of different watchers."""

    key = "plain"
    codes: Mapping[int, tuple[str, str]] = {}
    """Report number → finding code and message, in which `{address}` stands for the address."""

    def wants(self, event: str) -> bool:
        """Whether the method called `event` is more than the empty one; costly arguments are built only then."""
        return getattr(type(self), event) is not getattr(Instrumentation, event)

    # -- memory beside each worker, at WORKER_PROBE --------------------------------------------------------------

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        """Bytes needed when the first shared address past the end is `shared_limit`; they start as zeros."""
        return 0

    def prepare(self, memory: npt.NDArray[np.uint8], shared_limit: int, warps: int) -> None:
        """Before a run: write what the probe's code must find in its zeroed memory."""

    def counters(self, memory: npt.NDArray[np.uint8]) -> Mapping[str, int]:
        """After a run: totals of one worker; those of all workers are added up."""
        return {}

    # -- events --------------------------------------------------------------------------------------------------

    def access(self, b: Builder, event: Access) -> None:
        """A load, store or atomic of a warp; an asynchronous copy when its bytes arrive."""

    def copy(self, b: Builder, event: Access) -> None:
        """An asynchronous copy to shared memory is issued: its bytes arrive at any time until the wait."""

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int) -> None:
        """ldmatrix of `rows` rows of 16 bytes: every active lane below that names the shared offset of one."""

    def barrier(self, b: Builder, worker: Value, everyone: Value) -> None:
        """A CTA barrier was completed; `everyone` (i1): all threads that have not exited waited at it."""

    def cta(self, b: Builder, worker: Value) -> None:
        """A CTA begins."""

    def functions(self) -> Sequence[Builder]:
        """Functions of the probe's own that its event code calls."""
        return ()
