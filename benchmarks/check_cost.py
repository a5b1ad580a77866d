"""Cost of the checkers: run time of attention at (1, 8, 512, 64) with each of them, relative to a run without probes.

    python benchmarks/check_cost.py [--rounds N]

Rounds are interleaved and a ratio is the median over rounds of (checked / plain) of the same round, in CPU time of the
one host thread that runs. memcheck and synccheck are part of the virtual GPU and on in every run, also the plain one:
their ratio is 1 by construction, and is measured as a check of the method. `racecheck_first` is racecheck of a kernel
with agents whose streams of events no earlier launch has shown. The last line is one JSON object.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from probe_cost import D, kernels

import weft
from weft.kernels import RUNGS
from weft.probes.race_streams import forget_streams
from weft.probes.tools import CHECKERS, watch_for
from weft.vm.launch import PLAIN

TOOLS = (*CHECKERS, "all", "racecheck_first")
NAMES = {"wmma": "wmma", "triton_flash": "triton_fa", "hopper_tma": "hopper_tma"}


@dataclass
class Rung:
    """A rung of the ladder, ready to run on (1, heads, length, 64)."""

    name: str
    heads: int
    length: int
    arrays: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        rng, shape = np.random.default_rng(0), (1, self.heads, self.length, D)
        self.kernel = weft.load(RUNGS[self.name].path)
        self.gpu = weft.VirtualGPU(self.kernel.gpu, threads=1)
        self.arrays = {name: rng.standard_normal(shape).astype(np.float16) for name in "qkv"}

    def launch(self, watch: Any) -> Any:
        return self.kernel.run(self.gpu, self.arrays, watch=watch).run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    options = parser.parse_args()
    chosen = {
        **kernels(options.heads, options.length),
        "hopper_tma": Rung("hopper_tma", options.heads, options.length),
    }
    watches = {"plain": PLAIN, **{tool: watch_for((tool.removesuffix("_first"),)) for tool in TOOLS}}
    results = {}
    for name, label in NAMES.items():
        kernel = chosen[name]
        for watch in watches.values():
            run = kernel.launch(watch)
            if run.findings:
                raise SystemExit(f"{label}: {run.findings[0]}")
        times: dict[str, list[float]] = {tool: [] for tool in watches}
        for _ in range(options.rounds):
            for tool, watch in watches.items():
                if tool == "racecheck_first":
                    forget_streams()
                start = time.thread_time()
                kernel.launch(watch)
                times[tool].append(time.thread_time() - start)
        results[label] = {
            tool: round(statistics.median(a / b for a, b in zip(times[tool], times["plain"], strict=True)), 2)
            for tool in TOOLS
        }
        print(f"{label:10} " + "  ".join(f"{tool} {ratio:.2f}" for tool, ratio in results[label].items()))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
