"""The processes of the fault benchmarks, and the kernels that they judge."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.evolve.history import History
from weft.evolve.lever_proposer import LeverProposer
from weft.evolve.levers.space import family, start_of
from weft.evolve.records import Change, Member, Proposal
from weft.evolve.search import Search, settings_of
from weft.evolve.settings import Settings
from weft.fleet.requests import ASK, request_record
from weft.fleet.terms import Terms
from weft.fleet.worker import Worker
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.probes.tools import watch_for
from weft.profile.profiler import Profiler
from weft.store.records import EvaluationRow
from weft.store.store import Store, open_store
from weft.supervise.key import request_key
from weft.supervise.records import CandidateSource, Limits, Request
from weft.vm.launch import PLAIN

SIZES = {"B": 1, "HQ": 1, "HKV": 1, "SQ": 32, "SKV": 32, "D": 64}
"""Sizes of the shape `small`."""
ARCH = "sm_89"
"""The architecture of the chip `l4`, the default of requests."""
IN_A_ROW = 8
"""Evaluations of one kernel in a row: a worker that survives has its code cached then."""
LIMITS = Limits(wall_seconds=300)


@cache
def kernels() -> dict[str, CandidateSource]:
    """Return the scalar rung as PTX, so that only the worker compiles, and wrong versions of it."""
    path = RUNGS["scalar"].path
    text = path.read_text()
    binary = load(path).compile(sizes=SIZES)
    ((name, symbol),) = binary.entries.items()
    lines = "\n".join(line for line in text.splitlines() if line.startswith("// weft:"))
    right = lines.replace("scalar_attention<{D}>", symbol)
    assert symbol in right, name
    return {
        "right": CandidateSource(binary.ptx, "ptx", right),
        "other scale": CandidateSource(binary.ptx, "ptx", right.replace("1 / sqrt(D)", "2 / sqrt(D)")),
        "too many queries": CandidateSource(
            binary.ptx,
            "ptx",
            right.replace("HKV, SQ, SKV", "HKV, SQ + 4, SKV").replace(
                "grid(cdiv(SQ, WARPS)", "grid(cdiv(SQ, WARPS) + 1"
            ),
        ),
    }


STATUSES = ("PASSED", "INCORRECT_NUMERICAL", "UNSAFE")
"""Statuses of the kernels, in their order."""


def expected_status(number: int) -> str:
    """Return the status that an evaluation must have."""
    return STATUSES[number // IN_A_ROW % len(STATUSES)]


def asked(number: int) -> Request:
    """Return a request for one small workload. Every number gives other inputs, and so another evaluation."""
    sources = list(kernels().values())
    choice = Choice(shapes=("small",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(number,))
    return Request(sources[number // IN_A_ROW % len(sources)], choice=choice, score=None, debug_build=False)


def queue(store: Store, run_id: int, number: int) -> EvaluationRow:
    """Put an evaluation into the store, as a search does."""
    request = asked(number)
    source = request.source
    candidate = store.add_candidate(
        run_id,
        digest=source.digest,
        source=source.text,
        language=source.language,
        launch=source.launch,
        defines=source.defines,
    )
    row: dict[str, Any] = {"for": "search", "number": number, ASK: request_record(request, LIMITS)}
    return store.enqueue(run_id, candidate.id, request_key(request), request=row)


def warm_up(scratch: Path) -> None:
    """Run the kernels once, and the start of the quick searches, so that processes forked later have their code."""
    for number, source in enumerate(kernels().values()):
        path, lines = scratch / f"{number}.ptx", scratch / f"{number}.launch"
        path.write_text(source.text)
        lines.write_text(source.launch)
        kernel = load(path, arch=ARCH, launch=lines)
        for watch in (PLAIN, watch_for(("all",))):
            kernel.run(VirtualGPU(ARCH, threads=1), sizes=SIZES, watch=watch)
        kernel.run(Profiler(VirtualGPU(ARCH, threads=1)), sizes=SIZES)


@dataclass(frozen=True)
class QuickProposer:
    """Proposes children that are judged in a fraction of the time of real levers: the scalar rung's PTX with additional
    CTAs without work. A proposal depends on earlier results.
    """

    name: str = "quick"
    gave_up: str = ""

    def propose(
        self, history: History, settings: Settings, place: str, siblings: Sequence[Proposal]
    ) -> Proposal | None:
        """Return a child of the best candidate."""
        best = min((each for each in history if each.score), key=lambda each: (each.score, each.id))
        number = crc32(f"{settings.seed} {place} {best.digest}".encode())
        more, right = 1 + number % 200, kernels()["right"]
        launch = right.launch.replace("grid(cdiv(SQ, WARPS)", f"grid(cdiv(SQ, WARPS) + {more}")
        changes = Change("more CTAs", "0", str(more)), Change("place", "", place)
        return Proposal(CandidateSource(right.text, "ptx", launch), (best.id,), changes, "nothing changes")

    def repair(self, history: History, settings: Settings, failed: Member, place: str) -> Proposal | None:
        """Return nothing: this proposer does not repair."""
        return None


def drive(where: str, run_id: int) -> None:
    """Run the driver of a search from its current state."""
    with open_store(where) as store:
        settings = settings_of(store.run(run_id))
        levers = LeverProposer(family("sdpa"), start_of("wmma"))
        proposer = levers if settings.proposer == levers.name else QuickProposer()
        Search(store, run_id, settings, proposer, workers=1).go()


def work(where: str, name: str, lease_seconds: float, once: int) -> None:
    """Run a worker, forever or until the queue is empty."""
    with open_store(where) as store:
        Worker(store, name, Terms(lease_seconds=lease_seconds, once=bool(once))).work()


LIVES: Mapping[str, Callable[..., None]] = {"drive": drive, "work": work}
