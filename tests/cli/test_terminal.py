"""The terminal: greeting, colours, widths, bars. A pipe gets plain text."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import on_terminal, weft
from weft.cli import terminal
from weft.cli.main import NEXT, VERBS
from weft.cli.terminal import STYLES, meaning

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STYLE = re.compile(r"\x1b\[[0-9;]*m")
WRONG = """// weft: sizes   N=100
// weft: in      x : f32[N] = normal
// weft: out     y : f32[N]
// weft: launch  scale(x, y, N) grid(cdiv(N, 256)) block(256)
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 2.0f * x[i];
}
"""


def piped(*args: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    done = subprocess.run(weft(*args), capture_output=True, text=True, check=True, env={**environment, **variables})
    return done.stdout


def test_weft_without_arguments_prints_what_it_is_and_what_to_do_next() -> None:
    out = piped()
    what, *rest = out.splitlines()[1:]
    assert what.startswith("Weft runs the real compiled attention kernel")
    commands = re.findall(r"^  (weft \S+)", "\n".join(rest), re.MULTILINE)
    assert 4 <= len(commands) <= 6
    assert [f"weft {command.split()[1]}" for command in NEXT] == commands
    assert {command.split()[1] for command in commands} <= {*VERBS, "--help"}


@pytest.mark.parametrize(
    ("args", "columns"),
    [((), 60), ((), 80), ((), 200), (("--help",), 60), (("doctor",), 60), (("doctor",), 200), (("explain",), 60)],
)
def test_nothing_is_wider_than_the_terminal(args: tuple[str, ...], columns: int, tmp_path: Path) -> None:
    long = {"WEFT_STORE": str(tmp_path / "s.db"), "WEFT_CACHE": str(tmp_path / "c")}
    code, shown = on_terminal(weft(*args), columns=columns, environment=long)
    lines = [CONTROL.sub("", line) for line in shown.splitlines()]
    assert code == 0 and len(lines) > 5
    # Paths and commands are not split: a terminal wraps them, and they can be copied.
    whole = re.compile(r"(weft  |python|CPU|LLVM|GPU|isolation|cache|store|journal|to add|ready)")
    assert [line for line in lines if len(line) > columns and not whole.match(line)] == []


def test_a_wide_terminal_is_used() -> None:
    def widest(columns: int) -> int:
        return max(len(CONTROL.sub("", line)) for line in on_terminal(weft("explain"), columns=columns)[1].splitlines())

    assert widest(200) > 120 > 60 >= widest(60)


def test_colours_are_for_terminals() -> None:
    assert CONTROL.search(piped()) is None
    assert STYLE.search(on_terminal(weft(), columns=80)[1])
    assert CONTROL.search(on_terminal(weft(), columns=80, environment={"NO_COLOR": "1"})[1]) is None
    assert CONTROL.search(on_terminal(weft(), columns=80, environment={"TERM": "dumb"})[1]) is None
    assert STYLE.search(piped(FORCE_COLOR="1"))
    assert CONTROL.search(piped(FORCE_COLOR="1", NO_COLOR="1")) is None
    assert STYLE.sub("", piped(FORCE_COLOR="1")) == piped()


def test_findings_and_errors_are_red_and_a_bar_leaves_no_trace_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "scale.cu").write_text(WRONG)
    command = weft("run", "scale.cu")
    code, shown = on_terminal(command, columns=100, cwd=tmp_path)
    assert code == 1
    assert "\x1b[31mM101\x1b[0m out-of-bounds read" in shown
    assert "\x1b[31mERROR SUMMARY: 2 errors, 0 warnings\x1b[0m" in shown
    assert "compiling scale.cu" in shown  # the spinner
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert CONTROL.search(done.stdout + done.stderr) is None and "compiling" not in done.stderr
    code, shown = on_terminal(weft("run", "none.cu"), columns=100, cwd=tmp_path)
    assert code == 2 and "\x1b[31mweft:\x1b[0m" in shown


def test_long_work_has_a_bar(tmp_path: Path) -> None:
    code, shown = on_terminal(weft("certify", "qk_dot"), columns=100)
    assert code == 0
    bars = re.findall(r"the gate of qk_dot.*?(\d+)/(\d+)", CONTROL.sub("", shown))
    assert bars and {whole for _, whole in bars} == {"18"}  # 15 wrong implementations and 3 right ones
    assert CONTROL.sub("", shown).rstrip().endswith("15 of 15 mutants killed, 3 of 3 correct implementations passed")


def test_a_pipe_gets_progress_of_long_work_as_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "FIRST_LINE_SECONDS", 0.2)
    monkeypatch.setenv("WEFT_PROGRESS", "1")
    with terminal.bar("k.cu") as tell:
        tell(3, 9)
        time.sleep(0.6)
    with terminal.waiting("diagnosing k.cu", long=True) as say:
        say("judging small")
        time.sleep(0.6)
    with terminal.waiting("compiling k.cu"):
        time.sleep(0.6)
    monkeypatch.setenv("WEFT_PROGRESS", "0")
    with terminal.bar("quiet.cu"):
        time.sleep(0.6)
    shown = capsys.readouterr()
    assert shown.err.splitlines() == ["weft: k.cu: 3 of 9 (0 s)", "weft: judging small (0 s)"] and shown.out == ""


@pytest.mark.parametrize(
    ("line", "style"),
    [
        ("ERROR SUMMARY: 0 errors, 0 warnings", "good"),
        ("ERROR SUMMARY: 10 errors, 0 warnings", "bad"),
        ("  cure         multiply every column", "good"),
        ("  first wrong  u of KV tile 1", "bad"),
        ("  case         B=1", ""),
    ],
)
def test_meaning(line: str, style: str) -> None:
    assert meaning(line) == style and style in {*STYLES, ""}


def test_one_place_decides() -> None:
    """No other file of the command line creates a console."""
    folder = Path(sys.modules["weft.cli.terminal"].__file__ or "").parent
    makers = [file.name for file in folder.glob("*.py") if re.search(r"\bConsole\(|\\x1b\[|\\033\[", file.read_text())]
    assert makers == ["terminal.py"]
