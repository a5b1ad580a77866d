"""The kernel version of an entry, its modelled cost, and both over a journal."""

import hashlib
import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.journal.journal import Journal
from weft.journal.kernel_versions import commit_of, kernels_of, versions, with_estimates
from weft.journal.records import CommandRun, Entry, KernelVersion, Texts
from weft.kernels.ladder import RUNGS
from weft.store.store import open_store

AT = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "weft.db"))
    Path("k.cu").write_text("first")
    return tmp_path


def git(*words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout.strip()


def test_the_kernels_that_a_command_names(folder: Path) -> None:
    found = kernels_of(["weft", "check", "k.cu", "scalar", "gone.cu", "--shapes", "small", "k.cu"])
    assert [each.path for each in found] == ["k.cu", "scalar"]
    assert found[0].digest == hashlib.sha256(b"first").hexdigest()
    assert found[1].digest == hashlib.sha256(RUNGS["scalar"].path.read_bytes()).hexdigest()
    assert kernels_of(["make", "k.cu"]) == () == kernels_of([])


def test_the_commit_and_whether_files_differ_from_it(folder: Path) -> None:
    kernels = kernels_of(["weft", "check", "k.cu"])
    git("init", "-q", ".")
    assert commit_of(kernels) == "", "no commit yet"
    git("add", "k.cu")
    git("commit", "-qm", "one")
    head = git("rev-parse", "HEAD")
    assert commit_of(kernels) == head
    Path("k.cu").write_text("second")
    assert commit_of(kernels) == f"{head}+"


PROFILE = "k.cu: lsu limits it, LB_warm 9026 cycles, LB_cold 9026, EST_warm 13466 to 20692 · modelled, not measured"
SEVERAL = "\tk.cu\tscalar\nlaunches\t1\t1\nEST_warm cycles\t13466 to 20692\t5000\nwarps per SM\t8\t8\n"
DRAWN = """\
┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━┳━━━━━━━━┓
┃                 ┃ k.cu           ┃ scalar ┃
┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━┩
│ launches        │ 1              │ 1      │
│ EST_warm cycles │ 13466 to 20692 │ 5000   │
└─────────────────┴────────────────┴────────┘
"""
AS_JSON = json.dumps({"profiles": [{"target": "k.cu", "est_warm_cycles": [13466, 20692]}]})


@pytest.mark.parametrize("printed", [f"k.cu · L4\n{PROFILE}\n", SEVERAL, DRAWN, AS_JSON])
def test_the_estimate_that_a_profile_prints(printed: str) -> None:
    kernel, other = with_estimates([KernelVersion("k.cu", "d"), KernelVersion("scalar", "e")], printed)
    assert kernel.estimate == (13466, 20692)
    assert other.estimate == ((5000, 5000) if "scalar" in printed else None)


@pytest.mark.parametrize("printed", ["", "9 of 9 workloads passed", "{", '{"profiles": 3}', "EST_warm cycles\t5"])
def test_another_output_has_no_estimate(printed: str) -> None:
    assert with_estimates([KernelVersion("k.cu", "d")], printed)[0].estimate is None


def entry(number: int, verb: str, digest: str, *, code: int = 0, estimate: tuple[float, float] | None = None) -> Entry:
    words = ("weft", verb, "k.cu", *(["--shape", "mission"] if verb == "profile" else []))
    run = CommandRun(words, code, 1.0, "", commit=f"c{number}", kernels=(KernelVersion("k.cu", digest, estimate),))
    return Entry(number, AT, verb, Texts("goal"), run=run)


ENTRIES = [
    entry(1, "check", "a" * 64, code=1),
    entry(2, "check", "b" * 64),
    entry(3, "profile", "b" * 64, estimate=(300.0, 500.0)),
    entry(4, "profile", "d" * 64, estimate=(100.0, 100.0)),
    Entry(5, AT, "note", Texts("no command")),
]


def test_versions_in_the_order_of_their_first_entry() -> None:
    (path, found), *rest = versions(ENTRIES).items()
    assert path == "k.cu" and not rest
    first, second, third = found
    assert (first.entries, first.check, first.estimate) == ((1,), "failed", None)
    assert (second.entries, second.check, second.estimate, second.commit) == ((2, 3), "passed", (300, 500), "c3")
    assert (third.entries, third.check, third.middle, third.terms) == ((4,), "", 100, "--shape mission")


def test_versions_are_stored_and_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store() as store:
        books = Journal(store)
        for each in ENTRIES:
            books.enter(each)
        assert books.read().entries[2].run == ENTRIES[2].run
    assert main(["journal", "versions"]) == 0
    said, _, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines()[:-1])
    assert said == ["k.cu: 3 versions"]
    assert [row[3:6] for row in rows] == [
        ["failed", "-", "-"],
        ["passed", "300 to 500", "--shape mission"],
        ["-", "100", "--shape mission"],
    ]
    assert [len(row[6]) for row in rows] == [0, 40, 10], "100 is a quarter of 400"
    assert main(["journal", "versions", "k.cu", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)["kernels"]["k.cu"]
    assert [each["est_warm_cycles"] for each in record] == [None, [300, 500], [100, 100]]
    assert main(["journal", "versions", "gone.cu"]) == 2
    assert "no command of the journal named gone.cu; it has k.cu" in capsys.readouterr().err


def test_old_entries_have_no_kernels(folder: Path) -> None:
    from weft.journal.journal import _run_of

    old = {"words": ["weft", "check", "k.cu"], "exit_code": 0, "seconds": 1.0, "summary": "", "tail": ""}
    assert _run_of(old) == CommandRun(("weft", "check", "k.cu"), 0, 1.0, "")
