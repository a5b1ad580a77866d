"""The backward pass: formula against autograd, the gates, the rungs, and bugs that are diagnosed by name."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.in_turn import one_in
from weft.attention.backward import BackwardCall, backward16
from weft.attention.contract import Contract
from weft.attention.reference import attention
from weft.attention.regimes import make
from weft.attention.shapes import SHAPES, Shape
from weft.core.status import Status
from weft.diagnose.diagnose import diagnose
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.select import Choice, find_candidate
from weft.kernels import RUNGS
from weft.tasks.sdpa_backward import SDPA_BACKWARD
from weft.tasks.task import Declared, Workload

SHAPE = Shape("t", 2, 4, 2, 21, 33, 16)


@pytest.mark.parametrize(
    "contract", [Contract(), Contract(left=9, soft_cap=2.0, bias="alibi", sinks=True)], ids=["", "all"]
)
@pytest.mark.parametrize("mask", [None, "top_left", "bottom_right"])
def test_the_formula_agrees_with_autograd(contract: Contract, mask: str | None) -> None:
    shape = replace(SHAPE, sq=40) if mask == "bottom_right" else SHAPE  # rows that see no key
    q, k, v = (x.astype(np.float64) for x in make("unit_normal", shape, "f32", 0))
    terms = contract.draw_terms(shape, 0)
    seen, logits = contract.mask(shape, mask), contract.logits(shape, mask, terms)
    o, lse = attention(q, k, v, mask=seen, logits=logits)
    do = np.random.default_rng(1).standard_normal(shape.q)
    found = BackwardCall(q, k, v, o, lse, do, mask=seen, logits=logits).run()

    tensors = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
    tq, tk, tv = tensors[0], *(x.repeat_interleave(shape.group, 1) for x in tensors[1:])
    s = tq @ tk.transpose(2, 3) / shape.d**0.5
    if contract.soft_cap is not None:
        s = torch.tanh(s / contract.soft_cap) * contract.soft_cap
    if logits.bias is not None:
        s = s + torch.from_numpy(logits.bias)
    s = torch.where(torch.from_numpy(seen), s, torch.tensor(-1e30, dtype=torch.float64))
    sink = torch.from_numpy(terms["sinks"].astype(np.float64)) if contract.sinks else torch.full((shape.hq,), -1e15)
    s = torch.cat([s, sink[None, :, None, None].expand(shape.b, -1, shape.sq, 1)], 3)
    (torch.softmax(s, 3)[..., :-1] @ tv).backward(torch.from_numpy(do))
    for name, tensor in zip(("dq", "dk", "dv"), tensors, strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(getattr(found, name), tensor.grad.numpy(), atol=1e-11)


def test_the_16_bit_reference_is_as_far_from_exact_as_pytorch() -> None:
    q, k, v = make("unit_normal", SHAPE, "f16", 0)
    mask = np.ones((SHAPE.sq, SHAPE.skv), bool)
    do = np.random.default_rng(1).standard_normal(SHAPE.q).astype(np.float16)
    o, lse = attention(q, k, v)
    call = BackwardCall(q, k, v, o, lse, do, mask=mask)
    exact, ours = call.run(), backward16(call, "f16")
    tensors = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
    tq, tk, tv = tensors[0], *(x.repeat_interleave(SHAPE.group, 1) for x in tensors[1:])
    (torch.softmax((tq / SHAPE.d**0.5) @ tk.transpose(2, 3), 3) @ tv).backward(torch.from_numpy(do))
    for name, tensor in zip(("dq", "dk", "dv"), tensors, strict=True):
        assert tensor.grad is not None
        theirs = np.abs(tensor.grad.numpy() - getattr(exact, name))
        mine = np.abs(ours[name] - getattr(exact, name))
        assert 0.6 < mine.max() / theirs.max() < 1.6 and 0.8 < mine.mean() / theirs.mean() < 1.25


ONE_KEY = Workload(Shape("one_key", 1, 2, 1, 1, 4, 64), "f16", "top_left", "logits_32", 2)
"""The query sees one key: P = 1, dP = delta, and dQ and dK are exactly 0."""


@pytest.mark.parametrize("rung", ["backward", "backward_mma"])
def test_a_rung_passes_where_dp_and_delta_cancel(rung: str) -> None:
    assert check(Candidate(RUNGS[rung].path, rung), SDPA_BACKWARD, ONE_KEY).status is Status.PASSED


def test_a_lost_delta_fails_where_dp_and_delta_cancel() -> None:
    problem = SDPA_BACKWARD.draw(ONE_KEY)
    (mutant,) = (each for each in SDPA_BACKWARD.mutants if each.name == "delta_lost")
    gates = SDPA_BACKWARD.judge(problem, mutant.run(problem), Declared()).gates
    assert {gate.gate.split()[0] for gate in gates if not gate.passed} == {"tight", "flash"}


EQUAL_WEIGHTS = Workload(SHAPES["d80"], "bf16", "none", "denormals", 0)
"""All scores are almost 0: every weight is 1/72, which rounds to the same side everywhere."""


@pytest.mark.parametrize("name", ["float32", "short_p", "short_p_ds"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_equal_weights_that_are_rounded_are_no_bias(name: str, dtype: str) -> None:
    problem = SDPA_BACKWARD.draw(replace(EQUAL_WEIGHTS, dtype=dtype))
    assert SDPA_BACKWARD.judge(problem, SDPA_BACKWARD.right[name](problem), Declared()).passed


CANCELLED = Workload(SHAPES["group_3"], "f32", "bottom_right", "all_equal", 0)
"""All keys and values are equal: dP = delta, and dQ is the difference of equal sums."""


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_gradient_that_is_rounded_has_a_bias_gate(dtype: str) -> None:
    problem = SDPA_BACKWARD.draw(Workload(SHAPES["small"], dtype, "none", "unit_normal", 0))
    gates = SDPA_BACKWARD.judge(problem, SDPA_BACKWARD.right["float32"](problem), Declared()).gates
    limits = {gate.gate: gate.limit for gate in gates if gate.gate.startswith("bias")}
    assert limits.keys() == {"bias dq", "bias dk", "bias dv"} and max(limits.values()) < 0.4, "half an ulp is detected"


ONE_SIDE = (
    ("backward", Workload(SHAPES["d96"], "f32", "none", "one_hot", 2)),
    ("backward", Workload(SHAPES["decode_gqa"], "f32", "none", "all_equal", 1)),
    ("backward_mma", Workload(SHAPES["decode_gqa"], "f16", "bottom_right", "offsets", 2)),
)
"""An error of a float32 score, or of the one delta, moves all elements to the same side, by up to 60 float32 ulps."""


@pytest.mark.parametrize(("rung", "workload"), ONE_SIDE, ids=[str(row[1].regime) for row in ONE_SIDE])
def test_errors_in_float32_that_have_one_sign_are_no_bias(rung: str, workload: Workload) -> None:
    assert check(Candidate(RUNGS[rung].path, rung), SDPA_BACKWARD, workload).status is Status.PASSED


def test_cancelled_sums_are_no_bias() -> None:
    assert check(Candidate(RUNGS["backward"].path, "backward"), SDPA_BACKWARD, CANCELLED).status is Status.PASSED


def test_a_truncated_dv_fails_with_equal_weights() -> None:
    problem = SDPA_BACKWARD.draw(EQUAL_WEIGHTS)
    (mutant,) = (each for each in SDPA_BACKWARD.mutants if each.name == "dv_truncated")
    gates = SDPA_BACKWARD.judge(problem, mutant.run(problem), Declared()).gates
    assert [gate.gate for gate in gates if not gate.passed] == ["bias dv"]


BUGS = {
    "delta_lost": ("delta[row] = sum;", "delta[row] = 0.0f;"),
    "delta_of_do": ("dot<D>(o_row, do_row)", "dot<D>(do_row, do_row)"),
    "dq_no_scale": ("sum.store(dq + row * D, scale)", "sum.store(dq + row * D, 1.0f)"),
    "dk_no_scale": ("dk_sum.store(dk + kv_row, scale)", "dk_sum.store(dk + kv_row, 1.0f)"),
    "dv_scaled": ("dv_sum.store(dv + kv_row, 1.0f)", "dv_sum.store(dv + kv_row, scale)"),
    "dk_of_do": ("dk_sum.add(ds, q_row)", "dk_sum.add(ds, do_row)"),
    "dq_of_v": ("sum.add(ds, k_row)", "sum.add(ds, v_row)"),
    "mask_forgotten": ("end = visible_keys(query, SQ, SKV)", "end = SKV"),
    "causal_sees_next": ("min(SKV, diagonal + 1)", "min(SKV, diagonal + 2)"),
    "ds_without_p": ("ds = p * (dot<D>(do_row, v_row) - own_delta)", "ds = dot<D>(do_row, v_row) - own_delta"),
    "delta_added": ("(dot<D>(do_row, v_row) - delta[row])", "(dot<D>(do_row, v_row) + delta[row])"),
    "p_base_2": (
        "p = expf(dot<D>(q_row, k_row) * scale - lse[row])",
        "p = exp2f(dot<D>(q_row, k_row) * scale - lse[row])",
    ),
}
"""Edits of the rung `backward`, by the name that the diagnosis must give."""

MMA_BUGS = {
    "mask_forgotten": ("key < visible_keys(query, SQ, SKV) ? p", "key < SKV ? p"),
    "delta_lost": ("delta[row] = sum;", "delta[row] = 0.0f;"),
    "dk_of_do": ("add_rows<D, BLOCK_M>(dk_sum, dp, sQ)", "add_rows<D, BLOCK_M>(dk_sum, dp, sDO)"),
}
"""The same of the rung `backward_mma`."""


@pytest.mark.parametrize(
    ("rung", "name", "edit"),
    one_in(4, (("backward", *each) for each in BUGS.items()), several=True)
    + one_in(3, (("backward_mma", *each) for each in MMA_BUGS.items()), several=True),
)
def test_a_bug_is_named(rung: str, name: str, edit: tuple[str, str], tmp_path: Path) -> None:
    text, (old, new) = RUNGS[rung].path.read_text(), edit
    assert text.count(old) == 1
    path = tmp_path / "kernel.cu"
    path.write_text(text.replace(old, new))
    candidate, supports = find_candidate(str(path), task="sdpa_backward")
    choice = Choice(
        shapes=("split_64",), regimes=("unit_normal",), masks=("none", "top_left"), dtypes=("f16",), seeds=(0,)
    )
    found = diagnose(candidate, supports, choice, shrink=False)
    assert [each.name for each in found.signatures[:1]] == ["wrong_implementation"]
    assert f"(`{name}`)" in found.signatures[0].message
    assert found.signatures[0].stage in SDPA_BACKWARD.stages


def test_a_race_on_dq_is_a_finding(tmp_path: Path) -> None:
    text = RUNGS["backward"].path.read_text()
    path = tmp_path / "kernel.cu"
    path.write_text(text.replace("sum.store(dq + row * D, scale)", "sum.store(dq + (row - query % 2) * D, scale)"))
    verdict = check(Candidate(path), SDPA_BACKWARD, replace(SDPA_BACKWARD.certified_on[0], shape=SHAPES["small"]))
    assert verdict.status is Status.UNSAFE and any(each.code.startswith("R") for each in verdict.findings)


@pytest.mark.parametrize(
    ("rung", "shape"),
    [("backward", "few_keys"), ("backward_mma", "gqa_4_ragged"), ("backward_triton", "gqa_4_ragged")],
)
def test_a_rung_passes_with_all_checkers(rung: str, shape: str) -> None:
    work = Workload(SHAPES[shape], "f16", "bottom_right", "unit_normal", 0)
    assert check(Candidate(RUNGS[rung].path, rung), SDPA_BACKWARD, work).status is Status.PASSED
