"""A folder of robust-kbench or flashinfer-bench, judged by Weft's checkers and its own tolerance."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from weft.core.errors import CompileError, LaunchError, ParseError, Unsupported, UsageError
from weft.core.finding_text import finding_record
from weft.interop import robust_kbench_read as kbench
from weft.interop.flashinfer_bench import call, read_folder
from weft.interop.flashinfer_bench.records import Workload
from weft.interop.flashinfer_bench.trace import trace
from weft.interop.foreign_task import RELATIVE, Case, Tolerance, foreign_task
from weft.interop.host_kernel import HostKernel
from weft.judge.check import Candidate
from weft.judge.check import check as judge_one
from weft.judge.verdict import Status, Verdict

from .check_findings import last_line
from .findings_output import text_lines
from .tables import print_table

SHOWN = 3


@dataclass(frozen=True)
class Row:
    """One kernel on one case."""

    kernel: str
    case: str
    verdict: Verdict | None
    """None: it could not be judged, and `message` says why."""
    message: str = ""
    recorded: str | None = None
    """The status that the folder itself has for it."""
    workload: tuple[str, Workload] | None = None
    """Of flashinfer-bench: the definition, and its workload."""

    @property
    def status(self) -> str:
        return str(self.verdict.status) if self.verdict is not None else str(Status.UNSUPPORTED)


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    every: bool = False
    """All cases of a robust-kbench task, not only the timed one."""
    trials: int = 1
    tolerance: Tolerance | None = None
    solution: str | None = None
    record: bool = False
    work: Path | None = None
    """Where kernel files are written; None: nowhere that lasts."""


def is_foreign(folder: Path) -> bool:
    """Whether it is a folder of a system that Weft reads."""
    return kbench.is_folder(folder) or read_folder.is_folder(folder)


def check_folder(folder: Path, asked: Asked, *, as_json: bool = False) -> int:
    """Judge, print, and write results back if asked. Returns the exit code."""
    if not is_foreign(folder):
        raise UsageError(
            f"{folder} is neither a task of robust-kbench (func_forward.py, config_forward.json, forward.cu) nor a "
            "data set of flashinfer-bench (definitions/, solutions/, workloads/)"
        )
    with tempfile.TemporaryDirectory() as temporary:
        work = asked.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        rows = list(_robust(folder, asked, work) if kbench.is_folder(folder) else _flashinfer(folder, asked, work))
        if as_json:
            print(json.dumps({"folder": str(folder), "cases": [_record(row) for row in rows]}, indent=2))
        else:
            _show(folder, rows, f"{temporary}/")
    written = _write(folder, rows, asked) if asked.record else []
    for path in written:
        print(f"written: {path}", file=sys.stderr)
    return _exit_code(folder, rows)


def _robust(path: Path, asked: Asked, work: Path) -> Iterator[Row]:
    folder = kbench.read_folder(path, multi=asked.every, trials=asked.trials, tolerance=asked.tolerance)
    print(f"reference: {path / 'func_forward.py'}, run as it stands", file=sys.stderr)
    kernel = HostKernel(folder.kernel, work, arch=folder.arch)
    for setting in folder.settings:
        for seed in setting.seeds:
            try:
                case, file = kbench.make_case(folder, setting, seed, kernel)
            except Unsupported as error:
                yield Row(str(folder.kernel), setting.name, None, str(error))
                return
            yield _judged(str(folder.kernel), case, file, folder.tolerance, folder.arch)


def _flashinfer(path: Path, asked: Asked, work: Path) -> Iterator[Row]:
    folder = read_folder.read_folder(path)
    print("reference: the definitions' own code, run as it stands", file=sys.stderr)
    if asked.solution is not None and asked.solution not in folder.solutions:
        raise UsageError(f"{path} has no solution {asked.solution!r}; it has {', '.join(folder.solutions)}")
    for solution in folder.solutions.values():
        if asked.solution not in (None, solution.name):
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
                case, file = call.make_case(folder, definition, kernel, workload)
            except Unsupported as error:
                yield Row(solution.name, workload.uuid, None, str(error), recorded, where)
                continue
            row = _judged(solution.name, case, file, asked.tolerance or call.TOLERANCE, "sm_89")
            yield Row(row.kernel, row.case, row.verdict, row.message, recorded, where)


def _judged(kernel: str, case: Case, file: Path, tolerance: Tolerance, arch: str) -> Row:
    task, (workload,) = foreign_task(kernel, [case], tolerance)
    try:
        verdict = judge_one(Candidate(file, gpu=arch), task, workload)
    except (CompileError, LaunchError, ParseError, UsageError) as error:  # of its lines: nothing ran
        return Row(kernel, case.name, None, str(error))
    return Row(kernel, case.name, verdict, verdict.message)


def _errors(verdict: Verdict | None) -> tuple[float, float] | None:
    if verdict is None or verdict.error is None or RELATIVE not in verdict.parts:
        return None
    return verdict.error.max, verdict.parts[RELATIVE].max


def _show(folder: Path, rows: Sequence[Row], hidden: str) -> None:
    """`hidden`: a temporary folder's path, which tells a reader nothing."""
    cells = []
    for row in rows:
        errors = _errors(row.verdict)
        figures = [f"{each:.2g}" for each in errors] if errors else ["", ""]
        cells.append([row.kernel, row.case, row.status, *figures, row.recorded or ""])
    print_table(["kernel", "case", "status", "max |error|", "max relative", "recorded"], cells)
    wrong = [row for row in rows if row.status != Status.PASSED]
    for row in wrong[:SHOWN]:
        print(f"{row.kernel} · {row.case} · {row.status}: {row.message}".replace(hidden, ""))
        for line in text_lines(row.verdict.findings[1:] if row.verdict else (), limit=SHOWN):
            print(f"  {line}".replace(hidden, ""))
    if wrong[SHOWN:]:
        print(f"{len(wrong) - SHOWN} more cases did not pass")
    passed = len(rows) - len(wrong)
    print(f"{folder}: {passed} of {len(rows)} cases passed · its own tolerance, Weft's checkers · not run on hardware")
    print(last_line({str(folder): [row.verdict for row in rows if row.verdict is not None]}))


