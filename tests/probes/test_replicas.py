"""Threads that store one element of a Triton tensor: a note, even if their copies differ by a rounding error.

The kernel is Triton's code for `tl.store(y, tl.sum(x * w))` with 64 elements and 128 threads: two warps hold each
half, and lanes i and i ^ 16 hold sums of which different products were rounded.
"""

import numpy as np
import pytest

import weft
from weft.core.finding_codes import Severity
from weft.core.records import Finding
from weft.probes import RaceCheck
from weft.toolchain.ptx_file import ptx_binary

SUM = """
.version 8.0
.target sm_89
.address_size 64
.visible .entry total(.param .u64 x, .param .u64 w, .param .u64 y)
{
    .reg .pred %p<3>;
    .reg .b32 %r<30>;
    .reg .b64 %rd<9>;
    .shared .align 4 .b8 parts[8];
    ld.param.b64 %rd1, [x];
    ld.param.b64 %rd2, [w];
    ld.param.b64 %rd3, [y];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 63;
    mul.wide.u32 %rd4, %r2, 4;
    add.s64 %rd5, %rd1, %rd4;
    add.s64 %rd6, %rd2, %rd4;
    .loc 1 7 0
    ld.global.b32 %r3, [%rd5];
    ld.global.b32 %r4, [%rd6];
    mov.u32 %r23, ROUNDS;
    mov.u32 %r22, parts;
    shr.u32 %r19, %r1, 3;
    and.b32 %r20, %r19, 4;
    add.s32 %r21, %r22, %r20;
again:
    mul.f32 %r8, %r3, %r4;
    shfl.sync.bfly.b32 %r9, %r8, 16, 31, -1;
    fma.rn.f32 %r10, %r3, %r4, %r9;
    shfl.sync.bfly.b32 %r11, %r10, 8, 31, -1;
    add.f32 %r12, %r10, %r11;
    shfl.sync.bfly.b32 %r13, %r12, 4, 31, -1;
    add.f32 %r14, %r12, %r13;
    shfl.sync.bfly.b32 %r15, %r14, 2, 31, -1;
    add.f32 %r16, %r14, %r15;
    shfl.sync.bfly.b32 %r17, %r16, 1, 31, -1;
    add.f32 %r18, %r16, %r17;
    st.shared.b32 [%r21], %r18;
    add.f32 %r3, %r3, %r3;
    sub.s32 %r23, %r23, 1;
    setp.ne.s32 %p2, %r23, 0;
    @%p2 bra again;
    bar.sync 0;
    ld.shared.b32 %r26, [parts];
    ld.shared.b32 %r27, [parts+4];
    add.f32 %r28, %r26, %r27;
    setp.eq.b32 %p1, %r1, 0;
    @%p1 st.global.b32 [%rd3], %r28;
    ret;
}
    .file 1 "FILE"
"""


def launched(file: str, rounds: int) -> tuple[tuple[Finding, ...], float]:
    text = SUM.replace("FILE", file).replace("ROUNDS", str(rounds))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 64), np.float32)
    y = np.zeros(1, np.float32)
    run = weft.VirtualGPU().launch(
        ptx_binary(text, "total.ptx", arch="sm_89", entries=["total"]), "total", 1, 128, [x, w, y], watch=RaceCheck()
    )
    return run.findings, float(y[0]) - float(np.dot(x.astype(float), w.astype(float)))


def test_replicas_of_a_triton_tensor_are_a_note() -> None:
    found, error = launched("sum.py", 1)
    assert {(each.code, each.level) for each in found} == {("R101", Severity.INFO)}
    assert all("except for rounding" in each.message and each.cure.startswith("none needed") for each in found)
    assert abs(error) < 1e-5


def test_in_cuda_threads_choose_what_they_store() -> None:
    found, _ = launched("sum.cu", 1)
    assert {each.level for each in found} == {Severity.ERROR}


@pytest.mark.parametrize("file", ["sum.py", "sum.cu"])
def test_two_iterations_without_a_barrier_are_a_race(file: str) -> None:
    found, _ = launched(file, 2)
    assert Severity.ERROR in {each.level for each in found}
