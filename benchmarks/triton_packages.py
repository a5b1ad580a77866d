"""Triton kernels of packages on PyPI, unmodified, on CPU tensors: which equal their reference.

    pip install --no-deps -r requirements-packages.txt
    python benchmarks/triton_packages.py [--only PACKAGE,PACKAGE] [--check] [--seconds 120]

The kernels are those of tests/triton/package_kernels.py, through their packages' own functions. Each has so many
seconds, autotuning included. Progress goes to stderr; the last line of stdout is one JSON object.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def out_of_time(*_: object) -> None:
    raise TimeoutError("not awaited")


def outcome(kernel: Any, seconds: int) -> str:
    """Return `equal`, or the reason why not."""
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(seconds)
    try:
        return kernel.wrong() or "equal"
    except Exception as error:  # a package may fail in any way, and that is the result
        said = [line for line in str(error).splitlines() if line.strip()]
        # Triton prints the location first, the reason last.
        ends = dict.fromkeys(line.strip() for line in said[:1] + said[-1:])
        return f"{type(error).__name__}: {' … '.join(ends)}"[:400]
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="packages, with commas")
    parser.add_argument("--check", action="store_true", help="all checkers on")
    parser.add_argument("--seconds", type=int, default=120, help="for each kernel")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("GEMS_VENDOR", "nvidia")

    import weft.triton
    from tests.triton.package_kernels import KERNELS

    rows = []
    with tempfile.TemporaryDirectory() as folder, weft.triton.on("l4", cuda=True, check=options.check):
        os.environ.setdefault("FLAGGEMS_CACHE_DIR", folder)
        for kernel in KERNELS:
            if options.only and kernel.package not in options.only.split(","):
                continue
            start = time.perf_counter()
            result = outcome(kernel, options.seconds)
            took = time.perf_counter() - start
            print(f"{kernel.package:14} {kernel.name:28} {took:6.1f} s  {result}", file=sys.stderr, flush=True)
            rows.append(
                {
                    "package": f"{kernel.package} {version(kernel.package)}",
                    "kernel": kernel.name,
                    "result": result,
                    "first_s": round(took, 1),
                }
            )
    equal = Counter(row["package"] for row in rows if row["result"] == "equal")
    print(json.dumps({"kernels": len(rows), "equal": equal.total(), "equal_by_package": equal, "rows": rows}))


if __name__ == "__main__":
    main()
