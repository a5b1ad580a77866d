"""flashinfer-bench: its own models read what Weft writes, and Weft judges its solutions."""

import importlib.util
import json
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from weft.cli.check_folder import FolderOptions, Shown, check_folder
from weft.cli.main import main
from weft.core.errors import Unsupported, UsageError
from weft.core.status import Status
from weft.interop.flashinfer_bench.call import draw_inputs, require_known
from weft.interop.flashinfer_bench.export_rung import make_files
from weft.interop.flashinfer_bench.read_folder import Folder, read_folder
from weft.interop.flashinfer_bench.records import Workload, read_definition, read_solution, read_trace, read_workload
from weft.interop.flashinfer_bench.trace import STATUS, trace
from weft.interop.robust_kbench import write_task

RAGGED = """\
#include <torch/extension.h>

__global__ void ragged(const float* q, const float* k, const float* v, const int* q_at, const int* kv_at, float scale,
                       float* output, float* lse, int heads, int d) {
    const int sequence = blockIdx.x, head = threadIdx.x;
    const int queries = q_at[sequence + 1] - q_at[sequence], keys = kv_at[sequence + 1] - kv_at[sequence];
    for (int i = 0; i < queries; ++i) {
        const int row = (q_at[sequence] + i) * heads + head;
        float most = -INFINITY, sum = 0.0f;
        for (int pass = 0; pass < 2; ++pass)
            for (int j = 0; j <= i + keys - queries; ++j) {
                const int column = (kv_at[sequence] + j) * heads + head;
                float s = 0.0f;
                for (int c = 0; c < d; ++c) s += q[row * d + c] * k[column * d + c];
                s *= scale;
                if (pass == 0) most = fmaxf(most, s);
                else {
                    const float p = expf(s - most);
                    for (int c = 0; c < d; ++c)
                        output[row * d + c] = (sum == 0.0f ? 0.0f : output[row * d + c]) + p * v[column * d + c];
                    sum += p;
                }
            }
        for (int c = 0; c < d; ++c) output[row * d + c] /= sum;
        lse[row] = (most + logf(sum)) * LOG2E;
    }
}

void run(torch::Tensor q, torch::Tensor k, torch::Tensor v, torch::Tensor qo_indptr, torch::Tensor kv_indptr,
         double sm_scale, torch::Tensor output, torch::Tensor lse) {
    TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && v.dim() == 3 && output.dim() == 3 && lse.dim() == 2);
    TORCH_CHECK(k.size(1) == q.size(1) && k.size(2) == q.size(2) && v.size(0) == k.size(0));
    TORCH_CHECK(v.size(1) == q.size(1) && v.size(2) == q.size(2));
    TORCH_CHECK(output.size(0) == q.size(0) && output.size(1) == q.size(1) && output.size(2) == q.size(2));
    TORCH_CHECK(lse.size(0) == q.size(0) && lse.size(1) == q.size(1));
    TORCH_CHECK(qo_indptr.dim() == 1 && kv_indptr.dim() == 1 && kv_indptr.size(0) == qo_indptr.size(0));
    const int heads = q.size(1);
    ragged<<<qo_indptr.size(0) - 1, heads>>>(q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(),
        qo_indptr.data_ptr<int>(), kv_indptr.data_ptr<int>(), sm_scale, output.data_ptr<float>(),
        lse.data_ptr<float>(), heads, q.size(2));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""

REFERENCE = """\
import math
import torch

def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    output, lse = torch.zeros_like(q), torch.full(q.shape[:2], -float("inf"))
    for a in range(len(qo_indptr) - 1):
        here, there = slice(*qo_indptr[a : a + 2].tolist()), slice(*kv_indptr[a : a + 2].tolist())
        s = torch.einsum("ihd,jhd->hij", q[here], k[there]) * sm_scale
        seen = torch.ones(s.shape[1:], dtype=torch.bool).tril(s.shape[2] - s.shape[1])
        s = s.masked_fill(~seen, -float("inf"))
        output[here] = torch.einsum("hij,jhd->ihd", torch.softmax(s, -1), v[there])
        lse[here] = torch.logsumexp(s, -1).T / math.log(2)
    return {"lse": lse, "output": output}