def _record(row: Row) -> dict[str, object]:
    errors = _errors(row.verdict)
    return {
        "kernel": row.kernel,
        "case": row.case,
        "status": row.status,
        "message": row.message,
        "max_absolute_error": errors[0] if errors else None,
        "max_relative_error": errors[1] if errors else None,
        "recorded": row.recorded,
        "findings": [finding_record(finding) for finding in (row.verdict.findings if row.verdict else ())],
    }


def _write(folder: Path, rows: Sequence[Row], asked: Asked) -> list[Path]:
    """Traces beside the definitions; or the results of a robust-kbench task."""
    if kbench.is_folder(folder):
        if any(row.status == Status.UNSUPPORTED for row in rows):
            print("weft: no results are written: robust-kbench has no word for what was not judged", file=sys.stderr)
            return []
        return [_write_results(folder, rows, asked)]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines: dict[Path, list[str]] = {}
    definitions = read_folder.read_folder(folder).definitions
    for row in rows:
        if row.verdict is None or row.verdict.status is Status.UNSUPPORTED or row.workload is None:
            continue
        name, workload = row.workload
        made = trace(
            name,
            workload,
            row.kernel,
            status=row.status,
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


def _write_results(folder: Path, rows: Sequence[Row], asked: Asked) -> Path:
    task = kbench.read_folder(folder, multi=asked.every, trials=asked.trials, tolerance=asked.tolerance)
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


def _exit_code(folder: Path, rows: Sequence[Row]) -> int:
    if not rows:
        print(f"weft: nothing selected: {folder} has no workload for its solutions", file=sys.stderr)
        return 5
    statuses = {row.status for row in rows}
    if statuses - {str(Status.PASSED), str(Status.UNSUPPORTED)}:
        return 1
    return 3 if str(Status.UNSUPPORTED) in statuses else 0
