"""Several probes in one run: each receives every event and every call of the contract."""

import inspect
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pytest

import weft
from weft.core.errors import UsageError
from weft.probes import RaceCheck, Wavefronts
from weft.probes.combine import Probes
from weft.probes.shared_probe import SharedProbe, Touch
from weft.profile.site_probe import SiteProbe
from weft.vm.ir import Builder, Value, const
from weft.vm.memory import GlobalMemory
from weft.vm.program import ProgramSource
from weft.vm.runtime.watch import Access, Instrumentation

HOOKS = {name: value for name, value in vars(Instrumentation).items() if callable(value) and not name.startswith("_")}
"""All methods of the contract."""
EVENTS = [name for name, hook in HOOKS.items() if "b" in inspect.signature(hook).parameters]
"""Those that emit code where something happens."""
FLAGS = [name for name, value in vars(Instrumentation).items() if isinstance(value, bool)]


class Listener(SharedProbe):
    """Records which hooks were called, and with which arguments; all of that name share the list."""

    heard: list[tuple[str, str, tuple[Any, ...]]]

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in HOOKS or name == "wants":
            return found

        def listening(*args: Any) -> Any:
            self.heard.append((self.name, name, args))
            return found(*args)

        return listening

    def at_slot(self, slot: int) -> Self:
        self.slot = slot
        return self

    def access(self, b: Builder, event: Access) -> None:
        """Emits nothing."""

    def copy(self, b: Builder, event: Access) -> None:
        """Emits nothing."""

    def touch(self, b: Builder, touch: Touch) -> None:
        """Emits nothing."""


class One(Listener):
    name = "one"


class Two(Listener):
    name = "two"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_combination_has_every_hook_of_the_contract(hook: str) -> None:
    assert hook in vars(Probes), f"Probes inherits the empty {hook} of Instrumentation"


@pytest.mark.parametrize("flag", FLAGS)
def test_a_combination_requests_whatever_a_probe_requests(flag: str) -> None:
    asking = type("Asking", (One,), {flag: True, "heard": []})
    silent = type("Silent", (Two,), {"heard": []})
    assert getattr(Probes(asking(), silent()), flag)
    assert not getattr(Probes(silent()), flag)


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_reaches_every_probe(event: str) -> None:
    one, two = One(), Two()
    one.heard = two.heard = heard = []
    args = [SimpleNamespace(bulk=False, peer=False) for _ in inspect.signature(HOOKS[event]).parameters][1:]
    getattr(Probes(one, two), event)(*args)
    assert heard == [("one", event, tuple(args)), ("two", event, tuple(args))]


@pytest.mark.parametrize(("what", "flag"), [("bulk", "sees_bulk"), ("peer", "sees_peers")])
def test_some_accesses_reach_only_the_probes_that_ask_for_them(what: str, flag: str) -> None:
    one, two = One(), Two()
    one.heard = two.heard = heard = []
    setattr(two, flag, True)
    args = (SimpleNamespace(), SimpleNamespace(**{"bulk": False, "peer": False, what: True}))
    Probes(one, two).access(*args)  # type: ignore[arg-type]
    assert heard == [("two", "access", args)]


class Counter(SharedProbe):
    """Adds to a word of its memory at `event`."""

    event = ""

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return 64

    def counters(self, memory: npt.NDArray[np.uint8]) -> Mapping[str, int]:
        return {self.name: int(memory[:8].view(np.int64)[0])}

    def conclude(
        self, source: ProgramSource, visits: Sequence[int], boards: Sequence[npt.NDArray[np.uint8]]
    ) -> Mapping[str, int]:
        return {f"{self.name}_concluded": 1}

    def touch(self, b: Builder, touch: Touch) -> None:
        """Only the events below count."""

    def _add(self, b: Builder, memory: Value) -> None:
        b.store(b.op("add", b.load("i64", memory, align=8), const("i64", 1)), memory, align=8)


class Fences(Counter):
    name = "fences"

    def fence(self, b: Builder, lanes: Value) -> None:
        self._add(b, self.memory_of_warp(b))


class Arrivals(Counter):
    name = "arrivals"

    def arrive(self, b: Builder, number: Value, lanes: Value, waits: Value) -> None:
        self._add(b, self.memory_of_warp(b))


class Completions(Counter):
    name = "completions"

    def complete(self, b: Builder, worker: Value, number: Value, everyone: Value) -> None:
        self._add(b, self.memory(b, worker))


FENCED = """extern "C" __global__ void fenced(float* x) {
    x[threadIdx.x] = 1.0f;
    __threadfence();
    __syncthreads();
    __threadfence_block();
    __syncthreads();
}"""


def test_fences_arrivals_and_completions_are_counted_with_other_probes() -> None:
    """Three warps: each executes two fences and arrives at two barriers, which are completed once each."""
    watch = Probes(Fences(), Arrivals(), Completions(), Wavefronts())
    run = weft.VirtualGPU(threads=1).launch(
        weft.compile_cuda(FENCED, name="fenced.cu"), "fenced", 1, 96, [np.zeros(96, np.float32)], watch=watch
    )
    counted = {name: run.counters.get(name) for name in ("fences", "arrivals", "completions")}
    assert counted == {"fences": 6, "arrivals": 6, "completions": 2}
    assert {name for name in run.counters if name.endswith("_concluded")} == {
        "fences_concluded",
        "arrivals_concluded",
        "completions_concluded",
    }


def test_the_counters_of_a_site_probe_are_the_same_alone_and_combined() -> None:
    binary = weft.compile_cuda(FENCED, name="fenced.cu")
    probe = SiteProbe(len(binary.ptx.splitlines()))
    alone, combined = (
        weft.VirtualGPU(threads=1).launch(binary, "fenced", 1, 96, [np.zeros(96, np.float32)], watch=watch).counters
        for watch in (probe, Probes(probe, Wavefronts()))
    )
    assert alone["vm__distinct_store_sectors"] == 96 * 4 // 32
    assert dict(combined).items() >= dict(alone).items()


def test_two_probes_that_keep_memory_of_the_launch_are_refused() -> None:
    with pytest.raises(UsageError, match="race and sites"):
        Probes(SiteProbe(9), RaceCheck()).board_bytes(GlobalMemory(1 << 16))
