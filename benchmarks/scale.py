"""Measures the inputs of docs/scale.md: verdicts per second of a store, their bytes, and the share of known ones.

    python benchmarks/scale.py [--rows 2000] [--searches 3] [--budget 12] [--postgres]

`sqlite_N`, `postgres_N` (with --postgres, a private server): evaluations queued one by one by one process
(`queued_per_s`), then leased and finished with a result of a real size by N processes, without judging anything, in
batches of MOST_AHEAD as workers do after short evaluations (`finished_per_s`). `starved` counts calls that the store
refused; `bytes_per_verdict` are of the file or of the database. `searches` and the keys after it: searches from several
seeds in one store; how many candidates are the same code as an earlier one of the run (`duplicates`), and how many
verdicts were known from an earlier run (`known`). The last line is one JSON object.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.postgres_server import PostgresServer
from weft.evolve.history import read_history
from weft.evolve.lever_proposer import LeverProposer
from weft.evolve.levers.space import family, start_of
from weft.evolve.search import Search, start_search
from weft.evolve.settings import Budget, Settings
from weft.fleet.pace import MOST_AHEAD
from weft.fleet.requests import ASK, request_record
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.store.errors import StoreError
from weft.store.records import Lease, Result, State
from weft.store.store import open_store
from weft.supervise.key import request_key
from weft.supervise.records import CandidateSource, Limits, Request, ScoreOn
from weft.supervise.supervisor import Supervisor

PROCESSES = (1, 4, 8)
SMALL = Settings(
    score_on=ScoreOn(shape="small"),
    choice=Choice(shapes=("split_65",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,)),
    final=Choice(shapes=("split_65",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,)),
)


def real_result() -> tuple[Request, dict[str, Any]]:
    """Return the result of a rung at a small shape: all results that pass have the same size."""
    request = Request(CandidateSource(RUNGS["wmma"].path.read_text()), choice=SMALL.choice, score=SMALL.score_on)
    with Supervisor() as supervisor:
        found = supervisor.evaluate(request)
    if not found.passed:
        raise SystemExit(f"the rung did not pass: {found.message}")
    return request, found.record()


def default_search_core_seconds() -> dict[str, float]:
    """Measure the CPU time of a candidate of `weft evolve` by default, with the fork server but without its start."""
    used = {}
    for rung in ("wmma", "pipelined"):
        with Supervisor() as supervisor:
            supervisor.isolation  # noqa: B018  (starts the fork server)
            before = resource.getrusage(resource.RUSAGE_SELF)
            settings = Settings()
            found = supervisor.evaluate(
                Request(
                    CandidateSource(RUNGS[rung].path.read_text() + "\n// new\n"),
                    choice=settings.choice,
                    score=settings.score_on,
                    debug_build=False,
                )
            )
            own = resource.getrusage(resource.RUSAGE_SELF)
            children = _children_seconds(supervisor)
        if not found.passed:
            raise SystemExit(found.message)
        used[rung] = round(own.ru_utime + own.ru_stime - before.ru_utime - before.ru_stime + children, 2)
    return used


def _children_seconds(supervisor: Supervisor) -> float:
    """Return the CPU time of the fork server's children that ended: it waits for each."""
    fields = Path(f"/proc/{supervisor.zygote.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def drain(where: str, result: dict[str, Any], ready: Any, starved: Any) -> None:
    """Run a worker that judges nothing, so that it writes all the time: SQLite may refuse it after a long wait."""
    with open_store(where) as store:
        ready.wait()
        leases: tuple[Lease, ...] = ()
        while True:
            try:
                leases = leases or store.lease_some(f"{os.getpid()}", MOST_AHEAD, seconds=600)
                if not leases:
                    return
                store.finish_all([Result(lease, "PASSED", result, seconds=1.0) for lease in leases])
                leases = ()
            except StoreError:
                with starved.get_lock():
                    starved.value += 1


def store_rates(where: str, rows: int, processes: int, request: Request, result: dict[str, Any]) -> dict[str, float]:
    """Queue, then lease and finish."""
    context = multiprocessing.get_context("spawn")
    with open_store(where) as store:
        run = store.start_run("benchmark", task="sdpa", chip="l4", seed=0, settings={})
        asked, before = {"for": "search", ASK: request_record(request, Limits())}, size(where)
        start = time.perf_counter()
        for number in range(rows):
            source = f"{request.source.text}\n// {processes} {number}\n"
            row = store.add_candidate(run.id, digest=f"{processes} {number}", source=source)
            store.enqueue(run.id, row.id, f"{processes} {number}", request=asked)
        queued = time.perf_counter() - start
        ready, starved = context.Barrier(processes + 1), context.Value("i", 0)
        drains = [context.Process(target=drain, args=(where, result, ready, starved)) for _ in range(processes)]
        for each in drains:
            each.start()
        ready.wait()  # they have imported and connected
        start = time.perf_counter()
        for each in drains:
            each.join()
        seconds = time.perf_counter() - start
        done = len(store.evaluations(run.id, state=State.DONE))
    if done != rows:
        raise SystemExit(f"{done} of {rows} are done")
    found = {
        "queued_per_s": round(rows / queued, 1),
        "finished_per_s": round(rows / seconds, 1),
        "starved": starved.value,
        "bytes_per_verdict": round((size(where) - before) / rows),
    }
    print(f"{where.partition(':')[0]}, {processes} processes: {found}", file=sys.stderr, flush=True)
    return found


def size(where: str) -> int:
    """Return the size of the complete database."""
    if "://" not in where:
        return sum(Path(where + more).stat().st_size for more in ("", "-wal") if Path(where + more).exists())
    engine = sa.create_engine(where.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        found = connection.execute(sa.text("select pg_database_size(current_database())")).scalar_one()
    engine.dispose()
    return int(found)


def searches(where: str, count: int, budget: int) -> dict[str, Any]:
    """Run searches one after another, in one store."""
    candidates = duplicates = verdicts = known = 0
    for seed in range(count):
        settings = replace(SMALL, seed=seed, budget=Budget(evaluations=budget))
        with open_store(where) as store:
            run = start_search(store, settings)
            Search(store, run.id, settings, LeverProposer(family("sdpa"), start_of("wmma")), workers=2).go()
            members = read_history(store, run.id).members
            rows = store.evaluations(run.id)
        candidates, duplicates = (
            candidates + len(members),
            duplicates + sum(m.duplicate_of is not None for m in members),
        )
        verdicts, known = verdicts + len(rows), known + sum(row.cached for row in rows)
        print(
            f"search {seed}: {len(members)} candidates, {sum(r.cached for r in rows)} known",
            file=sys.stderr,
            flush=True,
        )
    return {"searches": count, "candidates": candidates, "duplicates": duplicates, "verdicts": verdicts, "known": known}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--searches", type=int, default=3)
    parser.add_argument("--budget", type=int, default=12)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--store-only", action="store_true", help="judge nothing but one small kernel")
    options = parser.parse_args()
    made: dict[str, Any] = {}
    request, result = real_result()
    made["result_bytes"], made["source_bytes"] = len(json.dumps(result)), len(request.source.text)
    made["request_bytes"] = len(json.dumps(request_record(request, Limits())))
    if not options.store_only:
        made["default_search_core_seconds"] = default_search_core_seconds()
    start = time.perf_counter()
    request_key(request)
    made["first_key_seconds"] = round(time.perf_counter() - start, 3)
    with tempfile.TemporaryDirectory() as folder:
        for processes in PROCESSES:
            where = str(Path(folder) / f"{processes}.db")
            made[f"sqlite_{processes}"] = store_rates(where, options.rows, processes, request, result)
        if options.postgres:
            with PostgresServer() as server:
                for processes in PROCESSES:
                    made[f"postgres_{processes}"] = store_rates(
                        server.new_database(), options.rows, processes, request, result
                    )
        if not options.store_only:
            made |= searches(str(Path(folder) / "searches.db"), options.searches, options.budget)
    print(json.dumps(made))


if __name__ == "__main__":
    main()
