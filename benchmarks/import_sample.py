"""How many CUDA files of a folder `weft import` reads: complete, partial or refused, and why.

    python benchmarks/import_sample.py FOLDER...

Every .cu file with a `__global__` kernel is imported in a child process with a time limit. Complete means: launch lines
without ???, whose formulas have values at their default sizes, and device code that NVRTC compiles with every kernel
that they launch (the import itself does). Nothing runs. The last line is JSON.
"""

import argparse
import collections
import json
import multiprocessing
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from weft.core.errors import WeftError
from weft.engines.kernel_file import load
from weft.interop.torch_extension.import_file import import_torch

SECONDS = 300
"""Per file; NVRTC needs tens of seconds for the largest."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--arch", default="sm_89")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="a regular expression for paths")
    parser.add_argument("--save", type=Path, help="write the imported files into this folder")
    options = parser.parse_args()
    files = [file for folder in options.folders for file in kernel_files(folder) if re.search(options.only, str(file))]
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
    states: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=None) as pool:
        tasks = [pool.submit(import_one, file, options.arch, options.save) for file in files]
        for file, task in zip(files, tasks, strict=True):
            state, why, seconds = task.result()
            states[state] += 1
            reasons.update({kind_of(reason) for reason in why})
            print(f"{state:<9} {seconds:5.1f} s  {file}" + "".join(f"\n            {each}" for each in why), flush=True)
    for reason, count in reasons.most_common():
        print(f"{count:4}  {reason}")
    print(json.dumps({"files": len(files), **{state: states[state] for state in ("complete", "partial", "refused")}}))


def kernel_files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*.cu")):
        if "__global__" in file.read_text(errors="replace"):
            yield file


def import_one(file: Path, arch: str, save: Path | None) -> tuple[str, list[str], float]:
    """Import a file in a separate child, which may be killed; return its state, the obstacle and the time."""
    started = time.monotonic()
    mine, other = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_import, args=(other, file, arch, save))
    child.start()
    other.close()
    try:
        state, why = mine.recv() if mine.poll(SECONDS) else ("refused", [f"no answer within {SECONDS} s"])
    except EOFError:
        state, why = "refused", ["the import crashed"]
    child.kill()
    child.join()
    return state, why, time.monotonic() - started


def _import(pipe, file: Path, arch: str, save: Path | None) -> None:  # type: ignore[no-untyped-def]
    try:
        found = import_torch(str(file), arch=arch)
        if save is not None:
            (save / "__".join(file.parts[-3:])).write_text(found.text)
        if found.problems:
            pipe.send(("partial", [problem.text for problem in found.problems]))
            return
        bind(found.text, file, arch)
    except WeftError as error:
        pipe.send(("refused", [str(error).splitlines()[0].removeprefix(str(file))]))
    except Exception as error:  # a defect of the importer: it is counted, and shown
        pipe.send(("refused", [f"crash: {type(error).__name__}: {error}"]))
    else:
        pipe.send(("complete", []))


def bind(text: str, file: Path, arch: str) -> None:
    """Read the imported file as a run would, and evaluate every formula. Its import has compiled it."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / file.name
        written.write_text(text)
        kernel = load(written, arch=arch)
        kernel.outline({})
        kernel.grids()


def kind_of(reason: str) -> str:
    """Return the reason without the parts that differ from file to file."""
    text = re.sub(r"`[^`]*`", "`…`", reason)
    text = re.sub(r"^:\d+: ", "", text)
    return re.sub(r"\b\d+\b", "N", text)[:110]


if __name__ == "__main__":
    sys.exit(main())
