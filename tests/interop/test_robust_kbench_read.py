"""Folders of robust-kbench as Weft reads them: both forms, written and judged again; what does not fit is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weft.cli.main import main
from weft.core.errors import Unsupported, UsageError
from weft.interop.foreign_task import Case, Tolerance, foreign_task
from weft.interop.host_kernel import HostKernel
from weft.interop.robust_kbench import make_task, write_task
from weft.interop.robust_kbench_read import make_case, read_folder, results
from weft.tasks.task import Declared

COMMITTED = Path(__file__).parents[2] / "tasks" / "fp8_sdpa_stage_c_wmma"

KERNEL = """\
#include <torch/extension.h>

__global__ void affine(const float* x, const float* weight, float* y, float shift, int rows, int columns) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < rows * columns) y[i] = x[i] * weight[i % columns] + shift;
}

torch::Tensor forward(torch::Tensor x, torch::Tensor weight, double shift) {
    const int rows = x.size(0), columns = x.size(1);
    auto y = torch::empty({rows, columns}, x.options());
    affine<<<(rows * columns + 63) / 64, 64>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(),
        shift, rows, columns);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

FUNC = '''\
import torch
from torch import nn


def forward_fn(x, weight, shift):
    """x times weight, plus shift."""
    return x * weight + shift


class Model(nn.Module):
    def __init__(self, columns, rows=0, init_method="ones"):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns) if init_method == "normal" else torch.ones(columns))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, 0.25)


def get_inputs(columns, rows=4):
    return [torch.randn(rows, columns)]


input_names = ["x"]
'''

CONFIG: dict[str, Any] = {
    "single_input_configs": [{"rows": 3}],
    "single_init_configs": [{"init_method": "normal"}],
    "single_shared_configs": [{"columns": 40}],
    "multi_input_configs": [{"rows": 1}, {"rows": 5}],
    "multi_init_configs": [{"init_method": "normal"}, {"init_method": "ones"}],
    "multi_shared_configs": [{"columns": 7}, {"columns": 64}, {"columns": 65, "rows": 2}],
}

EARLIER: dict[str, Any] = {
    "arch": "sm_89",
    "seeds": [3, 4],
    "shapes": [{"name": "a", "B": 1, "H": 2, "S": 3, "D": 4}, {"name": "b", "B": 1, "H": 1, "S": 9, "D": 4}],
    "tolerance": {"atol": 0.1, "rtol": 0.2, "pct_bad_max": 5},
    "timing": {"warmup_iters": 1, "timed_iters": 2},
}


def write(folder: Path, *, config: Any = CONFIG, func: str = FUNC, kernel: str = KERNEL) -> Path:
    (folder / "func_forward.py").write_text(func)
    (folder / "config_forward.json").write_text(json.dumps(config))
    (folder / "forward.cu").write_text(kernel)
    return folder


def test_the_committed_task_has_the_cases_that_robust_kbench_makes() -> None:
    every = read_folder(COMMITTED, multi=True, trials=2)
    assert every.form == "current" and len(every.settings) == 7 * 3 * 10
    first = every.settings[0]
    sizes = "B_1_HQ_8_HKV_8_SQ_512_SKV_512_D_64"
    assert first.name == f"init_method_unit_normal_{sizes}_seed_0_{sizes}"
    assert len({setting.name for setting in every.settings}) == 210
    torch.manual_seed(42)
    assert first.seeds == tuple(torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(2))
    (timed,) = read_folder(COMMITTED).settings
    assert timed.name == first.name


def test_shared_settings_win(tmp_path: Path) -> None:
    names = [(s.init, s.inputs) for s in read_folder(write(tmp_path), multi=True).settings]
    assert len(names) == 12
    assert names[2] == ({"init_method": "normal", "columns": 65, "rows": 2}, {"rows": 2, "columns": 65})


