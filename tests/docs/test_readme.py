"""The README: its first screen's commands run as written in an empty directory, and those of the logs pass."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import carry_out
from tests.driver.nvcc import OPTIONS, find_nvcc
from weft.cli.main import main
from weft.store.store import open_store

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
FIRST_SCREEN = TEXT.split("\n## ")[0]
DOORS = dict(re.findall(r"^\d\. \*\*([^*]+)\*\*: `([^`]+)`", FIRST_SCREEN, re.MULTILINE))
(BLOCK,) = re.findall(r"^```sh\n(.*?)^```", FIRST_SCREEN, re.MULTILINE | re.DOTALL)
LOGS = re.findall(r"\| `(weft check [^`]+)` \|", TEXT.split("## In the logs → here")[1].split("\n## ")[0])

LIMITS = """\
// weft: sizes   B=1 H=2 S=33 D=32 causal=0
// weft: require S <= 40
// weft: require D == 32
"""
"""Few workloads, so that the check takes seconds: the file stands for the reader's own kernel."""
RIGHT, WRONG = "o_row[d] = o_row[d] * rescale + p", "o_row[d] = o_row[d] + p"
TRITON_TEST = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


def test_double():
    x = torch.arange(1000.0, device="cuda")
    out = torch.empty_like(x)
    double[(4,)](x, out, 1000, BLOCK=256)
    torch.testing.assert_close(out, 2 * x)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with a wrong attention kernel and a Triton test."""
    example = (ROOT / "examples" / "attention.cu").read_text()
    kernel = re.sub(r"// weft: sizes .*\n", LIMITS, example)
    assert RIGHT in kernel
    (tmp_path / "kernel.cu").write_text(kernel.replace(RIGHT, WRONG))
    (tmp_path / "test_kernel.py").write_text(TRITON_TEST)
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "weft.db"))
    for name in ("BUILD_NUMBER", "CI", "GITHUB_ACTIONS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(command: str, folder: Path) -> str:
    (output,) = carry_out([command], folder)
    return "\n".join(output)


def test_the_first_screen_has_six_commands() -> None:
    first_words = [" ".join(command.split()[:2]) for command in DOORS.values()]
    assert first_words == ["weft check", "weft diagnose", "weft profile", "pytest --weft", "weft exec", "weft evolve"]


def test_check_diagnose_and_profile(folder: Path) -> None:
    check, diagnose, profile, *_ = DOORS.values()
    assert re.search(r"^ERROR SUMMARY: [1-9]\d* errors", run(check, folder), re.MULTILINE)
    kernel = folder / "kernel.cu"
    line = kernel.read_text().partition(WRONG)[0].count("\n") + 1
    found = run(diagnose, folder).splitlines()
    assert found[0].startswith(f"kernel.cu:{line}: INCORRECT_NUMERICAL") and "rescaled" in found[0]
    kernel.write_text(kernel.read_text().replace(WRONG, RIGHT))
    assert "ERROR SUMMARY: 0 errors" in run(check, folder)
    assert re.search(r"^kernel.cu: .*LB_warm \d+ cycles.*modelled", run(profile, folder), re.MULTILINE)


def test_pytest(folder: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    (command,) = [command for command in DOORS.values() if command.startswith("pytest")]
    printed = run(command, folder)
    assert "virtual l4" in printed and "1 passed" in printed, printed


def test_a_program(folder: Path) -> None:
    """A program of nvcc; tests/driver runs Python clients."""
    (command,) = [command for command in DOORS.values() if command.startswith("weft exec")]
    page = (ROOT / "docs" / "howto" / "run_a_cuda_program.md").read_text()
    (source,) = re.findall(r"^```cuda\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (folder / "fill.cu").write_text(source)
    nvcc = find_nvcc()
    assert nvcc is not None, "requirements-dev.txt has nvcc; it needs g++"
    subprocess.run([nvcc, *OPTIONS, "-o", folder / "a.out", "fill.cu"], cwd=folder, check=True)
    printed = run(command, folder)
    line = source.partition("if (i <= n)")[0].count("\n") + 1
    assert re.search(rf"fill: M101 .* · fill.cu:{line} ", printed) and "cudaErrorIllegalAddress" in printed, printed


def test_a_search_that_is_interrupted(folder: Path) -> None:
    """The search takes many minutes: it is stopped by Ctrl-C as soon as its first candidate is queued."""
    command = list(DOORS.values())[-1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        shlex.split(command), cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as search:
        until = time.monotonic() + 120
        while time.monotonic() < until and not evaluations(folder / "weft.db") and search.poll() is None:
            time.sleep(0.2)
        search.send_signal(signal.SIGINT)
        _, rest = search.communicate(timeout=60)
    assert search.returncode != 0 and "weft evolve --resume 1" in rest, rest


def evaluations(database: Path) -> int:
    """Returns how many evaluations the searches of a store have queued; 0 before the store is made."""
    if not database.exists():
        return 0
    with open_store(database) as store:
        return sum(len(store.evaluations(run.id)) for run in store.runs())


def test_the_other_commands_of_the_first_screen_are_run_elsewhere() -> None:
    """pip by .ci/run and test_install_advice.py; the demo by test_ten_minutes.py."""
    commands = [line.partition(" #")[0].strip() for line in BLOCK.splitlines()]
    assert commands == [
        "pip install 'weft-gpu[triton,torch,sass]'",
        "pip install '.[triton,torch,sass]'",
        "weft demo",
    ]
    assert "\n$ weft demo\n" in (ROOT / "docs" / "ten_minutes.md").read_text()


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 109 and len(TEXT.encode()) <= 9_238
    assert len(FIRST_SCREEN.splitlines()) <= 40


def test_the_logs_have_commands() -> None:
    assert len(LOGS) >= 2


@pytest.mark.parametrize("command", LOGS)
def test_command_of_the_logs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)[1:]) == 0
    passed, total = re.findall(r"(\d+) of (\d+) workloads passed", capsys.readouterr().out)[-1]
    assert int(passed) == int(total) > 0


def test_the_index_links_every_page() -> None:
    """Pages of findings are linked by reference/findings.md."""
    index = (ROOT / "docs" / "index.md").read_text()
    linked = set(re.findall(r"\]\(([\w./-]+\.md)\)", index))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("findings/")} - linked == {"index.md"}
