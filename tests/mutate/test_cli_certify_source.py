"""`weft certify --source-mutants`: survivors with line and change, JSON, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from weft.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "certify_source_mutants.md"
KERNEL = next(block.body for block in blocks(PAGE.read_text()) if block.file == "mine.cu")
ONE_KEY = ["--shapes", "one_token", "--regimes", "unit_normal"]
"""With one key every softmax is 1: such a test sees next to nothing."""


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    file = tmp_path / "mine.cu"
    file.write_text(KERNEL)
    return str(file)


def test_a_test_with_one_key_misses_mutants_of_the_scores(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certify", "--source-mutants", kernel, "--count", "4", "--seed", "1"]
    assert main([*command, *ONE_KEY, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert len(found["mutants"]) == 4 and found["workloads"] == 1
    outcomes = [each["outcome"] for each in found["mutants"]]
    assert outcomes.count("survived") == len(found["survivors"]) == found["total"] - found["killed"] >= 1
    lines = KERNEL.splitlines()
    for each in found["mutants"]:
        assert lines[each["line"] - 1] == each["before"].split("\n")[0]
        assert each["before"] != each["after"]
        assert (each["outcome"] == "killed") == (each["status"] not in (None, "PASSED"))


def test_a_wrong_kernel_has_no_mutants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.cu"
    wrong.write_text(KERNEL.replace("u[i] / l", "u[i]"))
    assert main(["certify", "--source-mutants", str(wrong), "--shapes", "small", "--regimes", "unit_normal"]) == 2
    assert "does not pass small f16 none unit_normal seed 0" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["sdpa", "--source-mutants", "mine.cu"]])
def test_a_task_or_a_kernel(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", *arguments]) == 2
    assert "--source-mutants" in capsys.readouterr().err
