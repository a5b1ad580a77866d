"""The contract between the runtime and its watchers: which events are compiled in, and with what code.

The runtime calls a method of `Instrumentation` where an event happens; the base class writes nothing, so a run
without probes has no code for them. A probe subclasses it and emits IR at the events it needs. Its reports
have numbers from FIRST_PROBE_CODE up, which `codes` turns into findings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from weft.core.records import Finding

from ..device_heap import HeapState
from ..ir import Builder, Value
from ..launch_spec import LaunchSpec
from ..layout import Layout
from ..memory import GlobalMemory
from ..places import Places

if TYPE_CHECKING:
    from ..program import Plan, Program, ProgramSource


@dataclass(frozen=True)
class Lines:
    """The bytes of an access as `count` lines of `bytes` each; line i starts at start + i * step (both i64)."""

    start: Value
    step: Value
    count: int
    bytes: int


@dataclass(frozen=True)
class Access:
    """A memory access of a warp. Values belong to the function being built, which has `warp` and `site` parameters."""

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
    """Reads and writes at once; with `store`, the old value does not matter (exch)."""
    copied: bool = False
    """The bytes of an asynchronous copy arrive; `copy` announced it before."""
    bulk: bool = False
    """A bulk copy makes the access, not a thread: `lanes` is the lane that issued it."""
    peer: bool = False
    """It is in the shared memory of another CTA of the cluster, whose worker the warp's record names meanwhile."""
    words: Value | None = None
    """An arrival at an mbarrier, or a test of it: ptr to 32 x i64, words (`vm/mbarrier_word.py`) of the phase meant."""
    lines: Lines | None = None
    """The same bytes (all of them, if any lane is on) as lines, if known."""


@dataclass(frozen=True)
class BulkCopy:
    """A bulk copy of one lane between shared memory and global memory."""

    near: Value
    """i32: its shared address."""
    bytes: Value
    """i32: how many bytes, in one run of shared memory."""
    mbarrier: Value
    """i32: the shared address of the mbarrier that a load signals; NO_MBARRIER for a store or a reduction."""
    lanes: Value
    """i32 mask of the lane that issued it."""
    loads: bool
    """Whether it reads global memory and writes shared memory."""
    far: Value
    """i64: the offset of its tensor, or of its bytes, in global memory."""
    map: Value | None = None
    """i64: the generic address of its tensor map, if it has one."""
    phase: Value | None = None
    """i32: when a load has arrived, the phase of the mbarrier that counted its bytes."""
    peer: bool = False
    """It writes to the shared memory of another CTA of the cluster, whose worker the warp's record names meanwhile."""


@dataclass(frozen=True)
class Scene:
    """A launch that has ended: its parameters, the memory it started from, and its reports."""

    source: "ProgramSource"
    layout: Layout
    launch: LaunchSpec
    memory: GlobalMemory
    before: npt.NDArray[np.uint8]
    """The arena before the launch: the contents of buffers, and 0 between them."""
    copied: frozenset[int] | None
    """Numbers of the buffers that `before` has; None: all of them."""
    written: npt.NDArray[np.uint8]
    """Which bytes of it were written before the launch."""
    heap: HeapState | None
    """The heap of malloc before the launch; None if there is none."""
    globals_at: Mapping[str, int]
    reports: npt.NDArray[np.void]
    """All reports, as `vm/findings.py` reads them."""
    instructions: int
    """Warp instructions that it executed."""
    places: Places
    """Names of the objects at an address."""
    boards: tuple[npt.NDArray[np.uint8], ...]
    """The watcher's memory for the entire launch, one per host thread."""
    again: "Callable[[Instrumentation, Sequence[int] | None], npt.NDArray[np.uint8]]"
    """Runs some CTAs (None: all) again from the initial memory, then restores memory; returns the watcher's memory."""
    trace: "Callable[[Instrumentation, Program | None], tuple[bytes, tuple[int, ...]]]"
    """Runs the launch again from the initial memory, with another program if one is given; returns a digest of the
    final state, and each block's visits."""


