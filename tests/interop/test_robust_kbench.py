"""The committed robust-kbench task: current, right under PyTorch on the CPU, its kernel right on the virtual GPU."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import weft
from weft.attention.quantise import SimFp8
from weft.attention.reference import attention
from weft.attention.regimes import REGIMES
from weft.attention.shapes import SHAPES
from weft.core.errors import UsageError
from weft.interop.robust_kbench import DEFAULT_SHAPES, FILES, INIT_METHODS, make_task, write_task

Array = npt.NDArray[Any]

ROOT = Path(__file__).parents[2]
TASK = ROOT / "tasks" / "fp8_sdpa_stage_c_wmma"
COMMAND = f"weft export fp8_wmma --robust-kbench {TASK.relative_to(ROOT)}"

CONFIG = json.loads((TASK / "config_forward.json").read_text())
SIZES = CONFIG["multi_shared_configs"]
SEEDS = [row["seed"] for row in CONFIG["multi_input_configs"]]
METHODS = [row["init_method"] for row in CONFIG["multi_init_configs"]]
SHORT = [row for row in SIZES if row["SKV"] <= 512]
SMALL = [row for row in SIZES if row["SKV"] <= 100]

FP32, FP16 = 2.0**-24, 2.0**-11
"""Relative error of one rounding."""


def read(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("func_forward", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUNC = read(TASK / "func_forward.py")


def label(sizes: dict[str, int]) -> str:
    return "x".join(map(str, sizes.values()))


def case(sizes: dict[str, int], method: str, seed: int) -> tuple[Any, list[torch.Tensor]]:
    """Model and inputs, made as robust-kbench does: torch's seed is set to the same value before each."""
    torch.manual_seed(1234 + seed)
    inputs = FUNC.get_inputs(seed=seed, **sizes)
    torch.manual_seed(1234 + seed)
    return FUNC.Model(init_method=method, **sizes), inputs


def arguments(model: Any, inputs: list[torch.Tensor]) -> dict[str, Array]:
    """Return what the model passes to a kernel, by the names of the rung's arrays."""
    seen: list[tuple[torch.Tensor, ...]] = []
    model(*inputs, fn=lambda *args: seen.append(args))
    names = ("q_code", "k_code", "v_code", "q_scale", "k_scale", "v_scale")
    return {name: x.numpy() for name, x in zip(names, seen[0], strict=True)}


def decoded(given: dict[str, Array]) -> list[Array]:
    return [SimFp8().decode(given[f"{x}_code"], given[f"{x}_scale"]).astype(np.float64) for x in "qkv"]


def close(o: Array, expected: Array, bound: Array) -> bool:
    """False on NaN."""
    return bool((np.abs(o.astype(np.float64) - expected) <= bound).all())


def error_bound(q: Array, k: Array, v: Array, o: Array, *, sums: float, rounded: int) -> Array:
    """Return the allowed error of an implementation.

    A score is a sum of D products and off by δ = `sums` · (D + 16) · Σ|q||k| · scale (the 16: decoding, the scale, the
    exponential's argument and its own error), so a weight by expm1(2δ). l and P·V add `SKV` roundings each. `rounded`
    counts further roundings to fp16: of P, which has an absolute part below fp16's range, and of O.
    """
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    largest = (np.abs(q) @ np.abs(k).swapaxes(2, 3)).max(axis=(2, 3)) / np.sqrt(q.shape[3])
    delta = sums * (q.shape[3] + 16) * largest
    keys = k.shape[2]
    weights = np.expm1(2 * delta) + 2 * (keys + 8) * sums + (rounded - 1) * (FP16 + keys * 2.0**-25)
    return (weights * np.abs(v).max(axis=(2, 3)))[..., None, None] + np.abs(o) * FP16 + 2.0**-25


def test_the_committed_files_match_the_command(tmp_path: Path) -> None:
    write_task(make_task("fp8_wmma"), tmp_path / "task")
    for name in FILES:
        assert (TASK / name).read_text() == (tmp_path / "task" / name).read_text(), f"{name} is stale; run: {COMMAND}"
    assert sorted(path.name for path in TASK.iterdir() if path.name != "__pycache__") == sorted(FILES)


