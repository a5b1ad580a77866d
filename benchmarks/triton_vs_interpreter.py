"""Compares the speed of Triton's own interpreter and of Weft, plain and with all checkers, on CPU tensors.

    python benchmarks/triton_vs_interpreter.py [--factor N] [--rounds N] [--only NAME,NAME]

Workloads, shapes and inputs are those of tests/triton/workloads.py, enlarged by the factor; a run is what a user calls:
outputs are made, kernels are launched. The interpreter must be chosen before Triton is imported, so it runs in a child
process. The three take turns at each workload, so that the load of a shared machine is about the same for all. Every
contender runs once before it is timed, so nothing is compiled while the clock runs; `cold_s` is that first run of Weft,
with an empty cache. Times are the fastest of the rounds, wall clock, Weft on all cores, NumPy on one thread. Outputs
are compared with PyTorch in float64. `min_speedup` is the least of all, plain and checked; a kernel below the bar or a
wrong output of Weft makes the exit code 1. Progress goes to stderr; the last line of stdout is one JSON object.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

BARS = {"geomean_speedup_plain": 50.0, "geomean_speedup_checked": 12.0, "min_speedup": 5.0}


def chosen(only: str) -> Iterator[tuple[str, Any, str]]:
    """Return name, workload and type of everything that the interpreter can run."""
    from tests.triton.workloads import WORKLOADS

    for workload in WORKLOADS:
        for dtype in workload.types:
            name = f"{workload.name}_{dtype}"
            if workload.interpreted and (not only or workload.name in only.split(",") or name in only.split(",")):
                yield name, workload, dtype


def fastest(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def interpret(factor: int, rounds: int, only: str) -> None:
    """Run the child: print one line of JSON for each name on stdin."""
    workloads = {name: (workload, dtype) for name, workload, dtype in chosen(only)}
    for line in sys.stdin:
        workload, dtype = workloads[line.strip()]
        case = workload.make(dtype, factor)
        try:
            wrong = workload.wrong(case, case.run(), dtype)
            seconds = fastest(case.run, rounds)
        except Exception as error:  # any failure means that it cannot run this workload
            wrong, seconds = f"{type(error).__name__}: {str(error).splitlines()[-1] if str(error) else ''}", math.nan
        print(json.dumps({"wrong": wrong, "s": seconds}), flush=True)


def interpreter(arguments: argparse.Namespace) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", "--factor", str(arguments.factor), "--only", arguments.only]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command += ["--rounds", "2"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def interpreted(child: subprocess.Popen[str], name: str) -> dict[str, Any]:
    assert child.stdin is not None and child.stdout is not None
    print(name, file=child.stdin, flush=True)
    for line in child.stdout:
        if line.startswith("{"):  # otherwise a kernel prints
            row: dict[str, Any] = json.loads(line)
            return row
    raise RuntimeError(f"the interpreter ended at {name}")


def on_weft(workload: Any, dtype: str, arguments: argparse.Namespace, *, check: bool) -> dict[str, Any]:
    import weft.triton

    with weft.triton.on("l4", check=check):
        case = workload.make(dtype, arguments.factor)
        start = time.perf_counter()
        got = case.run()
        cold = time.perf_counter() - start
        return {"cold_s": cold, "wrong": workload.wrong(case, got, dtype), "s": fastest(case.run, arguments.rounds)}


def tell(who: str, name: str, row: dict[str, Any]) -> dict[str, Any]:
    print(f"{who:12} {name:28} {row['s'] * 1e3:9.1f} ms  {row['wrong']}", file=sys.stderr)
    return row


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factor", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.child:
        interpret(arguments.factor, arguments.rounds, arguments.only)
        return 0
    slow, plain, checked = {}, {}, {}
    with tempfile.TemporaryDirectory() as cache, interpreter(arguments) as child:
        os.environ["WEFT_CACHE"] = cache
        for name, workload, dtype in chosen(arguments.only):
            slow[name] = tell("interpreter", name, interpreted(child, name))
            plain[name] = tell("weft plain", name, on_weft(workload, dtype, arguments, check=False))
            checked[name] = tell("weft checked", name, on_weft(workload, dtype, arguments, check=True))
        assert child.stdin is not None
        child.stdin.close()
    timed = [name for name in plain if not math.isnan(slow[name]["s"])]
    ratios = {name: (slow[name]["s"] / plain[name]["s"], slow[name]["s"] / checked[name]["s"]) for name in timed}
    result = {
        "kernels": len(plain),
        "geomean_speedup_plain": geomean([each for each, _ in ratios.values()]),
        "geomean_speedup_checked": geomean([each for _, each in ratios.values()]),
        "min_speedup": min((min(pair) for pair in ratios.values()), default=math.nan),
        "min_speedup_plain": min((each for each, _ in ratios.values()), default=math.nan),
        "min_speedup_checked": min((each for _, each in ratios.values()), default=math.nan),
        "wrong_weft": [name for name in plain if plain[name]["wrong"] or checked[name]["wrong"]],
        "wrong_interpreter": {name: row["wrong"] for name, row in slow.items() if row["wrong"]},
        "factor": arguments.factor,
        "bars": BARS,
        "each": {
            name: {
                "interpreter_ms": slow[name]["s"] * 1e3,
                "plain_ms": plain[name]["s"] * 1e3,
                "checked_ms": checked[name]["s"] * 1e3,
                "cold_s": plain[name]["cold_s"],
                "speedup_plain": ratios[name][0] if name in ratios else None,
                "speedup_checked": ratios[name][1] if name in ratios else None,
            }
            for name in plain
        },
    }
    print(json.dumps(result))
    good = not result["wrong_weft"] and all(result[name] >= bar for name, bar in BARS.items())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
