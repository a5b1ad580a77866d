"""`weft export` writes, reports what it wrote, and never overwrites other files without --force."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import main
from weft.evolve.settings import Settings
from weft.kernels import RUNGS
from weft.store.store import open_store

FILES = {"func_forward.py", "config_forward.json", "forward.cu"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_writes_the_folder_and_reports_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert (
        "already contains thesis.tex; name an empty folder, or add to this one with --force" in capsys.readouterr().err
    )
    assert names(tmp_path) == {"thesis.tex"}
    assert main([*command, "--force"]) == 0
    assert names(tmp_path) == FILES | {"thesis.tex"} and (tmp_path / "thesis.tex").read_text() == "mine"


def test_results_of_the_benchmark_may_stay(tmp_path: Path) -> None:
    """robust-kbench writes its results next to the task; exporting again must not need --force."""
    (tmp_path / "eval_results").mkdir()
    (tmp_path / "filter_results.json").write_text("{}")
    (tmp_path / "__pycache__").mkdir()
    assert main(["export", "fp8_wmma", "--robust-kbench", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    "args, message",
    [
        (["fp8_wmma"], "weft export fp8_wmma with one of --torch FILE.cu, --robust-kbench FOLDER or"),
        (["qk_dot", "--robust-kbench", "x"], "qk_dot computes qk_dot; robust-kbench tasks are made from scalar, fa1"),
        (["gone.cu", "--torch", "x"], "gone.cu is neither a file nor a rung"),
        (["fa_triton", "--torch", "x"], "fa_triton is a Triton kernel: call it from PyTorch directly"),
        (["fp8_wmma", "--torch", "x", "--robust-kbench", "x"], "with one of"),
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


OWN = """\
// weft: sizes   B=2 H=3 N=33 D=64
// weft: define  THREADS = 32
// weft: in      q, k, v : f16[B, H, N, D] = normal
// weft: out     o : f16[B, H, N, D]
// weft: launch  attn<{D}>(q, k, v, o, N) grid(N, B * H) block(THREADS)
#include <cuda_fp16.h>
template <int D> __global__ void attn(const half* q, const half* k, const half* v, half* o, int N) {}
"""
"""One number of heads, one length."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "search.db"))
    Path("own.cu").write_text(OWN)
    return tmp_path