class Instrumentation:
    """Ignores every event. `key` distinguishes the compiled functions of different watchers."""

    key = "plain"
    codes: Mapping[int, tuple[str, str]] = {}
    """Report number → finding code and message, in which `{address}` is replaced by the address."""

    keeps_written = False
    """Whether to record which bytes of global and local memory were written (WORKER_WRITTEN, WARP_LOCAL_WRITTEN)."""

    stops_at = 0
    """The number of reports at which a launch is stopped; 0: none. No result of it counts then."""

    keeps_before = False
    """Whether `review` may run CTAs again."""

    notices_writes = False
    """Whether `review` notices if the launch wrote to a buffer that was not copied before it, and refuses to go on."""

    reviews_always = False
    """Whether `review` has work even if there is no report."""

    sees_bulk = False
    """Whether `access` is called for the accesses of bulk copies (`Access.bulk`)."""

    sees_peers = False
    """Whether `access` and `bulk` are called for the shared memory of another CTA (`Access.peer`, `BulkCopy.peer`): the
    worker that the warp's record names is that CTA's then."""

    def wants(self, event: str) -> bool:
        """Return whether the method called `event` is not the empty one; expensive arguments are built only then."""
        return getattr(type(self), event) is not getattr(Instrumentation, event)

    def for_launch(self, plan: "Plan", ctas: int) -> "Instrumentation":
        """Return the watcher of a launch of so many CTAs: this one, or one that knows more about such a kernel."""
        return self

    # -- memory for each worker, at WORKER_PROBE -----------------------------------------------------------------

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        """Return the bytes needed when the first shared address past the end is `shared_limit`; they start as zeros."""
        return 0

    def prepare(self, memory: npt.NDArray[np.uint8], shared_limit: int, warps: int) -> None:
        """Write the initial data of the probe's code to its zeroed memory, before a run."""

    # -- memory of the entire launch, at WORKER_BOARD: one per host thread ----------------------------------------

    def board_bytes(self, memory: GlobalMemory) -> int:
        """Return the bytes needed in a launch on `memory`; they start as zeros."""
        return 0

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        """Write the initial data of the probe's code there, before a run."""

    # -- after a run -----------------------------------------------------------------------------------------------

    def counters(self, memory: npt.NDArray[np.uint8]) -> Mapping[str, int]:
        """Return the totals of one worker after a run; those of all workers are added up."""
        return {}

    def conclude(
        self, source: "ProgramSource", visits: Sequence[int], boards: Sequence[npt.NDArray[np.uint8]]
    ) -> Mapping[str, int]:
        """Return more counters of the entire launch after a run.

        `visits` has a number for each block by warps in step, where runs of blocks count at their first
        (`Kernel.chains`), and then one for each block by divergent warps.
        """
        return {}

    def review(self, findings: tuple[Finding, ...], scene: "Scene") -> tuple[Finding, ...]:
        """Return the findings that remain after a run; the probe completes its own ones with a second analysis."""
        return findings

    # -- events --------------------------------------------------------------------------------------------------

    def access(self, b: Builder, event: Access) -> None:
        """Called for a load, store or atomic of a warp, and for an asynchronous copy when its bytes arrive."""

    def copy(self, b: Builder, event: Access) -> None:
        """Called when an asynchronous copy to shared memory is issued: its bytes arrive at any time until the wait."""

    def copy_group(self, b: Builder, lanes: Value) -> None:
        """Called when `lanes` close a group of asynchronous copies (cp.async.commit_group). There is no `site`."""

    def copy_wait(self, b: Builder, pending: Value, lanes: Value) -> None:
        """Called when `lanes` have waited for all but their last `pending` (i32) groups; -1: for all copies."""

    def copy_arrival(self, b: Builder, offsets: Value, lanes: Value) -> None:
        """Called at cp.async.mbarrier.arrive: the lanes' copies so far will arrive at the mbarriers at `offsets`."""

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int, used: int = 16) -> None:
        """Called at ldmatrix of `rows` rows of 16 bytes: every active lane below that has the shared offset of one.

        The bytes from `used` (8, 12 or 16) on are padding.
        """

    def barrier(self, b: Builder, worker: Value, everyone: Value) -> None:
        """Called when a CTA barrier is complete; `everyone` (i1): all threads waited at it, or have exited."""

    def cta(self, b: Builder, worker: Value) -> None:
        """Called when a CTA starts."""

    def arrive(self, b: Builder, number: Value, lanes: Value, waits: Value) -> None:
        """Called when `lanes` arrive at CTA barrier `number` and, if `waits` (i32) is not 0, wait. It has a `site`."""

    def complete(self, b: Builder, worker: Value, number: Value, everyone: Value) -> None:
        """Called when barrier `number` (i32) opens for the threads that wait at it; `everyone` as for `barrier`."""

    def warp_sync(self, b: Builder, lanes: Value) -> None:
        """Called when `lanes` meet at bar.warp.sync, or at a barrier of a CTA of one warp. There is a `site`."""

    def fence(self, b: Builder, lanes: Value) -> None:
        """Called when `lanes` execute a memory fence. There is a `site`."""

    # -- asynchronous agents: bulk copies and products of a warpgroup, which go on after their instruction -----------

    def bulk(self, b: Builder, copy: BulkCopy) -> None:
        """Called when a lane issues a bulk copy. There is a `site`."""

    def bulk_landed(self, b: Builder, copy: BulkCopy) -> None:
        """Called when the bytes of a bulk load have arrived, before its mbarrier counts them. There is a `site`."""

    def agent_group(self, b: Builder, queue: str, lanes: Value) -> None:
        """Called when `lanes` close a group of agents; `queue` is `bulk` or `wgmma`. There is a `site`."""

    def agent_wait(self, b: Builder, queue: str, pending: Value, lanes: Value) -> None:
        """Called when `lanes` have waited for all but their last `pending` (i32) groups. There is no `site`."""

    def proxy_fence(self, b: Builder, lanes: Value) -> None:
        """Called at fence.proxy.async, unless it is only for global memory. There is a `site`."""

    def map_release(self, b: Builder, lanes: Value) -> None:
        """Called when `lanes` release the tensor maps that they have written. There is a `site`."""

    def map_acquire(self, b: Builder, addresses: Value, lanes: Value) -> None:
        """Called when `lanes` acquire the tensor maps at generic `addresses` (<32 x i64>). There is a `site`."""

    def functions(self) -> Sequence[Builder]:
        """Return the probe's functions that its event code calls."""
        return ()
