"""Judge a folder of robust-kbench or flashinfer-bench with Weft's checkers and the folder's tolerance."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from weft.core.chips import choose_gpu, target_of
from weft.core.errors import Unsupported, UsageError
from weft.core.finding_text import sarif
from weft.core.status import Status
from weft.engines.kernel_file import MAX_STEPS
from weft.interop import robust_kbench_read as kbench
from weft.interop.flashinfer_bench import call, read_folder
from weft.interop.flashinfer_bench.records import Workload
from weft.interop.flashinfer_bench.trace import trace
from weft.interop.foreign_task import RELATIVE, Case, Tolerance, foreign_task
from weft.interop.host_kernel import HostKernel
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy
from weft.judge.judging import judge_all
from weft.judge.local_runs import LocalRuns
from weft.judge.verdict import Verdict, conclude, warnings_of
from weft.judge.verdict_json import VERSION, verdict_record

from .check_findings import annotations, distinct, distinct_suppressed, exit_code, last_line
from .findings_output import Format, text_lines
from .tables import print_table

SHOWN = 3


@dataclass(frozen=True)
class FolderRow:
    """One kernel on one case."""

    kernel: str
    case: str
    verdict: Verdict | None
    """None: it could not be judged, and `message` has the reason."""
    message: str = ""
    recorded: str | None = None
    """The status that is recorded in the folder."""
    workload: tuple[str, Workload] | None = None
    """For flashinfer-bench: the definition and its workload."""

    @property
    def status(self) -> Status:
        return self.verdict.status if self.verdict is not None else Status.UNSUPPORTED


@dataclass(frozen=True)
class FolderOptions:
    """How a folder is judged."""

    every: bool = False
    """All cases of a robust-kbench task, not only the timed one."""
    trials: int | None = None
    """Trials of each case of a robust-kbench task (None: one); a flashinfer-bench workload has none."""
    tolerance: Tolerance | None = None
    solution: str | None = None
    record: bool = False
    work: Path | None = None
    """Where kernel files are written; None: a temporary folder."""
    gpu: str = ""
    """Empty: a GPU of the architecture that the folder names, or the default GPU."""
    include_dirs: tuple[str, ...] = ()
    compiler: str = "nvrtc"
    max_steps: int = MAX_STEPS
    tools: tuple[str, ...] = ("all",)
    strict: bool = False
    """Whether warnings fail a case."""


@dataclass(frozen=True)
class Shown:
    """How the result is printed."""

    form: Format = Format.TEXT
    max_findings: int = 3
    """Findings printed per case; all are counted."""


def is_foreign(folder: Path) -> bool:
    """Return whether this is a task folder of a tool that Weft reads."""
    return kbench.is_folder(folder) or read_folder.is_folder(folder)


def check_folder(folder: Path, options: FolderOptions, shown: Shown) -> int:
    """Judge, print, and write results to the folder if requested. Return the exit code."""
    if not is_foreign(folder):
        raise UsageError(
            f"{folder} is neither a task of robust-kbench (func_forward.py, config_forward.json, forward.cu) nor a "
            "data set of flashinfer-bench (definitions/, solutions/, workloads/)"
        )
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        rows = list(_robust(folder, options, work) if kbench.is_folder(folder) else _flashinfer(folder, options, work))
        _print(folder, rows, shown, f"{temporary}/")
    written = _write(folder, rows, options) if options.record else []
    for path in written:
        print(f"written: {path}", file=sys.stderr)
    return _exit_code(folder, rows)


def _robust(path: Path, options: FolderOptions, work: Path) -> Iterator[FolderRow]:
    folder = kbench.read_folder(path, multi=options.every, trials=options.trials or 1, tolerance=options.tolerance)
    print(f"reference: {path / 'func_forward.py'}, run unchanged", file=sys.stderr)
    gpu = choose_gpu(options.gpu, "" if options.gpu else folder.arch)
    kernel = HostKernel(folder.kernel, work, include_dirs=options.include_dirs, arch=target_of(gpu))
    for setting in folder.settings:
        for seed in setting.seeds:
            try:
                case, file = kbench.make_case(folder, setting, seed, kernel)
            except Unsupported as error:
                yield FolderRow(str(folder.kernel), setting.name, None, str(error))
                return
            yield _judged(str(folder.kernel), case, file, folder.tolerance, replace(options, gpu=gpu))


def _flashinfer(path: Path, options: FolderOptions, work: Path) -> Iterator[FolderRow]:
    if options.trials is not None:
        raise UsageError(f"{path}: a flashinfer-bench workload has its own inputs, so it has no trials or seeds")
    folder = read_folder.read_folder(path)
    print("reference: the definitions' own code, run unchanged", file=sys.stderr)
    if options.solution is not None and options.solution not in folder.solutions:
        raise UsageError(f"{path} has no solution {options.solution!r}; it has {', '.join(folder.solutions)}")
    for solution in folder.solutions.values():
        if options.solution not in (None, solution.name):
            continue
        definition = folder.definitions.get(solution.definition)
        if definition is None:
            raise UsageError(f"{solution.name} is for {solution.definition!r}, which {path} does not define")
        for workload in folder.workloads.get(definition.name, ()):
            where = (definition.name, workload)
            recorded = folder.recorded(solution.name, workload.uuid)
            try:
                call.require_known(definition, solution)
                kernel = call.host_kernel(folder, solution, work)
                kernel.include_dirs = (*kernel.include_dirs, *options.include_dirs)
                kernel.arch = target_of(choose_gpu(options.gpu, ""))
                case, file = call.make_case(folder, definition, kernel, workload)
            except Unsupported as error:
                yield FolderRow(solution.name, workload.uuid, None, str(error), recorded, where)
                continue
            row = _judged(solution.name, case, file, options.tolerance or call.TOLERANCE, options)
            yield replace(row, recorded=recorded, workload=where)


def _judged(kernel: str, case: Case, file: Path, tolerance: Tolerance, options: FolderOptions) -> FolderRow:
    task, (workload,) = foreign_task(kernel, [case], tolerance)
    candidate = Candidate(
        file,
        gpu=choose_gpu(options.gpu, ""),
        max_steps=options.max_steps,
        include_dirs=options.include_dirs,
        compiler=options.compiler,
    )
    judged = judge_all(LocalRuns(candidate), task, [workload], Policy(options.tools, strict=options.strict))
    verdicts = [each.verdict for each in judged]
    found = conclude(verdicts, len(verdicts))
    return FolderRow(kernel, case.name, found.failure or verdicts[0], found.message)


def _errors(verdict: Verdict | None) -> tuple[float, float] | None:
    if verdict is None or verdict.error is None or RELATIVE not in verdict.parts:
        return None
    return verdict.error.max, verdict.parts[RELATIVE].max


def _print(folder: Path, rows: Sequence[FolderRow], shown: Shown, hidden: str) -> None:
    """Print the result without `hidden`, the path of a temporary folder."""
    verdicts: dict[str, list[Verdict]] = {}
    for row in rows:
        if row.verdict is not None:
            verdicts.setdefault(row.kernel, []).append(row.verdict)
    if shown.form is Format.JSON:
        record = {"version": VERSION, "folder": str(folder), "cases": [_record(row) for row in rows]}
        print(json.dumps(record, indent=2))
    elif shown.form is Format.SARIF:
        print(json.dumps(sarif(distinct(verdicts), distinct_suppressed(verdicts)), indent=2).replace(hidden, ""))
    elif shown.form is Format.GITHUB:
        for line in annotations(verdicts, limit=shown.max_findings):
            print(line.replace(hidden, ""))
        print(last_line(verdicts))
    else:
        _show(folder, rows, shown.max_findings, hidden)
        print(last_line(verdicts))


def _show(folder: Path, rows: Sequence[FolderRow], max_findings: int, hidden: str) -> None:
    cells = []
    for row in rows:
        errors = _errors(row.verdict)
        figures = [f"{each:.2g}" for each in errors] if errors else ["", ""]
        cells.append([row.kernel, row.case, row.status, *figures, row.recorded or ""])
    print_table(["kernel", "case", "status", "max |error|", "max relative", "recorded"], cells)
    wrong = [row for row in rows if row.status != Status.PASSED]
    for row in wrong[:SHOWN]:
        print(f"{row.kernel} · {row.case} · {row.status}: {row.message}".replace(hidden, ""))
        for line in text_lines(row.verdict.further_findings if row.verdict else (), limit=max_findings):
            print(f"  {line}".replace(hidden, ""))
    if wrong[SHOWN:]:
        print(f"{len(wrong) - SHOWN} more cases did not pass")
    passing = [row.verdict for row in rows if row.verdict is not None and row.verdict.passed]
    for warning in warnings_of(passing):
        print(str(warning).replace(hidden, ""))
    passed = len(rows) - len(wrong)
    print(f"{folder}: {passed} of {len(rows)} cases passed · its own tolerance, Weft's checkers · not run on hardware")


def _record(row: FolderRow) -> dict[str, object]:
    return {
        "kernel": row.kernel,
        "case": row.case,
        "status": row.status,
        "message": row.message,
        "recorded": row.recorded,
        "verdict": verdict_record(row.verdict) if row.verdict is not None else None,
    }


def _write(folder: Path, rows: Sequence[FolderRow], options: FolderOptions) -> list[Path]:
    """Write traces next to the definitions, or the results of a robust-kbench task."""
    if kbench.is_folder(folder):
        if any(not row.status.decided for row in rows):
            print(
                "weft: no results are written: robust-kbench has no status for a case that was not judged",
                file=sys.stderr,
            )
            return []
        return [_write_results(folder, rows, options)]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines: dict[Path, list[str]] = {}
    definitions = read_folder.read_folder(folder).definitions
    for row in rows:
        if row.verdict is None or not row.verdict.status.decided or row.workload is None:
            continue
        name, workload = row.workload
        made = trace(
            name,
            workload,
            row.kernel,
            status=str(row.status),
            message=row.message,
            errors=_errors(row.verdict),
            timestamp=now,
        )
        path = folder / "traces" / definitions[name].op_type / f"{name}.jsonl"
        lines.setdefault(path, []).append(json.dumps(made.record(), ensure_ascii=False))
    for path, texts in lines.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("".join(f"{text}\n" for text in texts))
    return list(lines)


def _write_results(folder: Path, rows: Sequence[FolderRow], options: FolderOptions) -> Path:
    task = kbench.read_folder(folder, multi=options.every, trials=options.trials or 1, tolerance=options.tolerance)
    found: dict[str, list[tuple[bool, float]]] = {}
    for row in rows:
        errors = _errors(row.verdict)
        found.setdefault(row.case.split(" seed ")[0], []).append(
            (row.status == Status.PASSED, errors[0] if errors else float("inf"))
        )
    path = folder / "eval_results" / "forward" / "weft_results.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kbench.results(task, found), indent=4) + "\n")
    return path


def _exit_code(folder: Path, rows: Sequence[FolderRow]) -> int:
    if not rows:
        print(f"weft: nothing selected: {folder} has no workload for its solutions", file=sys.stderr)
        return 5
    return exit_code(row.status for row in rows)
