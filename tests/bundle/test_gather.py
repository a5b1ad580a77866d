"""Bundles of a file, a rung and a candidate; what cannot be bundled."""

from pathlib import Path

import pytest

from weft.bundle.gather import BundleOptions, from_kernel, from_search
from weft.core.errors import UsageError
from weft.evolve.history import FINAL
from weft.evolve.settings import Settings
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.store.store import Store, open_store

ASKED = BundleOptions(Choice(("small",), seeds=(0,)))


def test_a_rung_is_bundled_with_its_source_and_its_task() -> None:
    found = from_kernel("fp8_wmma", ASKED)
    assert found.source.text == RUNGS["fp8_wmma"].path.read_text() and found.source.language == "cuda"
    assert (found.task, found.rung, found.name) == ("fp8_sdpa", "fp8_wmma", "fp8_wmma.cu")


def test_a_ptx_file_is_bundled_with_its_launch_file(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(".version 9.0\n")
    (tmp_path / "k.launch").write_text("// weft: sizes N=1\n")
    found = from_kernel(str(tmp_path / "k.ptx"), ASKED)
    assert (found.source.language, found.source.launch) == ("ptx", "// weft: sizes N=1\n")
    assert found.name == "k.ptx"  # no path


def test_a_user_task_is_bundled_as_text(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("")
    (tmp_path / "mine.py").write_text("TASK = None\n")
    found = from_kernel(str(tmp_path / "k.cu"), BundleOptions(ASKED.choice, task=str(tmp_path / "mine.py")))
    assert (found.task, found.task_text) == ("mine.py", "TASK = None\n")


def test_what_cannot_be_bundled(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("#define X 1\n")
    (tmp_path / "k.cu").write_text('#include <cuda_fp16.h>\n  #  include "mine.h"\n')
    with pytest.raises(UsageError, match=r"includes the local file mine\.h"):
        from_kernel(str(tmp_path / "k.cu"), ASKED)
    with pytest.raises(UsageError, match="Triton kernel is Python"):
        from_kernel("fa_triton", ASKED)
    with pytest.raises(UsageError, match="neither a file nor a rung"):
        from_kernel("nothing.cu", ASKED)
    (tmp_path / "l.cu").write_text("")
    with pytest.raises(UsageError, match="use one of"):
        from_kernel(str(tmp_path / "l.cu"), BundleOptions(ASKED.choice, task="no_task"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "weft.db")


def test_a_candidate_is_bundled_with_the_workloads_of_its_search(store: Store) -> None:
    settings = Settings(task="sdpa", chip="a100")
    run = store.start_run("evolve", task="sdpa", chip="a100", settings=settings.record())
    row = store.add_candidate(run.id, digest="d" * 64, source="kernel text", defines={"WARPS": "8"})
    found = from_search(store, run.id, row.id)
    assert found.source.text == "kernel text" and found.source.defines == {"WARPS": "8"}
    assert (found.chip, found.choice, found.score) == ("a100", settings.choice, settings.score_on)
    assert found.origin == {"run": str(run.id), "candidate": str(row.id), "status": "not evaluated"}
    assert not found.debug_build
    # A candidate that was judged as a winner is bundled with all those workloads.
    store.enqueue(run.id, row.id, "k" * 64, request={"for": FINAL})
    store.finish(store.lease("me", seconds=60), "PASSED", {})  # type: ignore[arg-type]
    winner = from_search(store, run.id, row.id)
    assert winner.choice == settings.final and winner.debug_build
    assert winner.origin["status"] == "PASSED"


def test_a_candidate_of_another_run_is_refused(store: Store) -> None:
    first, second = (store.start_run("evolve", task="sdpa", settings=Settings().record()) for _ in range(2))
    row = store.add_candidate(first.id, digest="d" * 64, source="x")
    with pytest.raises(UsageError, match=f"belongs to run {first.id}, not to run {second.id}"):
        from_search(store, second.id, row.id)