def test_a_user_file_as_a_pytorch_extension(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "own.cu", "--torch", "ext.cu", "--shapes", "mission,d128", "-D", "THREADS=64"]) == 0
    said = "own.cu → ext.cu: o = forward(q, k, v), for the shapes mission, d128 · not run on hardware"
    assert capsys.readouterr().out.splitlines() == [said]
    text = Path("ext.cu").read_text()
    assert "launch(attn<64>)" in text and "launch(attn<128>)" in text and "#define THREADS 64" in text
    assert OWN.rstrip() in text and 'm.def("forward", &forward' in text
    assert main(["export", "own.cu", "--torch", "ext.cu", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["inputs"], record["outputs"], record["shapes"]) == (["q", "k", "v"], ["o"], [])
    assert "launch(attn<128>)" not in Path("ext.cu").read_text(), "its own sizes have one D"


@pytest.mark.parametrize(
    "args, message",
    [
        (
            ["--torch", "ext.cu", "--shapes", "gqa_4"],
            "shape gqa_4 does not fit own.cu: the kernel has one head count",
        ),
        (["--torch", "own.cu"], "--torch own.cu would overwrite the kernel"),
        (["--robust-kbench", "task", "--shapes", "few_queries"], "own.cu does not take the shape few_queries"),
    ],
)
def test_unsupported_targets_are_refused_with_a_reason(
    own: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    assert main(["export", "own.cu", *args]) == 2
    assert message in capsys.readouterr().err
    assert Path("own.cu").read_text() == OWN and not Path("ext.cu").exists()


@pytest.mark.parametrize(
    "rung, shape, kernel",
    [
        ("backward", "d128", "backward_dkv<128>"),
        ("softcap_sinks", "d128", "softcap_sinks<128>"),
        ("paged_decode", "b3-hq2-hkv2-sq1-skv333-d96", "paged_merge<96>"),
        ("paged_decode_fp8", "b3-hq2-hkv2-sq1-skv333-d96", "paged_fp8_merge<96>"),
        ("fp8_mma", "d32", "fp8_mma_attention<32>"),
    ],
)
def test_a_rung_of_every_task_is_instantiated_for_a_shape(own: Path, rung: str, shape: str, kernel: str) -> None:
    assert main(["export", rung, "--torch", "ext.cu", "--shapes", shape]) == 0
    assert f"({kernel})" in Path("ext.cu").read_text()


@pytest.mark.parametrize(
    "option, message",
    [
        ("--flashinfer-bench", "paged_decode computes paged_decode; flashinfer-bench definitions are written for CUDA"),
        ("--robust-kbench", "paged_decode computes paged_decode; robust-kbench tasks are made from scalar, fa1"),
    ],
)
def test_a_rung_of_another_task_names_what_is_exported(
    own: Path, capsys: pytest.CaptureFixture[str], option: str, message: str
) -> None:
    assert main(["export", "paged_decode", option, "folder"]) == 2
    assert message in capsys.readouterr().err


def test_a_file_of_another_task_is_refused_by_its_inputs(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("paged.cu").write_text(RUNGS["paged_decode"].path.read_text())
    assert main(["export", "paged.cu", "--robust-kbench", "task"]) == 2
    assert "a robust-kbench task needs a kernel whose inputs are (q, k, v)" in capsys.readouterr().err


def test_a_kernel_with_other_inputs_is_not_exported_as_a_robust_kbench_task(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.cu").write_text(OWN.replace("q, k, v :", "k, q, v :"))
    assert main(["export", "own.cu", "--robust-kbench", "task", "--shapes", "mission"]) == 2
    assert "whose inputs are (q, k, v) or (q_code, " in capsys.readouterr().err


def test_a_user_file_as_a_robust_kbench_task(own: Path) -> None:
    assert main(["export", "own.cu", "--robust-kbench", "task"]) == 0
    config = json.loads(Path("task/config_forward.json").read_text())
    sizes = config["multi_shared_configs"]
    assert sizes[0] == {"B": 1, "HQ": 8, "HKV": 8, "SQ": 512, "SKV": 512, "D": 64}
    assert all(row["HQ"] == row["HKV"] and row["SQ"] == row["SKV"] for row in sizes), "shapes that it takes"
    spec = importlib.util.spec_from_file_location("func_forward", "task/func_forward.py")
    assert spec is not None and spec.loader is not None
    func = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(func)
    torch = pytest.importorskip("torch")
    small = {"B": 2, "HQ": 4, "HKV": 2, "SQ": 5, "SKV": 7, "D": 16}
    for method in func.INIT_METHODS:
        model, (q,) = func.Model(**small, init_method=method), func.get_inputs(**small, seed=1)
        assert (q.dtype, model.k.dtype, tuple(q.shape)) == (torch.float16, torch.float16, (2, 4, 5, 16))
        k, v = (x.double().numpy().repeat(2, axis=1) for x in (model.k, model.v))
        scores = q.double().numpy() @ k.swapaxes(2, 3) / 4
        weights = np.exp(scores - scores.max(axis=3, keepdims=True))
        expected = weights / weights.sum(axis=3, keepdims=True) @ v
        assert np.abs(model(q).double().numpy() - expected).max() <= 2e-3 * max(1, np.abs(expected).max())


def test_the_winner_of_a_search(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store() as store:
        run = store.start_run("evolve", task="sdpa", chip="l4", settings=Settings(task="sdpa").record())
        row = store.add_candidate(run.id, digest="d" * 64, source=OWN, defines={"THREADS": "96"})
    for target in f"{run.id}:{row.id}", f"{run.id}:winner":
        if target.endswith("winner"):
            assert main(["export", target, "--torch", "ext.cu"]) == 2
            assert f"run {run.id} has no winner yet" in capsys.readouterr().err
            with open_store() as store:
                store.set_run(run.id, progress={"winner": row.id})
        assert main(["export", target, "--torch", "ext.cu"]) == 0
        assert capsys.readouterr().out.startswith(f"{run.id}:{row.id} → ext.cu: o = forward(q, k, v)")
        text = Path("ext.cu").read_text()
        assert "#define THREADS 96" in text and f"candidate {row.id} of the search {run.id}" in text
