"""A Triton file is Python: its import cannot affect the process that judges it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.attention.gates
import weft.judge.judge
from weft.cli.main import main
from weft.core.errors import CompileError
from weft.engines import triton_child
from weft.kernels.ladder import RUNGS

FAST = ["--shapes", "small", "--regimes", "unit_normal", "--masks", "none", "--dtypes", "f16", "--seeds", "1"]
RIGHT = RUNGS["fa_triton"].path.read_text()

HOSTILE = """
import os, sys
import numpy as np
import weft.attention.gates as gates
import weft.judge.judge as judge
import weft.judge.verdict as verdict
from weft.core.status import Status

def passed(*arguments, **options):
    found = original(*arguments, **options)
    object.__setattr__(found.verdict, "status", Status.PASSED)
    return found

original, judge.judge = judge.judge, passed
judge.same_bits = lambda one, other: True
judge._judge_numbers = lambda task, problem, *more: verdict.Verdict(problem.workload, Status.PASSED)
gates.element_gate = lambda name, *more: gates.GateResult(name, True, None, 0.0, 1.0)
np.testing.assert_allclose = np.abs = lambda *arguments, **options: 0
print("1 of 1 workloads passed\\nERROR SUMMARY: 0 errors, 0 warnings", flush=True)
"""


def written(folder: Path, at_import: str, *, right: bool) -> str:
    """The rung with more Python, which runs when the file is imported; wrong: every score is doubled."""
    text = RIGHT.replace("\nimport triton\n", f"\n{at_import}\nimport triton\n", 1)
    if not right:
        assert "tl.dot(q, k.T) * scale_log2" in text
        text = text.replace("tl.dot(q, k.T) * scale_log2", "tl.dot(q, k.T) * scale_log2 * 2")
    path = folder / "kernel.py"
    path.write_text(text)
    return str(path)


def test_a_file_that_changes_the_judge_at_import_is_still_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = weft.judge.judge.judge, weft.judge.judge.most_steps, weft.attention.gates.element_gate, np.abs
    path = written(tmp_path, HOSTILE, right=False)
    assert main(["check", path, *FAST, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["targets"][path]  # it contains nothing that the file prints
    assert found["status"] == "INCORRECT_NUMERICAL"
    assert (weft.judge.judge.judge, weft.judge.judge.most_steps, weft.attention.gates.element_gate, np.abs) == before


def test_the_same_file_with_a_right_kernel_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Python code may do anything in the child; the outputs are judged."""
    assert main(["check", written(tmp_path, HOSTILE, right=True), *FAST]) == 0


def test_a_file_is_never_imported_in_this_process(tmp_path: Path) -> None:
    """In a new process: neither the file nor Triton is loaded where the kernel runs."""
    path = written(tmp_path, "import os, sys\nsys.modules['was_here'] = os", right=True)
    code = (
        "import sys, weft\n"
        f"weft.load({path!r}).run(weft.VirtualGPU())\n"
        "assert not {'was_here', 'triton'} & set(sys.modules), 'imported here'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def answers(what: bytes) -> str:
    """Return Python code that writes into every open file, including the connection to the judge."""
    return (
        "import os\n"
        "for at in range(3, 64):\n"
        "    try:\n"
        f"        os.write(at, {what!r} + b'\\n')\n"
        "    except OSError:\n"
        "        pass"
    )


@pytest.mark.parametrize(
    "at_import",
    [
        "import os\nos._exit(0)",
        "raise SystemExit(0)",
        answers(b"nonsense"),
        answers(b'{"bytes": 4}\nPTX?'),
        answers(b'{"error": 1, "bytes": 0}'),
    ],
    ids=["exit", "SystemExit", "nonsense", "no kernel", "no error"],
)
def test_an_invalid_answer_is_a_compile_error(
    at_import: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, at_import, right=True)
    assert main(["check", path, *FAST]) == 1
    assert "COMPILE_ERROR: " in capsys.readouterr().out


def test_a_file_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_child, "COMPILE_SECONDS", 1.0)
    path = written(tmp_path, "while True: pass", right=True)
    with pytest.raises(CompileError, match=r"did not answer \(exit code -9\)"):
        weft.load(path).run(weft.VirtualGPU())


def test_few_idle_processes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One per file; the least recently used one ends first."""
    monkeypatch.setattr(triton_child, "MOST_CHILDREN", 1)
    weft.load(written(tmp_path, "number = 1", right=True)).compile()
    (first,) = triton_child._children.values()
    weft.load(written(tmp_path, "number = 2", right=True)).compile()
    assert first.ended and len(triton_child._children) == 1
