"""Long robustness tests: mutated PTX texts for the parser, programs with random addresses for the virtual GPU.

    python benchmarks/fuzz.py --minutes 10 [--seed S]     mutated texts until the time is over
    python benchmarks/fuzz.py --texts 1000000             so many of them
    python benchmarks/fuzz.py --wild 5000 [--seed S]      random programs between guard pages, with and without checkers
    python benchmarks/fuzz.py --processes 8 --kernels 20  processes that compile and run the same kernels, one cache

A text must give a module, or an error with a line. A program must not access memory outside the virtual GPU's buffers
and must end within its budget. The last line of stdout is one JSON object; the first failure exits with status 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.fuzz.mutate import Mutator, outcome  # noqa: E402
from tests.fuzz.ptx_corpus import corpus  # noqa: E402
from tests.toolchain.test_shared_cache import run_processes  # noqa: E402

PROGRAMS = 16
"""Programs of one kernel."""
MODES = ((7, "end"), (7, "start"), (1, "end", "--watch"), (1, "start", "--watch"))
"""Sixteenths of the programs, the side of the guard pages, and whether initcheck and racecheck are on (they run
suspects again on the slow interpreter)."""
LONGEST_S = 1.0
"""Seconds; it is a bug if reading a text of half a kilobyte takes longer."""


def read_texts(seed: int, texts: int, minutes: float) -> dict[str, Any]:
    """Read mutated texts until there are enough or the time is over; return their number and the slowest time."""
    mutator = Mutator(corpus(1000, seed), seed)
    ends: Counter[str] = Counter()
    slowest, last = 0.0, time.monotonic() + 60 * minutes
    while ends.total() < texts and time.monotonic() < last:
        text = mutator.text()
        before = time.thread_time()
        ends[outcome(text)] += 1
        slowest = max(slowest, time.thread_time() - before)
        if ends.total() % 50_000 == 0:
            say(f"{ends.total()} texts")
    assert slowest < LONGEST_S, f"one text took {slowest:.1f} s"
    return {"texts": ends.total(), "ends": dict(ends), "slowest_ms": round(1000 * slowest, 1)}


def run_wild(seed: int, programs: int) -> dict[str, Any]:
    """Run random programs in every mode, each mode in a process that must survive."""
    started = []
    for part, place, *options in MODES:
        kernels = -(-programs * part // (16 * PROGRAMS))
        command = [sys.executable, "-m", "tests.fuzz.wild_addresses", "--first", str(seed), "--kernels", str(kernels)]
        command += ["--programs", str(PROGRAMS), "--place", place, *options]
        say(" ".join(command[1:]))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=REPOSITORY, text=True, **pipes))
        seed += kernels
    counts: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    for process in started:
        printed, complaint = process.communicate()
        if process.returncode:
            raise SystemExit(f"ended by {process.returncode}:\n{complaint[-3000:]}")
        result = json.loads(printed.splitlines()[-1])
        say(printed)
        counts.update({name: result[name] for name in ("programs", "refused")})
        codes.update(result["codes"])
    return {**counts, "codes": dict(sorted(codes.items()))}


def say(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--texts", type=int)
    parser.add_argument("--wild", type=int, metavar="PROGRAMS")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1_000_000)
    options = parser.parse_args()
    start = time.perf_counter()
    results: dict[str, Any] = {"seed": options.seed}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["WEFT_CACHE"] = cache
        if options.minutes is not None or options.texts is not None:
            texts = options.texts if options.texts is not None else sys.maxsize
            minutes = options.minutes if options.minutes is not None else float("inf")
            results |= read_texts(options.seed, texts, minutes)
        if options.wild is not None:
            results |= run_wild(options.seed, options.wild)
        if options.processes is not None:
            run_processes(options.processes, options.kernels, Path(cache) / "shared")
            results |= {"processes": options.processes, "kernels": options.kernels}
    print(json.dumps({**results, "seconds": round(time.perf_counter() - start, 1)}))


if __name__ == "__main__":
    main()
