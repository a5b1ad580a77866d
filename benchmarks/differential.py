"""Compares generated C++ functions on the virtual GPU with the host's processor.

    python benchmarks/differential.py --functions 2000 [--first SEED] [--jobs J] [--builds both|release|debug]

Every function is compiled by NVRTC with `--fmad=false`, as its release and as its `-G` build, and by g++ with
`-ffp-contract=off`; results must be bit-equal, any NaN equals any NaN. Progress and differences go to stderr; the last
line of stdout is one JSON object.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.differential.compare import ARGUMENTS, Difference, compare, host_compiler

BATCH = 40
"""Functions of one translation unit."""
BUILDS = {"both": (False, True), "release": (False,), "debug": (True,)}


def batch(first: int, count: int, builds: tuple[bool, ...], folder: str) -> tuple[int, list[Difference]]:
    """Run one translation unit; return its number of functions and the differences."""
    return count, compare(range(first, first + count), Path(folder), builds=builds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--builds", choices=sorted(BUILDS), default="both")
    options = parser.parse_args()
    if host_compiler() is None:
        raise SystemExit("g++ is not installed; the results are compared with those of g++")
    start = time.perf_counter()
    builds, functions = BUILDS[options.builds], 0
    differences: list[Difference] = []
    last = options.first + options.functions
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEFT_CACHE"] = f"{folder}/cache"  # thousands of objects that are not used again
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            started = [
                pool.submit(batch, seed, min(BATCH, last - seed), builds, folder)
                for seed in range(options.first, last, BATCH)
            ]
            for future in started:
                count, found = future.result()
                functions += count
                differences += found
                for difference in found:
                    print(difference, file=sys.stderr)
                print(f"{functions} functions, {len(differences)} differences", file=sys.stderr, flush=True)
    print(
        json.dumps(
            {
                "functions": functions,
                "release_builds": functions * builds.count(False),
                "debug_builds": functions * builds.count(True),
                "arguments": ARGUMENTS * functions * len(builds),
                "differences": [(each.seed, each.debug, each.message) for each in differences],
                "first_seed": options.first,
                "seconds": round(time.perf_counter() - start, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
