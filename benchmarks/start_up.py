"""Start-up time: CPU and wall time, and modules loaded, of `import weft` and of light commands.

python benchmarks/start_up.py [--write]     --write puts the table into docs/reference/install.md
"""

import argparse
import datetime
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "install.md"
RUNS = 10
MAIN = "from weft.cli.main import main; main({})"
COMMANDS = {
    "python alone": "pass",
    "import weft": "import weft",
    "weft": MAIN.format([]),
    "weft --help": MAIN.format(["--help"]),
    "weft doctor": MAIN.format(["doctor"]),
}
LIMITS = {"import weft": 150, "weft": 300, "weft --help": 300, "weft doctor": 300}
"""Milliseconds of CPU time, the limits of tests/arch."""


def measure(program: str) -> tuple[float, float]:
    """Return CPU and wall milliseconds of one fresh interpreter."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * cpu, 1000 * wall


def modules(program: str) -> int:
    """Return how many modules are loaded after the program."""
    counted = f"{program}\nimport sys; print(len(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", counted], check=True, capture_output=True, text=True)
    return int(done.stderr.split()[-1])


def table() -> str:
    """Return the table as Markdown, with its date."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):  # in turn, so that other load affects all of them
        for name, program in COMMANDS.items():
            times[name].append(measure(program))
    rows = ["| | CPU, ms | wall, ms | modules | limit, CPU |", "|---|---|---|---|---|"]
    for name, program in COMMANDS.items():
        cpu, wall = (statistics.median(column) for column in zip(*times[name], strict=True))
        limit = f"{LIMITS[name]}" if name in LIMITS else ""
        rows.append(f"| `{name}` | {cpu:.0f} | {wall:.0f} | {modules(program)} | {limit} |")
    day = datetime.datetime.now(datetime.UTC).date()
    rows += [
        "",
        f"Medians of {RUNS} runs in turn by `benchmarks/start_up.py` on {day}, on 2 cores of a shared Xeon with other",
        "work. CPU is user and system time of a fresh interpreter; files are in the page cache.",
    ]
    return "\n".join(rows)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    shown = table()
    print(shown)
    if parser.parse_args().write:
        whole = f"<!-- quick -->\n{shown}\n<!-- /quick -->"
        page = PAGE.read_text()
        PAGE.write_text(re.sub(r"<!-- quick -->.*<!-- /quick -->", lambda match: whole, page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
