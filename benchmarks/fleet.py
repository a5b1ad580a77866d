"""Cost of supervisor, store and Ray: verdicts per second of the bare virtual GPU, of the supervisor, of local Ray.

    python benchmarks/fleet.py [--rounds 5] [--slots 2] [--parts 2]

All judge the same candidates on the same workloads: eight right kernels (rungs and children of a search) and four wrong
ones, at two sizes and with two masks, then the counts of the score. Every candidate is new, as in a search: it is
compiled in every round. `bare` judges in the process itself, one process per slot; `supervisor` in children of as many
supervisors; `ray` in actors that lease from a store. All stay warm; parts of a round take turns, so that other load of
the machine affects all equally. Rates and overheads are medians over rounds; core-seconds are CPU time per verdict. The
last line is one JSON object.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.zoo.zoo import ZOO
from weft.attention.shapes import SHAPES
from weft.engines.virtual import VirtualGPU
from weft.evolve.levers import family, render, start_of, two_levers
from weft.fleet.ray_fleet import RayFleet
from weft.fleet.requests import ASK, request_record
from weft.fleet.terms import Terms
from weft.judge.judge import check
from weft.judge.select import Choice, find_candidate, workloads
from weft.kernels.ladder import RUNGS
from weft.profile.profiler import Profiler
from weft.store.records import State
from weft.store.store import Store, open_store
from weft.supervise.child import preload
from weft.supervise.counted import CountedLaunch, Profile, counted_launches
from weft.supervise.key import request_key
from weft.supervise.records import CandidateSource, Limits, Request, ScoreOn
from weft.supervise.supervisor import Supervisor
from weft.tasks.registry import find_task
from weft.tasks.task import Workload

RIGHT = ("scalar", "fa1", "split_k", "wmma_qk", "wmma")
CHILDREN = 3
WRONG = ("Z03", "Z05", "Z09", "Z12")
CHOICE = Choice(
    shapes=("small", "ragged"), regimes=("unit_normal",), masks=("none", "bottom_right"), dtypes=("f16",), seeds=(0,)
)
SCORE = ScoreOn(shape="small")
LIMITS = Limits(wall_seconds=600)
MODES = ("bare", "supervisor", "ray")
COUNT = len(RIGHT) + CHILDREN + len(WRONG)


@dataclass(frozen=True)
class Measured:
    """A part of a round, or a complete round."""

    seconds: float
    cpu_seconds: float
    statuses: dict[int, str]
    """Statuses by position in the mix."""

    def __add__(self, other: "Measured") -> "Measured":
        return Measured(
            self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds, self.statuses | other.statuses
        )


def texts() -> list[str]:
    """Return the mix of candidates."""
    bugs = {bug.id: bug for bug in ZOO}
    chance, space, start = random.Random(0), family("sdpa"), start_of("wmma")
    children = [render(space, two_levers(space, start, chance)) for _ in range(CHILDREN)]
    return [*(RUNGS[name].path.read_text() for name in RIGHT), *children, *(bugs[name].text() for name in WRONG)]


def request_for(place: int, mark: str) -> Request:
    """Return a new candidate: the mark changes its text."""
    return Request(CandidateSource(f"{texts()[place]}\n// {mark}\n"), choice=CHOICE, score=SCORE, debug_build=False)


def bare(request: Request, folder: Path) -> str:
    """Judge as the supervisor does, in this process."""
    task = find_task(request.task)
    path = folder / f"{request.source.digest}.cu"
    path.write_text(request.source.text)
    candidate, supports = find_candidate(str(path), task=request.task, arch="sm_89")
    score = Workload(SHAPES[SCORE.shape], SCORE.dtype, SCORE.mask, SCORE.regime, SCORE.seed, SCORE.encoding)
    todo = list(workloads(supports, request.choice))
    for workload in [*(each for each in todo if each != score), score]:
        verdict = check(candidate, task, workload)
        if not verdict.passed:
            return verdict.status.value
    problem = task.draw(score)
    kernel = candidate.load(problem)
    profiler = Profiler(VirtualGPU(kernel.arch))
    kernel.run(profiler, {name: array.copy() for name, array in problem.arrays.items()})
    launches, why = counted_launches(profiler, kernel)
    if not launches:
        raise RuntimeError(why)
    shape = score.shape
    sizes = {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}
    counted = tuple(CountedLaunch.from_record(json.loads(json.dumps(launch))) for launch in launches)
    return "PASSED" if Profile("l4", None, sizes, counted).est_high > 0 else "REJECTED"


def one_process(mode: str, cache: Path, todo: Any, answers: Any) -> None:
    """Run a slot without a store: judge the next candidate until there is none."""
    os.environ["WEFT_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name, Supervisor(LIMITS) as supervisor:
        folder = Path(name)
        if mode == "bare":
            preload(folder)
        else:
            supervisor.isolation  # noqa: B018  (starts the fork server)
        answers.put((-1, ""))
        while (asked := todo.get()) is not None:
            place, request = asked
            if mode == "bare":  # as after a warm start, without code of this candidate
                fresh = folder / request.source.digest
                shutil.copytree(cache, fresh, copy_function=os.link)
                os.environ["WEFT_CACHE"] = str(fresh)
                answers.put((place, bare(request, folder)))
            else:
                answers.put((place, supervisor.evaluate(request).status.value))


class WithoutStore:
    """Processes of `bare` or `supervisor`, for all rounds."""

    def __init__(self, mode: str, slots: int, cache: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._todo, self._answers = context.Queue(), context.Queue()
        start = time.perf_counter()
        self._processes = [
            context.Process(target=one_process, args=(mode, cache, self._todo, self._answers)) for _ in range(slots)
        ]
        for process in self._processes:
            process.start()
        for _ in self._processes:
            self._answers.get(timeout=300)
        self.start_up_seconds = time.perf_counter() - start

    def measure(self, places: list[int], mark: str) -> Measured:
        """Judge these candidates of the mix."""
        asked = [(place, request_for(place, mark)) for place in places]
        used, begun = self._cpu_seconds(), time.perf_counter()
        for each in asked:
            self._todo.put(each)
        statuses = dict(self._answers.get(timeout=900) for _ in asked)
        return Measured(time.perf_counter() - begun, self._cpu_seconds() - used, statuses)

    def _cpu_seconds(self) -> float:
        return sum(cpu_seconds(process.pid or 0) for process in self._processes)

    @property
    def memory_bytes(self) -> int:
        """Proportional, of all its processes while they are warm."""
        return sum(proportional_bytes(process.pid or 0) for process in self._processes)

    def close(self) -> None:
        """End them."""
        for _ in self._processes:
            self._todo.put(None)
        for process in self._processes:
            process.join()


class OnRay:
    """A cluster of this machine with warm actors, for all rounds."""

    def __init__(self, slots: int, folder: Path) -> None:
        where = str(folder / "weft.db")
        self.store: Store = open_store(where)
        self.run = self.store.start_run("benchmark", task="sdpa", chip="l4", seed=0, settings={})
        others, start = set(family_of(os.getpid())), time.perf_counter()
        self._fleet = RayFleet(self.store, where, slots=slots, terms=Terms())
        self._fleet.start(self.run.id)
        self.cluster_seconds = time.perf_counter() - start
        while len(self.store.workers()) < slots:
            self._fleet.tend()
            time.sleep(0.05)
        self.measure([0, 1], "warm up")
        self.start_up_seconds = time.perf_counter() - start
        self._processes = [process for process in family_of(os.getpid()) if process not in others]

    def measure(self, places: list[int], mark: str) -> Measured:
        """Queue these candidates of the mix, as a search does, and wait."""
        asked = {place: request_for(place, mark) for place in places}
        used, begun = cpu_seconds(os.getpid(), below=OTHERS), time.perf_counter()
        numbers = {place: self._enqueue(request) for place, request in asked.items()}
        while True:
            self._fleet.tend()
            rows = {place: self.store.evaluation(number) for place, number in numbers.items()}
            if all(row.state is State.DONE for row in rows.values()):
                break
            time.sleep(0.2)
        statuses = {place: str(row.status) for place, row in rows.items()}
        seconds = time.perf_counter() - begun
        return Measured(seconds, cpu_seconds(os.getpid(), below=OTHERS) - used, statuses)

    def _enqueue(self, request: Request) -> int:
        source = request.source
        row = self.store.add_candidate(self.run.id, digest=source.digest, source=source.text)
        asked = {"for": "search", ASK: request_record(request, LIMITS)}
        return self.store.enqueue(self.run.id, row.id, request_key(request), request=asked).id

    @property
    def memory_bytes(self) -> int:
        """Return the memory of Ray's own processes and of the actors."""
        return sum(proportional_bytes(process, alone=True) for process in self._processes)

    def close(self) -> None:
        """End it."""
        self._fleet.close()
        self.store.close()


