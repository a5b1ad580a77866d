"""`weft export`: writes, says what it wrote, and never over somebody else's files unasked."""

import json
from pathlib import Path

import pytest

from weft.cli.main import main

FILES = {"func_forward.py", "config_forward.json", "forward.cu"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_writes_the_folder_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "task"
    assert main(["export", "fp8_wmma", "--robust-kbench", str(folder)]) == 0
    assert names(folder) == FILES
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "file\tlines"
    written = dict(row.split("\t") for row in rows[1:4])
    assert {path: int(count) for path, count in written.items()} == {
        str(folder / name): len((folder / name).read_text().splitlines()) for name in FILES
    }
    assert rows[4] == f"fp8_wmma → {folder}: 10 shapes × 3 seeds × 7 init methods = 210 cases · not run on hardware"


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--shapes", "small,d80", "--seeds", "4", "-D", "DEQUANT=direct", "--json"]
    assert main(["export", "fp8_wmma", "--robust-kbench", str(tmp_path), *options]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["rung"], record["folder"], set(record["files"])) == ("fp8_wmma", str(tmp_path), FILES)
    assert (record["shapes"], record["seeds"], record["cases"]) == (["small", "d80"], 4, 2 * 4 * 7)
    config = json.loads((tmp_path / "config_forward.json").read_text())
    assert [row["D"] for row in config["multi_shared_configs"]] == [64, 80]
    assert len(config["multi_input_configs"]) == 4
    assert "#define DEQUANT direct" in (tmp_path / "forward.cu").read_text()


def test_writing_twice_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", "fp8_wmma", "--robust-kbench", str(tmp_path)]
    assert main(command) == 0
    first = (tmp_path / "forward.cu").read_text()
    (tmp_path / "forward.cu").write_text("// stale")
    assert main(command) == 0
    assert (tmp_path / "forward.cu").read_text() == first


def test_foreign_files_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    command = ["export", "fp8_wmma", "--robust-kbench", str(tmp_path)]
    assert main(command) == 2
    assert "holds thesis.tex; name an empty folder, or write beside it with --force" in capsys.readouterr().err
    assert names(tmp_path) == {"thesis.tex"}
    assert main([*command, "--force"]) == 0
    assert names(tmp_path) == FILES | {"thesis.tex"} and (tmp_path / "thesis.tex").read_text() == "mine"


def test_results_of_the_benchmark_may_stay(tmp_path: Path) -> None:
    """robust-kbench puts what it finds beside the task; exporting again must not need --force."""
    (tmp_path / "eval_results").mkdir()
    (tmp_path / "filter_results.json").write_text("{}")
    (tmp_path / "__pycache__").mkdir()
    assert main(["export", "fp8_wmma", "--robust-kbench", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    "args, message",
    [
        (["fp8_wmma"], "weft export fp8_wmma --robust-kbench FOLDER"),
        (["fa1", "--robust-kbench", "x"], "fa1 computes sdpa; robust-kbench tasks are made from fp8_scalar, fp8_wmma"),
        (["fp8_wmma", "--robust-kbench", "x", "--shapes", "nope"], "unknown shape 'nope'; `weft list` has the names"),
        (["fp8_wmma", "--robust-kbench", "x", "-D", "CAUSAL=2"], "sim-FP8 codes and no mask"),
        (["fp8_wmma", "--robust-kbench", "file"], "file is a file; name a folder"),
    ],
)
def test_errors_say_what_to_do(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["export", *args]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
