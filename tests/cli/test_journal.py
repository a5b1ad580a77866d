"""`weft journal`: every command by hand, in a pipe, as JSON and on a terminal."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import weft.cli.journal_output as output
from weft.cli.main import main

Call = Callable[..., str]


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def after(self, **length: float) -> None:
        self.time += timedelta(**length)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    fixed = Clock()
    monkeypatch.setattr(output, "utc_now", fixed)
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "weft.db"))
    return fixed


@pytest.fixture
def call(clock: Clock, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run a `weft journal` command, check its exit code, and return what it prints."""

    def run(line: str, code: int = 0) -> str:
        assert main(["journal", *shlex.split(line)]) == code
        caught = capfd.readouterr()
        return caught.err if code else caught.out

    return run


def test_the_ledger_of_the_logs(call: Call) -> None:
    """The sum of the log is wrong, and the journal reports which one and by how much."""
    call("rates --engineer 50/h --gpu l4=0.20/h --tokens 3/M")
    call(
        "block 'Stage C' --plan 30m/25.30 --engineer 47m --gpu l4=1.5h "
        "--booked engineer=39.17 --booked gpu=0.60 --booked sum=39.77"
    )
    text = call("report")
    assert "GPU l4, 1.5 h: booked $0.60, the rate of $0.20/h gives $0.30: off by $0.30" in text
    assert "the sum: booked $39.77, should be $39.47: off by $0.30" in text
    assert "$39.47 against a plan of $25.30, $14.17 (56 %) over; 47 min against 30 min, 17 min (57 %) over" in text


def test_a_block_from_start_to_stop(call: Call, clock: Clock) -> None:
    call("rates --engineer 60/h")
    assert "stops to ask at 15 min or $20.00" in call("start 'stage C' --plan 30m/20 --ask-at 15m")
    clock.after(minutes=10)
    call("add 'try the tables' --hypothesis cheaper --change DEQUANT=lut --result green --decision 'next rung'")
    shown = call("")
    assert "block 1 · stage C · open since 2026-11-15 09:00 UTC, 10 min" in shown
    assert "time\t30 min\t10 min\t20 min (67 %) under" in shown
    assert "1\t1\tnote\ttry the tables\t\tgreen\tnext rung" in shown
    clock.after(minutes=15)
    assert "money\t$20.00\t$25.00\t$5.00 (25 %) over" in call("stop")
    assert "no block is open" in call("")
    assert call("list").splitlines()[1] == "1\tstage C\t2026-11-15\t30 min\t25 min\t$20.00\t$25.00"


def test_the_clock_may_be_corrected(call: Call, clock: Clock) -> None:
    call("start lunch")
    clock.after(hours=2)
    assert "engineer (given)\t47 min" in call("stop --engineer 47m")


def test_a_command_is_watched(call: Call, capfd: pytest.CaptureFixture[str]) -> None:
    program = r"print('shape\tk.cu'); print('small\t2 of 3'); print('2 of 3 passed'); raise SystemExit(1)"
    words = [sys.executable, "-c", program]
    assert main(["journal", "run", "--goal", "first light", "--change", "none", "--", *words]) == 1
    caught = capfd.readouterr()
    assert caught.out == "shape\tk.cu\nsmall\t2 of 3\n2 of 3 passed\n", "the output is unchanged"
    assert "journal: entry 1 · command · exit code 1" in caught.err and "weft journal amend 1" in caught.err
    entry = json.loads(call("show --json"))["entry"]
    assert entry["goal"] == "first light" and entry["shapes"] == {"small": "2 of 3"}
    assert entry["run"]["words"] == words and entry["run"]["summary"] == "2 of 3 passed"
    call("amend 1 --finding 'row 31' --decision 'diagnose'")
    shown = call("show 1")
    assert "result, small  2 of 3" in shown and "decision       diagnose" in shown


def test_options_of_the_command_are_left_to_it(call: Call, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "run", "weft", "--version"]) == 0
    assert capfd.readouterr().out.startswith("weft ")
    assert "command        weft --version" in call("show")