"""


def tensor(shape: list[str] | None, dtype: str = "float32") -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype}


DEFINITION: dict[str, Any] = {
    "name": "gqa_ragged_prefill_causal_h2_kv2_d8",
    "op_type": "gqa_ragged",
    "axes": {
        "total_q": {"type": "var"}, "total_kv": {"type": "var"}, "len_indptr": {"type": "var"},
        "heads": {"type": "const", "value": 2}, "d": {"type": "const", "value": 8},
    },
    "inputs": {
        "q": tensor(["total_q", "heads", "d"]), "k": tensor(["total_kv", "heads", "d"]),
        "v": tensor(["total_kv", "heads", "d"]), "qo_indptr": tensor(["len_indptr"], "int32"),
        "kv_indptr": tensor(["len_indptr"], "int32"), "sm_scale": tensor(None),
    },
    "outputs": {"output": tensor(["total_q", "heads", "d"]), "lse": tensor(["total_q", "heads"])},
    "reference": REFERENCE,
}  # fmt: skip

WORKLOAD: dict[str, Any] = {
    "uuid": "a",
    "axes": {"total_q": 5, "total_kv": 7, "len_indptr": 3},
    "inputs": {
        "q": {"type": "random"}, "k": {"type": "random"}, "v": {"type": "random"},
        "qo_indptr": {"type": "safetensors", "path": "blob/a.safetensors", "tensor_key": "qo"},
        "kv_indptr": {"type": "safetensors", "path": "blob/a.safetensors", "tensor_key": "kv"},
        "sm_scale": {"type": "scalar", "value": 0.353553},
    },
}  # fmt: skip


def solution(name: str, source: str) -> dict[str, Any]:
    return {
        "name": name,
        "definition": DEFINITION["name"],
        "author": "test",
        "spec": {
            "language": "cuda",
            "target_hardware": ["cuda"],
            "entry_point": "src/main.cu::run",
            "binding": "torch",
        },
        "sources": [{"path": "src/main.cu", "content": source}],
    }


def safetensors(tensors: dict[str, Any]) -> bytes:
    """A folder written by the format's description, not by Weft."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = np.array(values, np.int32).tobytes()
        header[name] = {"dtype": "I32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(folder: Path, *, workload: dict[str, Any] = WORKLOAD, solutions: dict[str, str]) -> None:
    files = {"definitions/d.json": json.dumps(DEFINITION)}
    files["workloads/w.jsonl"] = json.dumps({"definition": DEFINITION["name"], "workload": workload}) + "\n"
    for name, source in solutions.items():
        files[f"solutions/{name}.json"] = json.dumps(solution(name, source))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "blob").mkdir()
    (folder / "blob" / "a.safetensors").write_bytes(safetensors({"qo": [0, 3, 5], "kv": [0, 3, 7]}))


@pytest.fixture(scope="module")
def theirs() -> Any:
    """flashinfer_bench.data: its models and its reader. Importing the package itself would need a GPU."""
    spec = importlib.util.find_spec("flashinfer_bench")
    assert spec and spec.submodule_search_locations
    package = ModuleType("flashinfer_bench")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules.setdefault("flashinfer_bench", package)
    return importlib.import_module("flashinfer_bench.data")


def test_flashinfer_bench_reads_what_weft_writes(tmp_path: Path, theirs: Any) -> None:
    shapes = ("small", "ragged", "gqa_4", "few_queries")
    write_task(make_files("wmma", shapes=shapes, defines={"CAUSAL": "2", "ELEMENT": "__nv_bfloat16"}), tmp_path)
    read, found = theirs.TraceSet.from_path(str(tmp_path)), read_folder(tmp_path)
    assert (
        set(read.definitions)
        == set(found.definitions)
        == {f"sdpa_causal_bottom_right_{heads}_d64_bfloat16" for heads in ("h1_kv1", "h2_kv2", "h8_kv2")}
    )
    for name, definition in found.definitions.items():
        model = read.definitions[name]
        assert theirs.Definition.model_validate(definition.record()) == model
        again = read_definition(json.loads(model.model_dump_json()), "theirs")
        assert again == definition and model.op_type == "sdpa" and list(model.outputs) == ["output", "lse"]
        assert read_folder(tmp_path).workloads[name] == found.workloads[name]
        sizes = {(w.axes["B"], w.axes["SQ"], w.axes["SKV"]) for w in found.workloads[name]}
        assert {tuple(t.workload.axes[a] for a in ("B", "SQ", "SKV")) for t in read.workloads[name]} == sizes
    assert [w.axes for w in found.workloads["sdpa_causal_bottom_right_h2_kv2_d64_bfloat16"]] == [
        {"B": 2, "SQ": 77, "SKV": 77},
        {"B": 1, "SQ": 20, "SKV": 100},
    ]
    for name, mine in found.solutions.items():
        model = read.get_solution(name)
        assert read_solution(json.loads(model.model_dump_json()), "theirs") == mine
        assert model.spec.binding.value == "torch" and "#define CAUSAL 2" in mine.sources["main.cu"]


