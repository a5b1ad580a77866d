"""Scores by time: a child is timed with its parent, twice before it is kept; no time below the bound counts."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.engines.recording_cuda import RecordingCuda
from weft.bench.measure import BenchSettings
from weft.engines.cuda_gpu import CudaGPU
from weft.evolve.elites import elites
from weft.evolve.history import History, read_history
from weft.evolve.lever_proposer import LeverProposer
from weft.evolve.levers.render import render
from weft.evolve.levers.space import family, start_of
from weft.evolve.search import Search, start_search
from weft.evolve.settings import Budget, Settings
from weft.evolve.stopwatch import GpuStopwatch, Timing, time_child
from weft.judge.select import Choice
from weft.store.store import open_store
from weft.supervise.records import CandidateSource, ScoreOn

SETTINGS = Settings(
    seed=1,
    batch=2,
    score_on=ScoreOn(shape="split_64"),
    choice=Choice(shapes=("split_64",), regimes=("unit_normal",), masks=("none",), seeds=(0,)),
    final=Choice(shapes=("split_64",), regimes=("unit_normal",), masks=("none",), seeds=(0,)),
    budget=Budget(evaluations=3),
)


@dataclass
class GivenTimes:
    """A stopwatch that returns the given times in order."""

    timings: list[Timing]
    asked: list[tuple[CandidateSource, CandidateSource | None]] = field(default_factory=list)

    def time(self, child: CandidateSource, parent: CandidateSource | None) -> Timing:
        self.asked.append((child, parent))
        return self.timings.pop(0)


def test_a_child_that_looks_better_is_timed_again_and_the_worse_answer_counts() -> None:
    lucky = GivenTimes([Timing(90, 0.90, 0.93, ""), Timing(99, 0.99, 1.01, "")])
    assert time_child(lucky, CandidateSource("child"), CandidateSource("parent"), 0.03) == Timing(99, 1.01, 1.01, "")
    better = GivenTimes([Timing(90, 0.90, 0.93, ""), Timing(91, 0.91, 0.94, "")])
    assert time_child(better, CandidateSource("child"), CandidateSource("parent"), 0.03).ratio == 0.94
    worse = GivenTimes([Timing(98, 0.98, 0.99, "")])
    assert time_child(worse, CandidateSource("child"), CandidateSource("parent"), 0.03).ratio == 0.98
    assert [len(each.asked) for each in (lucky, better, worse)] == [2, 2, 1]


def search(tmp_path: Path, timings: list[Timing]) -> tuple[History, GivenTimes]:
    stopwatch = GivenTimes(timings)
    with open_store(tmp_path / "weft.db") as store:
        run = start_search(store, SETTINGS)
        proposer = LeverProposer(family("sdpa"), start_of("wmma"))
        Search(store, run.id, SETTINGS, proposer, workers=2, stopwatch=stopwatch).go()
        return read_history(store, run.id), stopwatch


def test_a_search_keeps_by_time_and_refuses_what_is_too_good_to_be_true(tmp_path: Path) -> None:
    history, stopwatch = search(
        tmp_path,
        [
            Timing(100, 1, 1, ""),
            Timing(80, 0.8, 0.85, ""),
            Timing(82, 0.82, 0.86, ""),
            Timing(1e-6, 1e-8, 1e-8, ""),
            Timing(1e-6, 1e-8, 1e-8, ""),
        ],
    )
    start, kept, refused = history.members
    assert [start.score, kept.score] == [100, 82] and stopwatch.timings == []
    assert refused.status == "REJECTED" and "below the lower bound" in refused.refused and not refused.passed
    assert [each.id for each in elites(history, SETTINGS)] == [kept.id, start.id]
    assert stopwatch.asked[0][1] is None and stopwatch.asked[1][1] == stopwatch.asked[0][0], (
        "with its parent, in the same rounds"
    )


def test_outputs_that_are_wrong_on_the_gpu_refuse_a_candidate(tmp_path: Path) -> None:
    history, _ = search(tmp_path, [Timing(100, 1, 1, "tight: 3 of 64 elements")])
    assert not history.start.passed and history.start.refused == "wrong on the GPU: tight: 3 of 64 elements"


def test_the_gpu_stopwatch_times_both_on_the_device() -> None:
    cuda = RecordingCuda()
    watch = GpuStopwatch(CudaGPU(cuda.device()), "sdpa", replace(SETTINGS.score_on), BenchSettings(rounds=12, warmup=1))
    space = family("sdpa")
    parent = CandidateSource(render(space, start_of("wmma")))
    child = CandidateSource(render(space, start_of("wmma").moved({"BLOCK_N": "64", "EXP": "exp2"})))
    found = watch.time(child, parent)
    assert found.wrong == "" and found.microseconds > 0 and found.ratio_high >= found.ratio
    alone = watch.time(parent, None)
    assert alone.ratio == 1.0
