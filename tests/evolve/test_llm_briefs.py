"""The brief's files: what init writes, and what is read back."""

from dataclasses import replace
from pathlib import Path

import pytest

from weft.attention.shapes import SHAPES
from weft.core.errors import UsageError
from weft.evolve.llm.briefs import METRICS, make_brief, read_brief, write_brief
from weft.evolve.settings import Settings
from weft.kernels.ladder import RUNGS

SETTINGS = Settings()


def test_three_files_that_are_read_back(tmp_path: Path) -> None:
    paths = write_brief(tmp_path / "brief", SETTINGS)
    assert [path.name for path in paths] == ["00_task.md", "01_generate.md", "metrics.txt"]
    assert read_brief(tmp_path / "brief", SETTINGS) == make_brief(SETTINGS)
    assert make_brief(SETTINGS).counters == tuple(METRICS)


def test_the_task_names_what_is_judged(tmp_path: Path) -> None:
    text = make_brief(SETTINGS).task
    for name in (*SETTINGS.choice.shapes, SETTINGS.score_on.shape):
        shape = SHAPES[name]
        assert f"| `{name}` | {shape.b} | {shape.hq} | {shape.hkv} | {shape.sq} | {shape.skv} | {shape.d} |" in text
    for line in RUNGS["wmma"].path.read_text().splitlines():
        if line.startswith("// weft:"):
            assert line in text
    assert "58 SMs" in text and "bottom_right" in text and "host code" in text


def test_a_brief_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.txt").write_text("mine\n")
    with pytest.raises(UsageError, match=r"has metrics\.txt already"):
        write_brief(tmp_path, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.txt"]


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="weft evolve init writes it"):
        read_brief(tmp_path, SETTINGS)
    _, generate, metrics = write_brief(tmp_path, SETTINGS)
    with pytest.raises(UsageError, match="written for task sdpa on l4, not for sdpa on h100"):
        read_brief(tmp_path, replace(SETTINGS, chip="h100"))
    metrics.write_text("# none\n")
    with pytest.raises(UsageError, match=r"metrics\.txt: no counter"):
        read_brief(tmp_path, SETTINGS)
    metrics.write_text("issued\nspeed: how fast\n")
    with pytest.raises(UsageError, match="no counter speed"):
        read_brief(tmp_path, SETTINGS)
    metrics.write_text("issued  # all of them\n\nmma: tensor cores\n")
    assert read_brief(tmp_path, SETTINGS).counters == ("issued", "mma")
    generate.write_text("x" * 50_000)
    with pytest.raises(UsageError, match="at most 40000"):
        read_brief(tmp_path, SETTINGS)


@pytest.mark.parametrize("start", ["scalar", "split_k", "fp8_wmma"])
def test_every_task_of_a_rung_has_a_brief(start: str) -> None:
    settings = replace(SETTINGS, start=start, task=RUNGS[start].task)
    assert f"# Task: {RUNGS[start].task}" in make_brief(settings).task