def test_a_checkpoint_stops_a_pipe(call: Call, clock: Clock, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    call("start work --plan 30m")
    assert call("ask") == ""
    clock.after(minutes=31)
    printed = call("ask", 4)
    assert "weft: checkpoint: block 1 · work: spent 31 min of 30 min planned" in printed
    assert "weft journal go-on" in printed and "weft journal stop" in printed
    mark = tmp_path / "ran"
    assert main(["journal", "run", "--", "touch", str(mark)]) == 4 and not mark.exists()
    capfd.readouterr()
    assert "continuing: spent 31 min of 30 min planned" in call("go-on 'nearly there'")
    assert main(["journal", "run", "--", "touch", str(mark)]) == 0 and mark.exists()
    capfd.readouterr()
    assert "asked after 31 min and $0.00: go on, nearly there" in call("report")


def test_the_budget_of_the_whole_journal(call: Call) -> None:
    call("rates --engineer 60/h")
    call("budget --plan 100.00 --ask-at 50%")
    call("block one --engineer 40m")
    assert call("ask") == ""
    call("block two --engineer 20m")
    assert "budget of the journal: spent $60.00 of $100.00 planned" in call("ask", 4)
    assert "money\t$100.00\t$60.00\t$40.00 (40 %) under" in call("budget"), "showing it does not change it"
    assert "of $100.00 planned" in call("ask", 4)


def test_a_machine_is_shown_everywhere_until_it_is_stopped(call: Call, clock: Clock, tmp_path: Path) -> None:
    call("start work")
    call("add goal")
    call("machine start l4-vm --rate 0.20/h")
    clock.after(hours=3)
    line = "GPU machine l4-vm is running: 3 h 00 min, $0.60 so far"
    page = tmp_path / "report.html"
    for words in ("", "list", "show", "show b1", "rates", "report", f"report -o {page}", "machine list", "go-on"):
        assert line in call(words), words
    assert line in page.read_text()
    for words in ("--json", "list --json", "show --json", "rates --json", "report --json", "machine list --json"):
        (machine,) = json.loads(call(words))["machines"]
        assert machine["name"] == "l4-vm" and machine["cost"] == "0.60" and machine["seconds"] == 10800
    assert "GPU machine l4-vm ran 3 h 00 min: $0.60" in call("machine stop l4-vm")
    assert "l4-vm is running" not in call("")


def test_json_of_everything(call: Call, clock: Clock) -> None:
    call("rates --engineer 50/h --gpu l4=0.20/h")
    call("block past --engineer 47m --gpu l4=1.5h --plan 30m/25.30 --on 2026-11-10")
    record = json.loads(call("report --json"))
    (block,) = record["blocks"]
    assert block["started"].startswith("2026-11-10") and block["plan"] == {"seconds": 1800, "money": "25.30"}
    assert record["total"]["money"] == "39.47" and record["currency"] == "$"
    assert [cost["cost"] for cost in block["costs"]] == ["39.17", "0.30"]


def test_the_html_report_is_written(call: Call, tmp_path: Path) -> None:
    call("add 'a goal'")
    page = tmp_path / "report.html"
    call(f"report -o {page}")
    assert page.read_text().startswith("<!doctype html>") and "a goal" in page.read_text()
    assert call("report --format html").startswith("<!doctype html>")
    assert "cannot be written" in call(f"report -o {tmp_path}/no/folder.md", 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("stop", "weft journal start TITLE"),
        ("show", "no entry yet"),
        ("show 3", "there is no entry 3"),
        ("show b3", "there is no block 3"),
        ("show last", "give the number of an entry"),
        ("start work --plan 30", "time or money?"),
        ("rates --engineer 50", "write it as 50/h"),
        ("add goal --gpu l4=1.5", "is not a duration"),
        ("add goal --gpu l4=1h --booked a100=2", "name something that was used (l4)"),
        ("add goal --shape mission", "give it as NAME=RESULT"),
        ("block past --engineer 5m --on yesterday", "give a day"),
        ("machine stop l4-vm", "not registered as running"),
        ("run -- no_such_program", "no_such_program cannot be run"),
    ],
)
def test_what_is_refused_says_what_to_do(call: Call, line: str, said: str) -> None:
    assert said in call(line, 2)


def test_an_interrupted_command_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "weft.db"))
    sleep = "import signal, time; signal.signal(2, signal.SIG_DFL); print('up', flush=True); time.sleep(60)"
    words = [sys.executable, "-m", "weft", "journal", "run", "--goal", "long", "--", sys.executable, "-c", sleep]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as running:
        assert running.stdout is not None and running.stdout.readline() == b"up\n"
        os.killpg(running.pid, signal.SIGINT)  # as Ctrl-C does: both get it
        assert running.wait(timeout=30) == 130
    shown = subprocess.run(
        [sys.executable, "-m", "weft", "journal", "show", "--json"], capture_output=True, text=True, check=True
    )
    entry = json.loads(shown.stdout)["entry"]
    assert entry["goal"] == "long" and entry["run"]["exit_code"] == 130 and entry["run"]["summary"] == "up"


def on_a_terminal(words: list[str], answer: bytes) -> tuple[str, int]:
    """Run weft with a terminal for everything; answer its question."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "weft", *words])
    shown, asked = b"", False
    while True:
        try:
            shown += os.read(terminal, 1 << 16)
        except OSError:
            break
        if b"[y/N]" in shown and not asked:
            os.write(terminal, answer)
            asked = True
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def weft(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "weft", *words], check=True, stdout=subprocess.DEVNULL)


def test_a_terminal_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "weft.db"))
    weft("journal", "rates", "--engineer", "50/h")
    weft("journal", "block", "past", "--engineer", "2h")
    weft("journal", "budget", "--plan", "60.00")
    weft("journal", "machine", "start", "l4-vm")
    run = ["journal", "run", "--", sys.executable, "-c", "import sys; print('tty', sys.stdout.isatty())"]
    shown, code = on_a_terminal(run, b"n\n")
    assert "continue? [y/N]" in shown and "nothing was run" in shown and "tty True" not in shown and code == 4
    shown, code = on_a_terminal(run, b"y\n")
    assert "tty True" in shown and code == 0, "the command has the terminal too"
    shown, code = on_a_terminal(["explain", "R101"], b"")
    assert shown.startswith("weft: GPU machine l4-vm is running: ") and code == 0, "other verbs remind of it"
