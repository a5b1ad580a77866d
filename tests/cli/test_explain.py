"""`weft explain`: a page, the list, JSON, and a code that does not exist."""

import json
import tomllib
from pathlib import Path

import pytest

import weft
from weft.cli.main import main
from weft.core.finding_codes import FINDING_CODES
from weft.core.finding_pages import PAGE_FOLDERS, page


def test_a_page_in_a_pipe_is_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "m101"]) == 0
    shown = capsys.readouterr().out
    assert shown == page("M101") and shown.startswith("# M101: out of bounds\n")


def test_a_terminal_gets_it_rendered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["explain", "M101"]) == 0
    shown = capsys.readouterr().out
    assert "M101: out of bounds" in shown and "```" not in shown


def test_alone_it_lists_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split("\t") == ["code", "severity", "tool", "what", "cure"]
    assert [row.split("\t")[0] for row in rows] == list(FINDING_CODES)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "S301", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["code"], record["tool"], record["severity"], record["ends_launch"]) == (
        "S301",
        "synccheck",
        "error",
        True,
    )
    assert record["page"] == page("S301")
    assert main(["explain", "--json"]) == 0
    assert [row["code"] for row in json.loads(capsys.readouterr().out)] == list(FINDING_CODES)


def test_an_unknown_code_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "M999"]) == 2
    assert "no finding has the code M999; there are M101, M102" in capsys.readouterr().err


def test_the_wheel_has_the_pages_where_they_are_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    package = Path(weft.__file__).parent
    assert PAGE_FOLDERS[0] == package.parent / included["docs/findings"]
