"""The pages about GPUs and PyTorch: their Python runs, and their commands are commands."""

import re
import shlex
from pathlib import Path

import pytest

import weft.cli.bench
import weft.cli.validate_gpu
from weft.cli.main import main
from weft.engines.cuda_device import NoGPU

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("howto/pytorch.md", "howto/bench.md", "run_on_gpu.md")
COMMANDS = [
    line
    for page in PAGES
    for block in re.findall(r"```console\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    for line in re.findall(r"^\$ (weft .*)$", block, re.MULTILINE)
]


@pytest.mark.parametrize("page", ["howto/pytorch.md", "run_on_gpu.md"])
def test_the_python_of_a_page_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    if "o8" in names:
        assert names["o8"].shape == (1, 8, 77, 64)  # type: ignore[attr-defined]


def test_there_are_commands() -> None:
    assert {command.split()[1] for command in COMMANDS} == {"bench", "validate-gpu"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_exist(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command runs until it finds that there is no GPU."""

    def nothing(ordinal: int) -> None:
        raise NoGPU("no GPU for this test")

    for verb in (weft.cli.bench, weft.cli.validate_gpu):
        monkeypatch.setattr(verb, "require_gpu", nothing)
    assert main(shlex.split(command)[1:]) == 3
