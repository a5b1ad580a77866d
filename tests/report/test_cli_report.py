"""`weft report` on real kernels and on a real store."""

import json
from pathlib import Path

import pytest

from tests.report.pages import HOSTILE, check_page
from weft.cli.main import main
from weft.evolve.lever_proposer import LeverProposer
from weft.evolve.levers.space import family, start_of
from weft.evolve.search import Search, start_search
from weft.evolve.settings import Settings
from weft.kernels.ladder import RUNGS
from weft.store.store import open_store

SMALL = ("--shapes", "small", "--masks", "none", "--regimes", "unit_normal", "--profile-shape", "small")
RESCALED, NOT_RESCALED = "u[i] = u[i] * rescale + p", "u[i] = u[i] + p"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_of_a_wrong_kernel(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = RUNGS["scalar"].path.read_text()
    assert text.count(RESCALED) == 1
    hostile = f"// {HOSTILE}\n"
    Path("mine.cu").write_text(hostile + text.replace(RESCALED, NOT_RESCALED))
    line = 1 + next(at for at, each in enumerate(Path("mine.cu").read_text().splitlines()) if NOT_RESCALED in each)
    assert main(["report", "mine.cu", *SMALL, "-o", "page.html"]) == 1
    assert "mine.cu: INCORRECT_NUMERICAL: U is not rescaled" in capsys.readouterr().out
    page = check_page(Path("page.html").read_text())
    lit = [row["id"] for row in page.of("tr") if (row.get("class") or "") == "lit cause"]
    assert lit == [f"L{line}"]
    assert "missing_rescale" in page.text and "wrong from KV tile 1 on" in page.text
    assert "weft check mine.cu --task sdpa --shapes small" in page.text
    assert "multiply every column of U" in page.text
    assert "smsp__sass_inst_executed_op_shared_ld.sum" in page.text
    maps = json.loads(page.scripts[0])
    assert len(maps) == 3 and maps[0]["rows"] == 32 and maps[0]["columns"] == 64
    assert maps[0]["relative"] and maps[0]["high"] > 2  # hundreds of times the limit, as in the README
    assert set(maps[1]["warps"]) == {0, 1, 2, 3, None}  # of one CTA of 4 warps, a row each


def test_the_page_of_a_correct_rung(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "scalar", *SMALL, "-o", "page.html", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["passed"] and answer["bytes"] == Path("page.html").stat().st_size
    page = check_page(Path("page.html").read_text())
    assert "1 of 1 passed" in page.text and "stages" not in page.ids()
    assert "closest to a limit" in page.text


def test_the_cost_of_a_rung_on_another_task_has_the_macros_of_the_task(here: Path) -> None:
    asked = ["report", "pipelined", "--task", "sliding_window", *SMALL, "--profile-shape", "small", "-o", "page.html"]
    assert main(asked) == 0
    text = check_page(Path("page.html").read_text()).text
    assert "SQ=32 SKV=32 D=64 WINDOW_LEFT=37 WINDOW_RIGHT=11" in text


def test_a_kernel_without_a_supported_workload_has_no_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "wmma", "--shapes", "small", "--dtypes", "f32"]) == 5
    assert "nothing selected" in capsys.readouterr().err and not Path("report.html").exists()


def test_the_json_of_check_has_a_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = RUNGS["scalar"].path.read_text()
    wrong = "if (query >= SQ + 1) return;"
    Path("mine.cu").write_text(text.replace("if (query >= SQ) return;", wrong))
    line = 1 + next(at for at, each in enumerate(Path("mine.cu").read_text().splitlines()) if "= ELEMENT(u" in each)
    few = ("--shapes", "one_token", "--masks", "none", "--regimes", "unit_normal", "--seeds", "1")
    assert main(["check", "mine.cu", *few, "--json"]) == 1
    Path("check.json").write_text(capsys.readouterr().out)
    assert main(["report", "check.json", "-o", "page.html"]) == 1
    assert "mine.cu: UNSAFE: M101" in capsys.readouterr().out
    page = check_page(Path("page.html").read_text())
    assert f"L{line}" in [row.get("id") for row in page.of("tr") if "lit error" in (row.get("class") or "")]
    for other in (
        "[]",
        "{}",
        '{"a": [], "b": []}',
        '{"targets": {"mine.cu": {"planned": 1, "verdicts": [{"version": 2}]}}}',
        "no JSON",
    ):
        Path("other.json").write_text(other)
        assert main(["report", "other.json"]) == 2
        assert "is not the output of `weft check KERNEL --json`" in capsys.readouterr().err


def test_a_search_whose_start_is_wrong_has_a_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.cu").write_text(family("sdpa").source + f"\nint broken = ; // {HOSTILE}\n")
    settings = Settings(start="wrong.cu")
    with open_store("weft.db") as store:
        run = start_search(store, settings)
        Search(store, run.id, settings, LeverProposer(family("sdpa"), start_of("wmma")), workers=1).go()
    assert main(["report", str(run.id), "--store", "weft.db", "-o", "search.html"]) == 0
    assert "nothing passes yet" in capsys.readouterr().out
    page = check_page(Path("search.html").read_text())
    assert "COMPILE_ERROR" in page.text and "Nothing has a score yet." in page.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no_such.cu"], "neither a file nor a rung"),
        (["12345", "--store", "empty.db"], "12345"),
        (["scalar", "-o", "no/such/folder.html"], "a folder that exists"),
        (["scalar", "--profile-shape", "huge"], "--profile-shape huge"),
    ],
)
def test_wrong_arguments_are_refused(
    words: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *words]) == 2
    assert said in capsys.readouterr().err
    assert not Path("report.html").exists()