OTHERS: set[int] = set()
"""Processes of the other modes, which are children of this process too."""


def family_of(root: int, without: Collection[int] = ()) -> list[int]:
    """Return a process and its descendants, without those of the processes in `without`."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += [child for child in children.get(found[-1], []) if child not in without]
    return found


def cpu_seconds(root: int, below: Collection[int] = ()) -> float:
    """Return the CPU time of a process and its descendants, also of those that ended and were waited for."""
    ticks = 0
    for process in family_of(root, below):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def proportional_bytes(root: int, *, alone: bool = False) -> int:
    """Return the memory of a process, with shared pages divided by the number of processes that share them."""
    total = 0
    for process in [root] if alone else family_of(root):
        try:
            rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:")) * 1024
    return total


def filled_cache(folder: Path) -> Path:
    """Compile what the virtual GPU compiles once per machine."""
    os.environ["WEFT_CACHE"] = str(folder / "cache")
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=preload, args=(folder,))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit("the warm up failed")
    return folder / "cache"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--parts", type=int, default=2, help="parts of a round; use more on a busy machine")
    options = parser.parse_args()
    found: dict[str, list[Measured]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as name:
        cache = filled_cache(Path(name))
        bare_ones = WithoutStore("bare", options.slots, cache)
        supervised = WithoutStore("supervisor", options.slots, cache)
        OTHERS.update(family_of(os.getpid())[1:])
        ray = OnRay(options.slots, Path(name))
        ways: dict[str, WithoutStore | OnRay] = {"bare": bare_ones, "supervisor": supervised, "ray": ray}
        try:
            for number in range(options.rounds):
                for mode, measured in one_round(ways, number, options.parts).items():
                    found[mode].append(measured)
                    rate, each = COUNT / measured.seconds, measured.cpu_seconds / COUNT
                    line = f"round {number} {mode}: {rate:.3f} verdicts/s, {each:.2f} core-seconds each"
                    print(line, file=sys.stderr, flush=True)
            made = summary(found, options.slots)
            for mode, way in ways.items():
                made[f"{mode}_start_up_seconds"] = round(way.start_up_seconds, 2)
                made[f"{mode}_memory_mib"] = round(way.memory_bytes / 2**20)
            made["ray_cluster_start_seconds"] = round(ray.cluster_seconds, 2)
        finally:
            for way in ways.values():
                way.close()
    print(json.dumps(made))


def one_round(ways: Mapping[str, Any], number: int, parts: int) -> dict[str, Measured]:
    """Judge the complete mix in every mode, in parts that take turns; the first mode rotates."""
    places = random.Random(number).sample(range(COUNT), COUNT)
    total: dict[str, Measured] = {}
    for part in range(parts):
        turn = (number * parts + part + number) % len(MODES)
        for mode in (*MODES[turn:], *MODES[:turn]):
            measured = ways[mode].measure(places[part::parts], f"{mode} {number}")
            total[mode] = total[mode] + measured if mode in total else measured
    return total


def summary(found: dict[str, list[Measured]], slots: int) -> dict[str, Any]:
    """Return medians over rounds; overheads are medians of the overheads of each round."""
    verdicts = [measured.statuses for rounds in found.values() for measured in rounds]
    made: dict[str, Any] = {
        "slots": slots,
        "rounds": len(found["bare"]),
        "verdicts_per_round": COUNT,
        "same_statuses": all(each == verdicts[0] for each in verdicts),
        "statuses": Counter(verdicts[0].values()),
    }
    for mode in MODES:
        made[f"{mode}_per_s"] = round(statistics.median(COUNT / each.seconds for each in found[mode]), 4)
        made[f"{mode}_core_seconds"] = round(statistics.median(each.cpu_seconds / COUNT for each in found[mode]), 3)
    for mode in MODES[1:]:
        pairs = list(zip(found["bare"], found[mode], strict=True))
        wall = [its.seconds / plain.seconds - 1 for plain, its in pairs]
        cpu = [its.cpu_seconds / plain.cpu_seconds - 1 for plain, its in pairs]
        made[f"{mode}_overhead"] = round(statistics.median(wall), 4)
        made[f"{mode}_cpu_overhead"] = round(statistics.median(cpu), 4)
        made[f"{mode}_overhead_range"] = [round(min(wall), 3), round(max(wall), 3)]
        made[f"{mode}_cpu_overhead_range"] = [round(min(cpu), 3), round(max(cpu), 3)]
    return made


if __name__ == "__main__":
    main()
