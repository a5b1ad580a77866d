"""Several probes in one run.

The worker's probe memory starts with a table of pointers, one per probe; each probe's own memory follows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from weft.core.errors import UsageError
from weft.core.records import Finding
from weft.vm.ir import Builder, Value
from weft.vm.memory import GlobalMemory
from weft.vm.runtime.watch import Access, BulkCopy, Instrumentation, Scene

from .shared_probe import ALIGN, SharedProbe

if TYPE_CHECKING:
    from weft.vm.program import Plan, ProgramSource

_TABLE_BYTES = 64
_MOST = _TABLE_BYTES // 8


class Probes(Instrumentation):
    """Several probes that watch one run, as in `Probes(InitCheck(), RaceCheck())`. Their order does not matter.

    Every method of `Instrumentation` is forwarded; `tests/probes/test_combine.py` fails where one is missing.
    """

    def __init__(self, *probes: SharedProbe) -> None:
        by_name = {probe.name: probe for probe in probes}
        if len(by_name) != len(probes) or not 1 <= len(probes) <= _MOST:
            raise UsageError(f"one to {_MOST} different probes can watch a run, not {[p.name for p in probes]}")
        self.probes = tuple(by_name[name].at_slot(slot) for slot, name in enumerate(sorted(by_name)))
        # A probe with a slot finds its memory elsewhere than a single probe: their functions must not be mixed up.
        self.key = f"slots:{'+'.join(probe.key for probe in self.probes)}"
        self.codes = {number: row for probe in self.probes for number, row in probe.codes.items()}

        self.keeps_written = any(probe.keeps_written for probe in self.probes)
        self.sees_bulk = any(probe.sees_bulk for probe in self.probes)
        self.sees_peers = any(probe.sees_peers for probe in self.probes)
        self.keeps_before = any(probe.keeps_before for probe in self.probes)
        self.notices_writes = any(probe.notices_writes for probe in self.probes) and all(
            probe.notices_writes for probe in self.probes if probe.keeps_before
        )
        self.reviews_always = any(probe.reviews_always for probe in self.probes)

    def for_launch(self, plan: "Plan", ctas: int) -> Instrumentation:
        chosen = [probe.for_launch(plan, ctas) for probe in self.probes]
        if all(one is other for one, other in zip(chosen, self.probes, strict=True)):
            return self
        apart: list[SharedProbe] = []
        for each in chosen:
            apart += each.probes if isinstance(each, Probes) else [each] if isinstance(each, SharedProbe) else []
        return Probes(*apart)

    def wants(self, event: str) -> bool:
        return any(probe.wants(event) for probe in self.probes)

    # -- memory --------------------------------------------------------------------------------------------------

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return _TABLE_BYTES + sum(_rounded(probe.probe_bytes(shared_limit, warps)) for probe in self.probes)

    def prepare(self, memory: npt.NDArray[np.uint8], shared_limit: int, warps: int) -> None:
        table = memory[:_TABLE_BYTES].view(np.uint64)
        at = _TABLE_BYTES
        for slot, probe in enumerate(self.probes):
            size = probe.probe_bytes(shared_limit, warps)
            table[slot] = memory.ctypes.data + at
            probe.prepare(memory[at : at + size], shared_limit, warps)
            at += _rounded(size)

    def board_bytes(self, memory: GlobalMemory) -> int:
        """Return the bytes of the only probe that keeps a board: there is room for one."""
        sizes = {probe.name: probe.board_bytes(memory) for probe in self.probes}
        keepers = [name for name, size in sizes.items() if size]
        if len(keepers) > 1:
            raise UsageError(f"{' and '.join(keepers)} each keep memory for the launch: use separate runs")
        return max(sizes.values())

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        for probe in self.probes:
            if probe.board_bytes(memory):
                probe.prepare_board(board, memory)

    def counters(self, memory: npt.NDArray[np.uint8]) -> Mapping[str, int]:
        return {name: value for probe, own in self._areas(memory) for name, value in probe.counters(own).items()}

    def conclude(
        self, source: "ProgramSource", visits: Sequence[int], boards: Sequence[npt.NDArray[np.uint8]]
    ) -> Mapping[str, int]:
        totals = (probe.conclude(source, visits, boards) for probe in self.probes)
        return {name: value for own in totals for name, value in own.items()}

    def review(self, findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
        for probe in self.probes:
            findings = probe.review(findings, scene)
        return findings

    def _areas(self, memory: npt.NDArray[np.uint8]) -> Iterator[tuple[SharedProbe, npt.NDArray[np.uint8]]]:
        table = memory[:_TABLE_BYTES].view(np.uint64)
        for slot, probe in enumerate(self.probes):
            yield probe, memory[int(table[slot]) - memory.ctypes.data :]

    # -- events --------------------------------------------------------------------------------------------------

    def access(self, b: Builder, event: Access) -> None:
        for probe in self.probes:
            if (probe.sees_bulk or not event.bulk) and (probe.sees_peers or not event.peer):
                probe.access(b, event)

    def copy(self, b: Builder, event: Access) -> None:
        for probe in self.probes:
            probe.copy(b, event)

    def copy_group(self, b: Builder, lanes: Value) -> None:
        for probe in self.probes:
            probe.copy_group(b, lanes)

    def copy_wait(self, b: Builder, pending: Value, lanes: Value) -> None:
        for probe in self.probes:
            probe.copy_wait(b, pending, lanes)

    def copy_arrival(self, b: Builder, offsets: Value, lanes: Value) -> None:
        for probe in self.probes:
            probe.copy_arrival(b, offsets, lanes)

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int, used: int = 16) -> None:
        for probe in self.probes:
            probe.tile_rows(b, offsets, lanes, rows, used)

    def barrier(self, b: Builder, worker: Value, everyone: Value) -> None:
        for probe in self.probes:
            probe.barrier(b, worker, everyone)

    def cta(self, b: Builder, worker: Value) -> None:
        for probe in self.probes:
            probe.cta(b, worker)

    def arrive(self, b: Builder, number: Value, lanes: Value, waits: Value) -> None:
        for probe in self.probes:
            probe.arrive(b, number, lanes, waits)

    def complete(self, b: Builder, worker: Value, number: Value, everyone: Value) -> None:
        for probe in self.probes:
            probe.complete(b, worker, number, everyone)

    def warp_sync(self, b: Builder, lanes: Value) -> None:
        for probe in self.probes:
            probe.warp_sync(b, lanes)

    def fence(self, b: Builder, lanes: Value) -> None:
        for probe in self.probes:
            probe.fence(b, lanes)

    def bulk(self, b: Builder, copy: BulkCopy) -> None:
        for probe in self.probes:
            if probe.sees_peers or not copy.peer:
                probe.bulk(b, copy)

    def bulk_landed(self, b: Builder, copy: BulkCopy) -> None:
        for probe in self.probes:
            probe.bulk_landed(b, copy)

    def agent_group(self, b: Builder, queue: str, lanes: Value) -> None:
        for probe in self.probes:
            probe.agent_group(b, queue, lanes)

    def agent_wait(self, b: Builder, queue: str, pending: Value, lanes: Value) -> None:
        for probe in self.probes:
            probe.agent_wait(b, queue, pending, lanes)

    def proxy_fence(self, b: Builder, lanes: Value) -> None:
        for probe in self.probes:
            probe.proxy_fence(b, lanes)

    def map_release(self, b: Builder, lanes: Value) -> None:
        for probe in self.probes:
            probe.map_release(b, lanes)

    def map_acquire(self, b: Builder, addresses: Value, lanes: Value) -> None:
        for probe in self.probes:
            probe.map_acquire(b, addresses, lanes)

    def functions(self) -> Sequence[Builder]:
        return [function for probe in self.probes for function in probe.functions()]


def _rounded(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
