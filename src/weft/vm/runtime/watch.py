"""The contract between the runtime and whoever watches: which events are compiled in, and with what code.

The runtime calls a method of `Instrumentation` where an event happens; the base class writes nothing, so a run
without probes carries no trace of them. A probe subclasses it and emits IR at the events it wants.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir import Builder, Value


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


class Instrumentation:
    """Watches nothing. `key` distinguishes the compiled functions of different watchers."""

    key = "plain"
    bytes_per_worker = 0
    """Memory the probes need beside each worker."""

    def access(self, b: Builder, event: Access) -> None:
        """A load or store of a warp."""

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, row_bytes: int) -> None:
        """ldmatrix: every active lane names the shared-memory offset of one row."""

    def barrier(self, b: Builder, worker: Value) -> None:
        """A CTA barrier was completed."""

    def cta(self, b: Builder, worker: Value) -> None:
        """A CTA begins."""

    def functions(self) -> Sequence[Builder]:
        """Functions of the probe's own that its event code calls."""
        return ()