def test_the_earlier_form(tmp_path: Path) -> None:
    folder = read_folder(write(tmp_path, config=EARLIER), multi=True)
    assert (folder.form, folder.arch, folder.tolerance) == ("earlier", "sm_89", Tolerance(0.1, 0.2, bad_share=0.05))
    assert [(s.name, s.seeds, s.inputs["S"], s.inputs["SKV"]) for s in folder.settings] == [
        ("a", (3, 4), 3, 3),
        ("b", (3, 4), 9, 9),
    ]


def test_the_earlier_form_goes_out_and_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_task(make_task("fp8_wmma", shapes=["small", "mission"], seeds=2, form="earlier"), tmp_path)
    config = json.loads((tmp_path / "config_forward.json").read_text())
    assert list(config) == ["arch", "seeds", "shapes", "tolerance", "timing"]
    assert config["shapes"][0] == {"name": "small", "B": 1, "H": 1, "S": 32, "D": 64}
    assert main(["import", str(tmp_path), "--robust-kbench", "--record"]) == 0
    assert "1 of 1 cases passed" in capsys.readouterr().out
    found = json.loads((tmp_path / "eval_results" / "forward" / "weft_results.json").read_text())
    assert found["summary"] == {"correct": True, "max_diff": 0.0, "total_trials": 1, "all_configs_str": ["small"]}
    assert found["eval_settings"]["small"] == {
        "correct": True,
        "num_correct": 1,
        "total_correct_trials": 1,
        "max_diff": 0.0,
        "atol": 0.05,
        "rtol": 0.05,
    }
    with pytest.raises(UsageError, match="leave out shape gqa_4"):
        make_task("fp8_wmma", shapes=["gqa_4"], form="earlier")


def test_a_task_of_any_operation_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(write(tmp_path)), "--all", "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert len(cases) == 12 and {case["status"] for case in cases} == {"PASSED"}
    # x·w + shift in one or two roundings of numbers below 64: it is no looser than that.
    assert max(case["verdict"]["error"]["max"] for case in cases) <= 64 * 2.0**-24


@pytest.mark.parametrize(
    "old, new, status",
    [
        ("+ shift", "- shift", "INCORRECT_NUMERICAL"),
        ("i < rows", "i <= rows", "UNSAFE"),
        ("{rows, columns}, x", "{columns, rows}, x", "INCORRECT_SHAPE"),
        ("return y", "return y.view({-1})", "UNSUPPORTED"),
    ],
)
def test_wrong_kernels_do_not_pass(
    tmp_path: Path, old: str, new: str, status: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["check", str(write(tmp_path, kernel=KERNEL.replace(old, new))), "--json"])
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert (case["status"], code) == (status, 3 if status == "UNSUPPORTED" else 1)


