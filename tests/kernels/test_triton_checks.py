"""Triton kernels under all checkers and in other orders: no finding, the same bits; the rules behind their cases."""

import zlib
from dataclasses import replace

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from tests.kernels import expectations
from tests.kernels.case import Arrays, Case, Tolerance, Triton
from tests.kernels.test_kernels import _argument, _assert_close, _compiled, _poisoned, build
from tests.kernels.triton_cases import TRITON_CASES
from tests.kernels.triton_form_cases import bucket_sums
from tests.kernels.triton_fp8_cases import LARGEST, SCALES, SOFTMAX_SCALE, D, fp8_attention_head, fp8_inputs
from tests.kernels.triton_gemm_cases import RULES, tf32
from tests.kernels.triton_row_cases import layer_norm_gradient, philox
from weft.core.records import Binary, Finding
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.probes.tools import watch_for
from weft.vm.launch import PLAIN

ORDER_SHOWS = ("triton_layer_norm_gradient", "triton_atomic_statistics")
"""Float sums protected by a lock and tickets: another schedule may give other bits."""


def _run(case: Case, binary: Binary, *, threads: int, schedule: int, checked: bool) -> tuple[Arrays, list[Finding]]:
    arrays = case.inputs(np.random.default_rng(zlib.crc32(case.name.encode())))
    outputs = {name: _poisoned(buffer) for name, buffer in case.outputs.items()}
    arrays |= outputs
    gpu = weft.VirtualGPU(case.source.arch, threads=threads, schedule=schedule)
    launches = [
        Launch(
            binary,
            launch.entry,
            launch.grid,
            launch.block,
            [_argument(argument, arrays) for argument in launch.args],
            shared_bytes=binary.dynamic_shared_bytes,
        )
        for launch in case.launches
    ]
    watch = watch_for(["all"]) if checked else PLAIN
    run = gpu.run(launches, RunOptions(watch=watch, uninitialised=tuple(outputs.values()), goes_on=lambda run: True))
    return arrays, list(run.findings)


@pytest.mark.parametrize("case", one_in(2, TRITON_CASES), ids=lambda case: case.name)
def test_checkers_find_nothing_and_order_changes_no_bit(case: Case) -> None:
    """Outputs count as uninitialised until the kernel writes them."""
    binary = _compiled(case.name)
    in_order, _ = _run(case, binary, threads=1, schedule=0, checked=False)
    watched, findings = _run(case, binary, threads=1, schedule=0, checked=True)
    assert not findings, "\n".join(map(str, findings))
    runs = {"checkers": watched}
    for schedule in (0,) if case.name.startswith(ORDER_SHOWS) else (1, 2):
        runs[f"2 threads, schedule {schedule}"], findings = _run(
            case, binary, threads=2, schedule=schedule, checked=False
        )
        assert not findings
    for what, arrays in runs.items():
        for name, array in in_order.items():
            assert arrays[name].tobytes() == array.tobytes(), f"{name} differs with {what}"


def test_lanes_that_round_differently_and_write_one_word_are_information() -> None:
    """With contraction, lane i adds fma(a_i, b_i, a_j · b_j) and lane j the reverse; all lanes store their sum.

    They are replicas that Triton's own lowering makes: whichever wins is a sum that the program allows.
    """
    case = layer_norm_gradient(7, 144, 3, num_warps=8)
    assert isinstance(case.source, Triton)
    contracted, separate = (
        _run(case, build(replace(case.source, fmad=fmad)), threads=1, schedule=0, checked=True)[1]
        for fmad in (True, False)
    )
    assert {(finding.code, finding.severity) for finding in contracted} == {("R101", "info")}
    assert not separate


def test_a_lock_that_orders_nothing_is_a_race() -> None:
    """Without acquire and release, the next holder may not see what the last holder wrote."""
    case = layer_norm_gradient(9, 200, 2)
    right = build(case.source)
    relaxed = replace(right, ptx=right.ptx.replace(".acq_rel", ".relaxed"))
    _, findings = _run(case, relaxed, threads=1, schedule=0, checked=True)
    assert {"R101", "R102"} <= {finding.code for finding in findings}


def test_a_device_assertion_is_a_finding_with_its_line() -> None:
    case = bucket_sums(400, "fp16", debug=True)
    out_of_range = replace(case, inputs=lambda rng: case.inputs(rng) | {"bucket": np.full(400, 8, np.int32)})
    _, findings = _run(out_of_range, build(case.source), threads=1, schedule=0, checked=False)
    assert [finding.code for finding in findings] == ["X402"]
    assert "no such bucket" in str(findings[0]) and "triton_form_kernels.py" in str(findings[0])


def test_philox_gives_the_known_answers() -> None:
    """From Random123's kat_vectors: counter 0, key 0; the other rows there need counters that Triton does not use."""
    assert philox(0, np.zeros(1)).reshape(-1).tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("element", RULES)
def test_chains_are_products(element: str) -> None:
    """Every step cuts step + 1 terms and the sum, each by less than 2^-kept of twice the largest magnitude."""
    rule, rng = RULES[element], np.random.default_rng(5)
    a, b = (rng.integers(-16, 17, (9, 96)).astype(np.float32) / 8 for _ in range(2))
    if element != "tf32":
        exact = rule.product(a[:, :16], b[:, :16].T)
        assert (exact == a[:, :16].astype(np.float64) @ b[:, :16].T).all(), "64ths below 128 need 13 bits"
    else:
        a, b = (tf32(rng.standard_normal((9, 96)).astype(np.float32)) for _ in range(2))
    largest = np.abs(a).astype(np.float64) @ np.abs(b).T
    limit = 96 / rule.step * (rule.step + 2) * 2.0 ** (1 - rule.result) * largest
    assert (np.abs(rule.product(a, b.T) - a.astype(np.float64) @ b.T.astype(np.float64)) <= limit).all()


@pytest.mark.parametrize("causal", [False, True])
def test_fp8_attention_is_attention(causal: bool) -> None:
    """P is rounded to E4M3: 2^-4 of |V|; scores below 16 lose 4 steps · 18 terms at 2^-13 of at most 4, times |V|."""
    arrays = fp8_inputs(np.random.default_rng(6), 1, 96)
    q, k = (arrays[name][0].astype(np.float64) * SCALES[f"{name}_scale"] for name in ("q", "k"))
    v = arrays["v"][0].astype(np.float64) * SCALES["v_scale"]
    assert q.shape[1] == D
    expected = expectations.attention(q[None], k[None], v.T[None], scale=SOFTMAX_SCALE, causal=causal)
    got = fp8_attention_head(arrays["q"][0], arrays["k"][0], arrays["v"][0], causal=causal)
    limit = (2.0**-4 + 4 * 18 * 2.0**-13 * 4 + 6 * 18 * 2.0**-13 * 2) * LARGEST
    _assert_close("o", got[None], expected, Tolerance(limit, rms=2.0**-5 / 2))