def test_an_exported_rung_is_judged_and_gets_traces(
    tmp_path: Path, theirs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "scalar", "--flashinfer-bench", str(tmp_path), "--shapes", "small", "-D", "CAUSAL=1"]) == 0
    assert "1 of 1 cases passed" in capsys.readouterr().out
    (found,) = theirs.TraceSet.from_path(str(tmp_path)).traces["sdpa_causal_top_left_h1_kv1_d64_float16"]
    assert found.is_successful() and found.evaluation.performance.latency_ms == 0
    assert "not timed" in found.evaluation.log and "virtual GPU" in found.evaluation.environment.hardware
    # Output and reference are both rounded to fp16, each by half an ulp of a value below 4.
    assert 0 <= found.evaluation.correctness.max_absolute_error <= 2 * 2.0**-10
    assert main(["import", str(tmp_path), "--flashinfer-bench", "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["status"] == case["recorded"] == "PASSED"


def test_ragged_solutions_in_destination_passing_style(
    tmp_path: Path, theirs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    right = RAGGED.replace("LOG2E", "1.44269504f")
    write(
        tmp_path,
        solutions={
            "right": right,
            "natural_log": RAGGED.replace("LOG2E", "1.0f"),
            "past_the_end": right.replace("i < queries", "i <= queries"),
            "hidden_view": right.replace("ragged<<<", "cudaLaunchKernel(ragged);  //"),
        },
    )
    assert main(["import", str(tmp_path), "--record", "--json"]) == 1
    cases = {case["kernel"]: case for case in json.loads(capsys.readouterr().out)["cases"]}
    assert {name: case["status"] for name, case in cases.items()} == {
        "right": "PASSED",
        "natural_log": "INCORRECT_NUMERICAL",
        "past_the_end": "UNSAFE",
        "hidden_view": "UNSUPPORTED",
    }
    assert cases["past_the_end"]["verdict"]["findings"][0]["code"] == "M101"
    traces = theirs.TraceSet.from_path(str(tmp_path)).traces[DEFINITION["name"]]
    assert {t.solution: t.evaluation.status.value for t in traces} == {
        "right": "PASSED",
        "natural_log": "INCORRECT_NUMERICAL",
        "past_the_end": "RUNTIME_ERROR",
    }
    folder = read_folder(tmp_path)
    assert folder.recorded("natural_log", "a") == "INCORRECT_NUMERICAL" and folder.recorded("hidden_view", "a") is None


@pytest.mark.parametrize("status", sorted(status for status in Status if status.decided))
def test_every_status_gives_a_trace_that_flashinfer_bench_accepts(status: Status, theirs: Any) -> None:
    made = trace(
        "d",
        read_workload(WORKLOAD, "here"),
        "s",
        status=str(status),
        message="why",
        errors=(np.inf, np.nan),
        timestamp="2026-01-01T00:00:00+00:00",
    )
    model = theirs.Trace.model_validate_json(json.dumps(made.record(), allow_nan=False))
    assert model.evaluation.status.value == STATUS[status] and "why" in model.evaluation.log
    again = read_trace(json.loads(model.model_dump_json()), "theirs")
    assert again.solution == "s" and again.evaluation["status"] == STATUS[status]


def test_unsupported_gives_no_trace() -> None:
    with pytest.raises(KeyError):
        trace("d", read_workload(WORKLOAD, "here"), "s", status="UNSUPPORTED", timestamp="now")


def changed(**changes: Any) -> dict[str, Any]:
    return {**DEFINITION, **changes}


@pytest.mark.parametrize(
    "given, words",
    [
        (changed(op_type="sampling"), "gqa_ragged, gqa_paged"),
        (changed(outputs={"output": tensor(["total_q"], "int32")}), "tensors of floats"),
    ],
)
def test_unknown_operations_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        require_known(read_definition(given, "d.json"), read_solution(solution("s", "x"), "s.json"))


@pytest.mark.parametrize("spec", [{"language": "triton"}, {"binding": "tvm-ffi"}, {"binding": None}])
def test_other_languages_and_bindings_are_refused(spec: dict[str, Any]) -> None:
    given = solution("s", "x")
    given["spec"] |= spec
    with pytest.raises(Unsupported, match="cuda bound by torch"):
        require_known(read_definition(DEFINITION, "d.json"), read_solution(given, "s.json"))


@pytest.mark.parametrize(
    "given, words",
    [
        (changed(axes={**DEFINITION["axes"], "d": {"type": "dynamic"}}), "neither"),
        (changed(inputs={**DEFINITION["inputs"], "q": tensor(["rows", "d"])}), "'rows', which is not defined"),
        (changed(inputs={**DEFINITION["inputs"], "q": tensor(["d"], "float4_e2m1")}), "Weft takes float32"),
        (changed(outputs={"q": tensor(["d"])}), "an input and an output"),
        (changed(reference=""), "has no 'reference'"),
    ],
)
def test_definitions_are_read_strictly(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_definition(given, "d.json")


def drawn(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "a.safetensors").write_bytes(safetensors({"qo": [0, 3, 5], "kv": [0, 3, 7]}))
    work = {**WORKLOAD, **changes}
    return draw_inputs(tmp_path, read_definition(DEFINITION, "d"), read_workload(work, "w"))


def test_inputs_are_those_of_the_workload(tmp_path: Path) -> None:
    found = drawn(tmp_path)
    assert list(found) == list(DEFINITION["inputs"])
    assert found["kv_indptr"].tolist() == [0, 3, 7] and found["sm_scale"] == 0.353553
    assert found["q"].shape == (5, 2, 8) and abs(found["q"].mean()) < 4 / np.sqrt(80)
    assert not np.array_equal(found["k"], found["v"])


@pytest.mark.parametrize(
    "changes, error, words",
    [
        ({"axes": {"total_q": 5}}, UsageError, "variable axes are len_indptr, total_kv, total_q"),
        ({"axes": {**WORKLOAD["axes"], "total_q": -1}}, UsageError, "not a number of elements"),
        ({"inputs": {**WORKLOAD["inputs"], "qo_indptr": {"type": "random"}}}, Unsupported, "not a valid index"),
        ({"inputs": {**WORKLOAD["inputs"], "sm_scale": {"type": "random"}}}, UsageError, "is a number"),
        ({"inputs": {**WORKLOAD["inputs"], "q": {"type": "npy"}}}, UsageError, "random, scalar and safetensors"),
        (
            {"inputs": {**WORKLOAD["inputs"], "qo_indptr": {"type": "safetensors", "path": "../x", "tensor_key": "a"}}},
            UsageError,
            "is outside",
        ),
        (
            {"inputs": {**WORKLOAD["inputs"], "q": {**WORKLOAD["inputs"]["qo_indptr"]}}},
            UsageError,
            "not float32",
        ),
    ],
)
def test_invalid_inputs_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        drawn(tmp_path, **changes)


def test_other_rungs_are_refused_with_the_list_of_valid_ones() -> None:
    for rung in ("fp8_wmma", "fa_triton", "qk_dot", "nothing"):
        with pytest.raises(UsageError, match="scalar, fa1, split_k, wmma_qk, wmma, pipelined"):
            make_files(rung)


def test_an_invalid_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a task of robust-kbench"):
        check_folder(tmp_path, FolderOptions(), Shown())
    assert main(["import", str(tmp_path), "--flashinfer-bench"]) == 2
    assert main(["check", str(tmp_path)]) == 2


def test_records_are_plain_data() -> None:
    folder = Folder(Path(), {}, {}, {}, ())
    assert folder.recorded("s", "w") is None
    assert Workload("u", {"B": 1}, {}).record() == {"axes": {"B": 1}, "inputs": {}, "uuid": "u"}
