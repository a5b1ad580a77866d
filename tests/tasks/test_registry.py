"""Tasks by name and from a user's file."""

from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import main
from weft.core.errors import UsageError
from weft.judge.certify import certify
from weft.tasks.registry import TASKS, find_task
from weft.tasks.task import PLAIN, Axes, Task

ROOT = Path(__file__).parents[2]
SOFTMAX = ROOT / "examples/tasks/softmax_task.py"


@pytest.mark.parametrize("task", [*TASKS.values(), find_task(str(SOFTMAX))], ids=lambda task: task.name)
def test_a_task_is_complete(task: Task) -> None:
    problem = task.draw(task.certified_on[0])
    assert set(problem.arrays) == set(task.inputs)
    expected = task.reference(problem)
    for output in task.outputs:
        assert expected[output.name].shape == output.shape(problem.workload.shape)
        assert expected[output.name].dtype == np.float64
    assert task.what and task.stages
    assert task.quick.within(task.workloads) == task.quick, "the quick selection is part of all workloads"


def test_the_softmax_of_the_howto_is_a_task_with_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    certificate = certify(find_task(str(SOFTMAX)))
    assert certificate.holds and len(certificate.mutants) >= 8 and len(certificate.right) >= 2
    kernel = ROOT / "examples/tasks/softmax.cu"
    assert main(["check", str(kernel), "--task", str(SOFTMAX), "--seeds", "1"]) == 0
    assert "few_queries\t3 of 3" in capsys.readouterr().out


def test_a_broken_softmax_kernel_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "examples/tasks/softmax.cu").read_text()
    assert "l += expf(row[j] - m)" in text
    broken = tmp_path / "broken.cu"
    broken.write_text(text.replace("l += expf(row[j] - m)", "l += expf(row[j])"))
    assert main(["check", str(broken), "--task", str(SOFTMAX), "--seeds", "1"]) == 1
    assert "INCORRECT_NUMERICAL: softmax" in capsys.readouterr().out


def test_an_invalid_task_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("TASK = 3\n")
    for name, message in (
        ("conv", "use one of qk_dot, sdpa"),
        ("no.py", "no such file"),
        (str(empty), "does not define `TASK"),
    ):
        with pytest.raises(UsageError, match=message):
            find_task(name)


def test_axes_check_their_names() -> None:
    with pytest.raises(UsageError, match="unknown regime 'loud'"):
        Axes(("small",), regimes=("loud",))
    with pytest.raises(UsageError, match="unknown encoding 'int4'"):
        Axes(("small",), encodings=("int4",))
    assert Axes(("small", "ragged")).within(Axes(("ragged", "small"), masks=("none",))) == Axes(
        ("small", "ragged"), masks=("none",), encodings=(PLAIN,)
    )