def test_a_folder_takes_the_options_of_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = str(write(tmp_path, kernel=KERNEL.replace("i < rows * columns", "i < rows * columns + 1")))
    assert main(["check", wrong, "--format", "sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert {result["ruleId"] for result in run["results"]} == {"M101"}
    assert main(["check", wrong, "--format", "github", "--seeds", "2"]) == 1
    assert "title=M101" in capsys.readouterr().out
    right = str(write(tmp_path))
    assert main(["check", right, "--seeds", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cases"]) == 2
    endless = KERNEL.replace("    if (i <", "    while (rows) if (y[0] == 7.0f) break;\n    if (i <")
    assert main(["check", str(write(tmp_path, kernel=endless)), "--max-steps", "1000", "--json"]) == 1
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["status"] == "TIMEOUT"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--shapes", "small"], "--shapes: "),
        (["--dtypes", "f16", "--hidden", "2"], "--dtypes, --hidden: "),
        (["--task", "sdpa"], "has its own reference, inputs and cases"),
        (["--tool", "lint"], "there is no tool 'lint'"),
        (["scalar"], "a folder is judged alone"),
    ],
)
def test_options_that_a_folder_cannot_take_are_refused(
    tmp_path: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(write(tmp_path)), *options]) == 2
    assert words in capsys.readouterr().err


def one(folder: Path) -> None:
    task = read_folder(folder)
    (setting,) = task.settings
    make_case(task, setting, setting.seeds[0], HostKernel(task.kernel, folder))


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"config": {"shapes": []}}, UsageError, "has the keys shapes; known are single_input_configs"),
        ({"config": {**CONFIG, "single_init_configs": []}}, UsageError, "no list of objects"),
        ({"config": {**EARLIER, "tolerance": {"atol": 1}}}, UsageError, "pct_bad_max"),
        ({"config": {**EARLIER, "shapes": [{"name": "a", "S": 1}]}}, UsageError, "name, B, H, S, D"),
        ({"config": EARLIER}, UsageError, "get_inputs asks for 'columns'"),
        ({"config": {**CONFIG, "single_input_configs": [{"width": 3}]}}, UsageError, "does not take width"),
        ({"func": FUNC.replace("def forward_fn", "def other")}, UsageError, "cannot be run|defines no function"),
        ({"func": FUNC.replace("0.25)", "0.25) + fn(x, x, 1.0)")}, Unsupported, "calls its function 2 times"),
        ({"func": FUNC.replace("0.25)", "None)")}, UsageError, "func_forward.py: TypeError"),
        ({"func": FUNC.replace("0.25)", "0.25, 3)").replace("shift):", "shift, n=0):")}, UsageError, "take 3 arg"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        one(write(tmp_path, **change))


def verdict(tolerance: Tolerance, out: list[float], expected: list[float]) -> bool:
    want, got = np.array(expected, np.float32), np.array(out, np.float32)
    task, (workload,) = foreign_task("t", [Case("c", {}, {"y": want})], tolerance)
    return bool(task.judge(task.draw(workload), {"y": got}, Declared()).passed)


@pytest.mark.parametrize(
    "tolerance, out, expected, passes",
    [
        (Tolerance(0.1, 0.1), [1.19], [1.0], True),
        (Tolerance(0.1, 0.1), [1.21], [1.0], False),
        (Tolerance(0.1, 0.1, either=True), [1.19], [1.0], False),
        (Tolerance(0.1, 0.1, either=True), [10.9], [10.0], True),
        (Tolerance(0.1, 0.1), [float("nan")], [1.0], False),
        (Tolerance(0.1, 0.1), [float("nan")], [float("nan")], False),
        (Tolerance(0.1, 0.1), [-float("inf")], [-float("inf")], True),
        (Tolerance(0.1, 0.1), [0.0], [-float("inf")], False),
        (Tolerance(0.1, 0.0, bad_share=0.25), [1.0, 1.0, 1.0, 9.0], [1.0, 1.0, 1.0, 1.0], True),
        (Tolerance(0.1, 0.0, bad_share=0.25), [1.0, 1.0, 9.0, 9.0], [1.0, 1.0, 1.0, 1.0], False),
        (Tolerance(0.1, 0.0, bad_share=0.25), [1.0, 1.0, 1.0, float("nan")], [1.0, 1.0, 1.0, 1.0], False),
    ],
)
def test_tolerances(tolerance: Tolerance, out: list[float], expected: list[float], passes: bool) -> None:
    assert verdict(tolerance, out, expected) is passes


def test_results_count_trials(tmp_path: Path) -> None:
    folder = read_folder(write(tmp_path))
    found = results(folder, {"a": [(True, 0.1), (False, 0.5)], "b": [(True, 0.2)]})
    assert found["summary"] == {"correct": False, "max_diff": 0.5, "total_trials": 2, "all_configs_str": ["a", "b"]}
    assert found["eval_settings"]["a"]["num_correct"] == 1 and found["eval_settings"]["b"]["max_diff"] == 0.0
    assert results(folder, {})["summary"]["correct"] is False  # nothing judged is nothing right


def test_what_was_not_judged_is_written_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, kernel=KERNEL.replace("return y", "return y.view({-1})"))
    assert main(["import", str(tmp_path), "--robust-kbench", "--record"]) == 3
    assert "no results are written" in capsys.readouterr().err
    assert not (tmp_path / "eval_results").exists()
