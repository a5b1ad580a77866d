"""What a task decides about a search: its start, its workloads, and the workload of its score."""

import pytest

from weft.core.errors import UsageError
from weft.evolve.search import start_source
from weft.evolve.settings import SEARCH_CHOICE, settings_for
from weft.judge.select import find_candidate, plan
from weft.kernels.ladder import RUNGS
from weft.supervise.records import ScoreOn
from weft.tasks.registry import TASKS


def test_a_search_without_options_is_that_of_sdpa() -> None:
    found = settings_for("")
    assert (found.task, found.start, found.score_on, found.choice) == ("sdpa", "wmma", ScoreOn(), SEARCH_CHOICE)


@pytest.mark.parametrize("name", [rung.name for rung in RUNGS.values() if rung.language == "CUDA"])
def test_a_rung_takes_the_workloads_of_its_search(name: str) -> None:
    found = settings_for(name)
    assert found.task == RUNGS[name].task and found.score_on.shape == TASKS[found.task].typical
    _, supports = find_candidate(name, task=None)
    todo = plan(supports, found.choice, strict=True)
    assert {work.shape.name for work in todo} == set(found.choice.shapes)
    assert found.score_on.dtype in supports.dtypes and found.score_on.encoding in supports.encodings


@pytest.mark.parametrize(
    ("task", "start"),
    [
        ("sdpa_backward", "backward"), ("softcap_sinks", "softcap_sinks"), ("paged_decode", "paged_decode"),
        ("paged_decode_fp8", "paged_decode_fp8"), ("sliding_window", "pipelined"),
    ],
)  # fmt: skip
def test_a_task_has_a_start(task: str, start: str) -> None:
    assert settings_for("", task=task).start == start


def test_what_cannot_start_a_search_names_what_can() -> None:
    with pytest.raises(UsageError, match=r"no CUDA rung computes sdpa_varlen: name a .cu file"):
        settings_for("", task="sdpa_varlen")
    with pytest.raises(UsageError, match=r"a CUDA rung of the same task \(backward, backward_mma\)"):
        start_source("backward_triton")
    with pytest.raises(UsageError, match=r"varlen_triton is Triton.*a .cu file with `lever` lines"):
        start_source("varlen_triton")
    with pytest.raises(UsageError, match=r"wmma cannot compute sliding_window: .* or a rung that can: pipelined"):
        settings_for("wmma", task="sliding_window")
    with pytest.raises(UsageError, match="did you mean mission"):
        settings_for("", shape="misson")
