"""The contract between the runtime and whoever watches: which events are compiled in, and with what code.

The runtime calls a method of `Instrumentation` where an event happens; the base class writes nothing, so a run
without probes carries no trace of them. A probe subclasses it and emits IR at the events it wants. Its reports
have numbers from FIRST_PROBE_CODE up, which `codes` turns into findings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from weft.core.records import Finding

from ..ir import Builder, Value
from ..launch_spec import LaunchSpec
from ..layout import Layout
from ..memory import GlobalMemory
from ..places import Places

if TYPE_CHECKING:
    from ..program import ProgramSource


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
    words: Value | None = None
    """An arrival at an mbarrier, or a test of it: ptr to 32 x i64, words (`vm/mbarrier_word.py`) of the phase meant."""
    lines: Lines | None = None
    """The same bytes (all of them, if any lane is on) as lines, where that is known."""


@dataclass(frozen=True)
class Scene:
    """A launch that is over: what it was, the memory it started from, and what it reported."""

    source: "ProgramSource"
    layout: Layout
    launch: LaunchSpec
    memory: GlobalMemory
    before: npt.NDArray[np.uint8]
    """The arena as it was."""
    written: npt.NDArray[np.uint8]
    """Which of its bytes had been written."""
    globals_at: Mapping[str, int]
    reports: npt.NDArray[np.void]
    """All of them, as `vm/findings.py` reads them."""
    instructions: int
    """Warp instructions that it took."""
    places: Places
    """Names of what lies at an address."""
    boards: tuple[npt.NDArray[np.uint8], ...]
    """The watcher's memory for the whole launch, one per host thread."""
    again: "Callable[[Instrumentation, Sequence[int] | None], npt.NDArray[np.uint8]]"
    """Run some CTAs (None: all) once more from the memory before, which stays as it is now; the watcher's memory."""
    trace: "Callable[[Instrumentation], tuple[bytes, tuple[int, ...]]]"
    """Run it once more from the memory before; a digest of all it left, and how often each of its blocks ran."""


class Instrumentation:
    """Watches nothing. `key` distinguishes the compiled functions of different watchers."""

    key = "plain"
    codes: Mapping[int, tuple[str, str]] = {}
    """Report number → finding code and message, in which `{address}` stands for the address."""

    keeps_written = False
    """Whether to know which bytes of global and local memory were written (WORKER_WRITTEN, WARP_LOCAL_WRITTEN)."""

    keeps_before = False
    """Whether `review` may run CTAs again."""

    reviews_always = False
    """Whether `review` has something to do even if nothing was reported."""

    def wants(self, event: str) -> bool:
        """Whether the method called `event` is more than the empty one; costly arguments are built only then."""
        return getattr(type(self), event) is not getattr(Instrumentation, event)

    # -- memory for each worker, at WORKER_PROBE -----------------------------------------------------------------

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        """Bytes needed when the first shared address past the end is `shared_limit`; they start as zeros."""
        return 0

    def prepare(self, memory: npt.NDArray[np.uint8], shared_limit: int, warps: int) -> None:
        """Before a run: write what the probe's code must find in its zeroed memory."""

    # -- memory of the whole launch, at WORKER_BOARD: one per host thread ------------------------------------------

    def board_bytes(self, memory: GlobalMemory) -> int:
        """Bytes needed in a launch on `memory`; they start as zeros."""
        return 0

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        """Before a run: write what the probe's code must find there."""

    # -- after a run -----------------------------------------------------------------------------------------------

    def counters(self, memory: npt.NDArray[np.uint8]) -> Mapping[str, int]:
        """After a run: totals of one worker; those of all workers are added up."""
        return {}

    def conclude(
        self, source: "ProgramSource", visits: Sequence[int], boards: Sequence[npt.NDArray[np.uint8]]
    ) -> Mapping[str, int]:
        """After a run: more counters of the whole launch.

        `visits` has a number for each block by warps in step, where runs of blocks count at their first
        (`Kernel.chains`), and then one for each block by divergent warps.
        """
        return {}

    def review(self, findings: tuple[Finding, ...], scene: "Scene") -> tuple[Finding, ...]:
        """After a run: what stands of its findings, the probe's own with all that a second look gives."""
        return findings

    # -- events --------------------------------------------------------------------------------------------------

    def access(self, b: Builder, event: Access) -> None:
        """A load, store or atomic of a warp; an asynchronous copy when its bytes arrive."""

    def copy(self, b: Builder, event: Access) -> None:
        """An asynchronous copy to shared memory is issued: its bytes arrive at any time until the wait."""

    def copy_group(self, b: Builder, lanes: Value) -> None:
        """`lanes` close a group of asynchronous copies (cp.async.commit_group). There is no `site`."""

    def copy_wait(self, b: Builder, pending: Value, lanes: Value) -> None:
        """`lanes` have waited for all but their last `pending` (i32) groups; -1: for all copies, in a group or not."""

    def copy_arrival(self, b: Builder, offsets: Value, lanes: Value) -> None:
        """cp.async.mbarrier.arrive: the lanes' copies so far, once there, will arrive at the mbarriers at `offsets`."""

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int) -> None:
        """ldmatrix of `rows` rows of 16 bytes: every active lane below that names the shared offset of one."""

    def barrier(self, b: Builder, worker: Value, everyone: Value) -> None:
        """A CTA barrier was completed; `everyone` (i1): all threads waited at it, or have exited and are excused."""

    def cta(self, b: Builder, worker: Value) -> None:
        """A CTA begins."""

    def arrive(self, b: Builder, number: Value, lanes: Value, waits: Value) -> None:
        """`lanes` come to CTA barrier `number` and, if `waits` (i32) is not 0, stay there. There is a `site`."""

    def complete(self, b: Builder, worker: Value, number: Value, everyone: Value) -> None:
        """Barrier `number` (i32) opens for those who wait at it; `everyone` as for `barrier`."""

    def warp_sync(self, b: Builder, lanes: Value) -> None:
        """`lanes` of a warp meet at bar.warp.sync, or at a barrier of a CTA of one warp. There is a `site`."""

    def fence(self, b: Builder, lanes: Value) -> None:
        """`lanes` execute a memory fence. There is a `site`."""

    def functions(self) -> Sequence[Builder]:
        """Functions of the probe's own that its event code calls."""
        return ()