def test_the_config_has_the_six_lists_and_wefts_shapes() -> None:
    keys = {f"{many}_{kind}_configs" for many in ("single", "multi") for kind in ("input", "init", "shared")}
    assert set(CONFIG) == keys
    expected = [SHAPES[name] for name in DEFAULT_SHAPES]
    assert [tuple(row.values()) for row in SIZES] == [(s.b, s.hq, s.hkv, s.sq, s.skv, s.d) for s in expected]
    assert len(SIZES) >= 5 and len(SEEDS) >= 3 and len(METHODS) >= 5
    assert CONFIG["single_shared_configs"] == [dict(B=1, HQ=8, HKV=8, SQ=512, SKV=512, D=64)]  # mission
    for kind in ("input", "init"):
        assert CONFIG[f"single_{kind}_configs"] == CONFIG[f"multi_{kind}_configs"][:1]


def test_the_init_methods_are_regimes_of_weft() -> None:
    assert tuple(METHODS) == INIT_METHODS == tuple(FUNC.INIT_METHODS)
    assert set(METHODS) <= set(REGIMES)
    with pytest.raises(ValueError, match="use one of unit_normal"):
        FUNC.Model(init_method="random", **SMALL[0])


def test_it_needs_only_pytorch() -> None:
    """In a Python process without Weft."""
    program = (
        "import sys; sys.modules['weft'] = None\n"
        "import func_forward as f\n"
        f"sizes = {SMALL[0]}\n"
        "o = f.Model(init_method='v_offset', **sizes)(*f.get_inputs(seed=1, **sizes))\n"
        "print(tuple(o.shape), o.dtype)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=TASK, capture_output=True, text=True, check=True)
    assert (
        done.stdout.strip() == f"({SMALL[0]['B']}, {SMALL[0]['HQ']}, {SMALL[0]['SQ']}, {SMALL[0]['D']}) torch.float16"
    )


def test_robust_kbench_finds_its_parts() -> None:
    """It extracts `forward_fn` and its description from the text, as here."""
    text = (TASK / "func_forward.py").read_text()
    start = text.find('"""') + 3
    description = text[start : text.find("Args:", start)]
    assert "softmax(Q Kᵀ / sqrt(D)) V" in description
    begin = text.find("def forward_fn")
    cut = text[begin : min(text.find("\ndef ", begin + 1), text.find("\nclass ", begin + 1))]
    scope: dict[str, Any] = {"torch": torch, "scaled_dot_product_attention": FUNC.scaled_dot_product_attention}
    exec(cut, scope)
    model, inputs = case(SMALL[0], "unit_normal", 0)
    assert torch.equal(model(*inputs, fn=scope["forward_fn"]), model(*inputs))
    assert len(FUNC.input_names) == len(inputs)


@pytest.mark.parametrize("method", METHODS)
def test_its_encoder_gives_wefts_codes(method: str) -> None:
    for sizes in SHORT:
        for seed in SEEDS:
            stream = torch.Generator().manual_seed(seed)
            shape = (sizes["B"], sizes["HKV"], sizes["SKV"], sizes["D"])
            for x in FUNC.INIT_METHODS[method](stream, shape):
                codes, scale = FUNC.encode(x)
                ours = SimFp8().encode(x.numpy())
                np.testing.assert_array_equal(codes.numpy(), ours.codes)
                np.testing.assert_array_equal(scale.numpy(), ours.scale)


def test_its_encoder_rounds_ties_as_weft_does() -> None:
    """Halves between two codes: absmax 127 steps, then ±0.5, ±1.5, … steps; and a head of next to nothing."""
    steps = np.concatenate([[127.0, -127.0], np.arange(-126.5, 127.0)])
    x = np.stack([steps, steps * 3e-9]).astype(np.float32).reshape(1, 2, -1, 1)
    codes, scale = FUNC.encode(torch.from_numpy(x))
    ours = SimFp8().encode(x)
    np.testing.assert_array_equal(codes.numpy(), ours.codes)
    np.testing.assert_array_equal(scale.numpy(), ours.scale)
    assert (codes.numpy()[0, 1] == 128).all() and scale[0, 1] == 1
    with pytest.raises(ValueError, match="no code"):
        FUNC.encode(torch.full((1, 1, 1, 1), float("nan")))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sizes", SHORT, ids=label)
def test_the_reference_agrees_with_wefts(sizes: dict[str, int], method: str) -> None:
    for seed in SEEDS:
        model, inputs = case(sizes, method, seed)
        q, k, v = decoded(arguments(model, inputs))
        gold = attention(q, k, v).o
        o = model(*inputs)
        assert o.dtype == torch.float16
        assert close(o.numpy(), gold, error_bound(q, k, v, gold, sums=FP32, rounded=1))


def test_init_methods_match_their_descriptions() -> None:
    sizes = dict(B=1, HQ=2, HKV=2, SQ=128, SKV=256, D=64)
    std: dict[str, float] = {}
    for method in METHODS:
        model, inputs = case(sizes, method, 0)
        q, k, v = decoded(arguments(model, inputs))
        std[method] = float((q @ k.swapaxes(2, 3) / 8).std())
        if method == "v_offset":
            assert abs(v.mean() - 4) < 0.05
        if method in ("zeros", "all_equal"):
            o = model(*inputs)
            assert o.min() == o.max() and (o[0, 0, 0, 0] == 0) == (method == "zeros")
        if method == "outlier_channels":
            for x in (k, v):
                size = np.abs(x).max(axis=(0, 1, 2))
                assert (size > 10 * np.median(size)).sum() == sizes["D"] // 16
                assert abs((x * x).mean() - 1) < 0.1
    for method, expected in (("unit_normal", 1), ("outlier_channels", 1), ("logits_8", 8), ("logits_32", 32)):
        assert abs(std[method] / expected - 1) < 0.1


def test_queries_are_not_the_keys_and_follow_both_seeds() -> None:
    """The benchmark sets the same torch seed for model and inputs, and its filters drop a task that ignores it."""
    sizes = CONFIG["single_shared_configs"][0]
    model, inputs = case(sizes, "unit_normal", 0)
    assert abs(np.corrcoef(inputs[0].numpy().ravel(), model.k_code.numpy().ravel())[0, 1]) < 0.01
    torch.manual_seed(7)
    one, other, again = (FUNC.get_inputs(seed=seed, **sizes)[0] for seed in (0, 1, 0))
    assert torch.equal(one, again) and not torch.equal(one, other)
    torch.manual_seed(8)
    assert not torch.equal(one, FUNC.get_inputs(seed=0, **sizes)[0])


def test_it_passes_the_filters_of_robust_kbench() -> None:
    """Output range, and spread over seeds, over seeds of the inputs only, and along every axis: each 0.01 at least."""
    sizes = CONFIG["single_shared_configs"][0]
    outputs, fixed = [], case(sizes, "unit_normal", 0)[0]
    for seed in SEEDS:
        model, inputs = case(sizes, "unit_normal", seed)
        outputs.append((model(*inputs).float(), fixed(*inputs).float()))
    both, inputs_only = (torch.stack(list(column)) for column in zip(*outputs, strict=True))
    assert (both.abs() > 0.01).any()
    assert (both.std(dim=0) > 0.01).any() and (inputs_only.std(dim=0) > 0.01).any()
    for axis in (axis for axis, size in enumerate(both.shape) if size > 1):
        assert (both.std(dim=axis) > 0.01).any()


@pytest.fixture(scope="module")
def exported() -> Callable[[dict[str, Array]], Array]:
    """The kernel in the committed forward.cu, on the virtual GPU: its device code, up to the host code."""
    text = (TASK / "forward.cu").read_text()
    device = text[text.index("#define ELEMENT") : text.index("// ---", text.index("__global__"))]
    binaries: dict[int, Any] = {}

    def run(given: dict[str, Array]) -> Array:
        b, hq, sq, d = given["q_code"].shape
        hkv, skv = given["k_code"].shape[1:3]
        entry = f"fp8_wmma_attention<{d}>"
        if d not in binaries:
            # Compiled as robust-kbench does.
            binaries[d] = weft.compile_cuda(device, name="forward.cu", entries=[entry], options=["--use_fast_math"])
        o, lse = np.full((b, hq, sq, d), np.nan, np.float16), np.full((b, hq, sq), np.nan, np.float32)
        scale = np.float32(1 / np.sqrt(d))
        args = [*given.values(), o, lse, np.int32(hkv), np.int32(sq), np.int32(skv), scale]
        outcome = weft.VirtualGPU().launch(binaries[d], entry, (-(-sq // 32), hq, b), 128, args)
        assert outcome.clean, "\n".join(map(str, outcome.findings))
        return o

    return run


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sizes", SMALL, ids=label)
def test_the_kernel_agrees(sizes: dict[str, int], method: str, exported: Callable[[dict[str, Array]], Array]) -> None:
    """With float64 attention on the fp16 numbers that the kernel makes of its codes, and with the task's own reference.

    Tensor cores truncate: a sum is off by 2^-23 where a rounded one is off by 2^-24, and the terms of a step once more.
    """
    model, inputs = case(sizes, method, SEEDS[-1])
    given = arguments(model, inputs)
    o = exported(given)
    q, k, v = (x.astype(np.float16).astype(np.float64) for x in decoded(given))
    gold = attention(q, k, v).o
    assert close(o, gold, error_bound(q, k, v, gold, sums=4 * FP32, rounded=2))
    tolerance = dict(atol=5e-2, rtol=5e-2)  # the gate of the logs
    assert torch.allclose(model(*inputs), torch.from_numpy(o), **tolerance)


def wrong_attention(
    *given: torch.Tensor,
    midpoint: float = 128.0,
    v_midpoint: float = 128.0,
    gain: float = 1.0,
    l_gain: float = 1.0,
    shifted: bool = True,
) -> torch.Tensor:
    """The formula with one error; with the defaults there is none."""
    codes, scales = given[:3], given[3:]
    middles = (midpoint, midpoint, v_midpoint)
    q, k, v = (
        (code.float() - middle) * (scale * (448 / 127))[..., None, None]
        for code, scale, middle in zip(codes, scales, middles, strict=True)
    )
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(2, 3) * (gain / q.shape[3] ** 0.5)
    p = torch.exp(scores - (scores.amax(dim=-1, keepdim=True) if shifted else 0))
    return (p @ v / (p.sum(dim=-1, keepdim=True) * l_gain)).half()


@pytest.mark.parametrize(
    "wrong, rejected",
    [
        ({}, set()),
        ({"gain": 0.0}, {"unit_normal", "logits_8", "logits_32", "v_offset", "outlier_channels"}),
        ({"gain": 0.125}, {"unit_normal", "logits_8", "logits_32", "v_offset", "outlier_channels"}),
        ({"l_gain": 1.48}, set(METHODS) - {"zeros"}),
        ({"shifted": False}, {"logits_32"}),
        ({"midpoint": 127.5}, {"logits_8", "logits_32"}),
        ({"v_midpoint": 127.5}, {"outlier_channels", "zeros"}),
        ({"l_gain": 1.01}, set()),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_which_init_method_rejects_which_error(wrong: dict[str, Any], rejected: set[str]) -> None:
    """The table in docs/howto/robust_kbench.md: what the tolerance of the logs rejects, and what it accepts."""
    found = set()
    for method in METHODS:
        for sizes in SMALL:
            model, inputs = case(sizes, method, 0)
            o = model(*inputs, fn=lambda *given: wrong_attention(*given, **wrong))
            if not torch.allclose(model(*inputs), o, atol=5e-2, rtol=5e-2):
                found.add(method)
    assert found == rejected


def test_other_levers_and_types(tmp_path: Path) -> None:
    files = make_task("fp8_wmma", shapes=("small",), seeds=1, defines={"DEQUANT": "direct", "ELEMENT": "float"})
    assert "#define DEQUANT direct" in files["forward.cu"]
    assert "torch::empty({B, HQ, SQ, D}, q_code.options().dtype(torch::kFloat))" in files["forward.cu"]
    write_task(files, tmp_path)
    func = read(tmp_path / "func_forward.py")
    sizes = json.loads(files["config_forward.json"])["multi_shared_configs"][0]
    assert func.Model(**sizes)(*func.get_inputs(**sizes)).dtype == torch.float32


@pytest.mark.parametrize(
    "rung, options, message",
    [
        ("qk_dot", {}, "qk_dot computes qk_dot; robust-kbench tasks are made from scalar, fa1"),
        ("fa_triton", {}, "fa_triton is a Triton kernel; robust-kbench tasks are made from"),
        ("fp8", {}, "there is no rung 'fp8'"),
        ("fp8_wmma", {"shapes": ("huge",)}, "unknown shape 'huge'; `weft list` has the names"),
        ("fp8_wmma", {"shapes": ()}, "at least one shape"),
        ("fp8_wmma", {"defines": {"CAUSAL": "1"}}, "no mask"),
        ("fp8_wmma", {"defines": {"ENCODING": "1"}}, "sim-FP8 codes"),
        ("fp8_wmma", {"defines": {"BLOCK": "64"}}, "fp8_wmma has no such define; it has ELEMENT, DEQUANT"),
    ],
)
def test_misuse_is_refused(rung: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_task(rung, **options)


def test_bfloat16_output() -> None:
    files = make_task("fp8_scalar", shapes=("small",), defines={"ELEMENT": "__nv_bfloat16"})
    assert "static_cast<__nv_bfloat16*>(o.mutable_data_ptr())" in files["forward.cu"]
    assert ".to(torch.bfloat16)" in files["func_forward.py"]
