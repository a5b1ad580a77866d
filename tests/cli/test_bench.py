"""`weft bench`: on the stand-in of a GPU, and without one."""

import itertools
import json
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend

import weft.cli.bench as verb
from tests.engines.recording_cuda import RecordingCuda
from weft.cli.main import main
from weft.engines.cuda_device import NoGPU
from weft.engines.cuda_gpu import CudaGPU
from weft.tasks.task import Problem
from weft.torch.baseline import TorchSdpa

QUICK = ["--shapes", "split_4", "--iters", "8", "--warmup", "0"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> RecordingCuda:
    recording = RecordingCuda()
    monkeypatch.setattr(verb, "require_gpu", lambda ordinal: recording.device())
    return recording


class TorchOnCpu(TorchSdpa):
    """PyTorch's attention on the CPU, which takes 0.5 ms of the pretended clock."""

    def __init__(self, gpu: RecordingCuda, problem: Problem, backend: str) -> None:
        self._gpu = gpu
        super().__init__(problem, backend=backend, where="cpu", stream=nullcontext)

    def inputs(self) -> dict[int, int]:
        return dict(itertools.islice(self._gpu.live.items(), 1))

    def enqueue(self) -> None:
        super().enqueue()
        gpu = self._gpu
        gpu.queue.append(lambda: setattr(gpu, "clock_ms", gpu.clock_ms + 0.5))


def test_without_a_gpu_the_message_gives_the_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(ordinal: int) -> None:
        raise NoGPU("no GPU can be used: there is no driver")

    monkeypatch.setattr(verb, "require_gpu", nothing)
    assert main(["bench", "scalar"]) == 3
    assert "nothing was timed: no GPU can be used: there is no driver" in capsys.readouterr().err
    assert main(["bench", "scalar", "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["gpu"] is None and "there is no driver" in said.err


def test_two_rungs_cold_and_warm(gpu: RecordingCuda, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.cost_ms = lambda name: 0.2 if "scalar" in name else 0.1
    assert main(["bench", "scalar", "fa1", *QUICK, "--against", "first"]) == 0
    out = capsys.readouterr().out
    assert "split_4 f16 none unit_normal · stand-in (sm_89) · L2 cold" in out and "L2 warm" in out
    assert out.count("faster: -50.0 % time") == 2 and out.count("baseline\tright") == 2
    assert "SM clock 2040 … 2040 MHz in 8 readings" in out


def test_pytorch_is_the_baseline_and_its_backend_is_named(
    gpu: RecordingCuda, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_cpu(engine: CudaGPU, problem: Problem, backend: str) -> Any:
        return TorchOnCpu(gpu, problem, backend)

    monkeypatch.setattr(verb, "torch_sdpa", on_cpu)
    assert main(["bench", "scalar", *QUICK, "--l2", "cold", "--json", "--backend", "math"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    baseline, kernel = result["rows"]
    assert baseline["name"] == "PyTorch SDPA" and baseline["detail"].endswith(", math")
    assert baseline["samples_ms"] == pytest.approx([0.5] * 8) and baseline["right"]
    assert kernel["answer"] == "slower" and kernel["ratio"]["median"] == pytest.approx(2)
    assert main(["bench", "fp8_scalar", *QUICK, "--l2", "cold", "--encoding", "e4m3", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    named = result["rows"][0]["detail"].rpartition(" ")[2]
    assert all(row["right"] for row in result["rows"]) and named.upper() in SDPBackend.__members__


def test_what_pytorch_does_not_compute_is_timed_alone(
    gpu: RecordingCuda, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "torch_sdpa", lambda engine, problem, backend: TorchOnCpu(gpu, problem, backend))
    assert main(["bench", "qk_dot", *QUICK, "--l2", "cold"]) == 0
    assert "no comparison with PyTorch SDPA: it computes attention, not qk_dot" in capsys.readouterr().out
    shape = ["--shapes", "few_keys", "--mask", "bottom_right", "--iters", "8", "--warmup", "0"]
    assert main(["bench", "scalar", *shape, "--l2", "cold"]) == 0
    assert "is_causal is top_left" in capsys.readouterr().out
    assert main(["bench", "scalar", *QUICK, "--l2", "cold", "--backend", "cudnn"]) == 0
    assert "backend cudnn_attention cannot run this" in capsys.readouterr().out


def test_a_note_says_that_pytorch_has_no_gpu(gpu: RecordingCuda, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this PyTorch can use a GPU")
    assert main(["bench", "scalar", *QUICK, "--l2", "cold"]) == 0
    out = capsys.readouterr().out
    assert "no comparison with PyTorch SDPA" in out and "build with CUDA" in out


def test_a_wrong_kernel_exits_with_1(gpu: RecordingCuda, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    path = tmp_path / "wrong.cu"
    path.write_text(
        "// weft: sizes B=1 HQ=1 HKV=1 SQ=4 SKV=4 D=4\n// weft: in q : f16[B, HQ, SQ, D] = normal\n"
        "// weft: in k, v : f16[B, HKV, SKV, D] = normal\n// weft: out o : f16[B, HQ, SQ, D]\n"
        "// weft: launch wrong(v, o) grid(B, HQ, SQ) block(D)\n#include <cuda_fp16.h>\n"
        'extern "C" __global__ void wrong(const half* v, half* o) {\n'
        "    const int at = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.x + threadIdx.x;\n    o[at] = v[at];\n}\n"
    )
    assert main(["bench", str(path), *QUICK, "--l2", "cold", "--against", "first"]) == 1
    assert "tight: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [(["--l2", "hot"], 2, "use cold, warm or both"), (["--against", "me"], 2, "use sdpa or first"),
     (["--backend", "xformers"], 2, "--backend xformers"),
     (["fp8_scalar"], 2, "different things"), (["--dtype", "f32", "wmma"], 5, "nothing selected")],
)  # fmt: skip
def test_usage(gpu: RecordingCuda, capsys: pytest.CaptureFixture[str], options: list[str], code: int, why: str) -> None:
    assert main(["bench", "scalar", *QUICK, *options]) == code
    assert why in capsys.readouterr().err
