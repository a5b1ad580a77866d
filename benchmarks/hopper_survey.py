"""Compiles the kinds of kernels that a survey of code for Hopper and Blackwell found, and runs them on the virtual GPU.

    python benchmarks/hopper_survey.py [--only sm_90|sm_120] [--match TEXT]

40 kinds for sm_90, 30 for sm_120: Triton with pointers and with tensor descriptors (compared with PyTorch on the CPU,
with every checker on), and CUDA with bulk copies or with the instructions of clusters, each of these a kind.
A kind has run if its result is right and there is no finding; it is wrong if its result is not right, or if there is a
finding; otherwise it is refused, with the reason. A line for each kind goes to stderr; the last line of stdout is one
JSON object.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import weft.triton
from tests.triton.descriptor_kernels import scaled_dot
from tests.triton.descriptor_workloads import DESCRIPTORS
from tests.triton.workloads import WORKLOADS, Workload
from weft.core.errors import WeftError
from weft.core.finding_codes import Severity
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for

GPUS = {"sm_90": "h100", "sm_120": "rtx5090"}
POINTERS = {
    "softmax": "fp32 fp16", "layer_norm": "fp32 fp16", "matmul": "fp32 fp16 bf16", "matmul_strided": "fp8",
    "matmul_split_k": "fp16", "matmul_dequantised": "fp16", "attention": "fp32 fp16 bf16", "attention_causal": "fp16",
    "attention_fp8": "fp8", "cross_entropy": "fp16",
}  # fmt: skip
NOT_SURVEYED = {"sm_90": (), "sm_120": ("layer_norm fp32", "attention fp32")}
CLUSTERS = {
    "map an address to a peer": (0, "mapa.shared::cluster.u32 r, mine, 1; ld.shared::cluster.u32 r, [r];"),
    "rank of an address": (0, "getctarank.shared::cluster.u32 r, peer;"),
    "arrive at a peer's mbarrier": (128, "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [signal];"),
    "barrier of a cluster": (0, "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"),
    "relaxed barrier of a cluster": (0, "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"),
    "load from a peer": (0, "ld.shared::cluster.u32 r, [peer];"),
    "atomic at a peer": (0, "atom.shared::cluster.add.u32 r, [peer], 0;"),
    "asynchronous store to a peer": (1,
        "@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512; ld.shared.u32 r, [mine];"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [peer], r, [signal];"),
    "multicast": (1,
        "@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512; mov.u32 r, %cluster_ctarank;"
        "setp.eq.u32 p, r, 0; and.pred p, p, first; mov.u16 h, 3;"
        "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [tile], [from], 512, [bar], h;"),
}  # fmt: skip
"""Kind → arrivals that complete a phase of each CTA's mbarrier (0: none is awaited), and what the threads of a cluster
of two CTAs execute, with the addresses of their words, of the peer's, and of both mbarriers."""
CLUSTER = """// weft: in      x : i32[1024] = arange
// weft: out     y : i32[1024]
// weft: launch  k(x, y) grid(2) block(128) cluster(2)
__global__ void k(const int* x, int* y) {
    __shared__ alignas(128) int tile[128];
    __shared__ unsigned long long bar;
    tile[threadIdx.x] = x[threadIdx.x];
    asm volatile("{ .reg .b32 r, bar, tile, mine, peer, signal; .reg .b64 from; .reg .pred p, first; .reg .b16 h;"
                 "mov.b32 bar, %0; mov.b32 tile, %1; mov.b64 from, %2; setp.eq.u32 first, %3, 0;"
                 "shl.b32 r, %3, 2; add.u32 mine, tile, r; mov.u32 r, %cluster_ctarank; xor.b32 r, r, 1;"
                 "mapa.shared::cluster.u32 peer, mine, r; mapa.shared::cluster.u32 signal, bar, r;"
                 "@first mbarrier.init.shared::cta.b64 [bar], ARRIVALS; fence.mbarrier_init.release.cluster;"
                 "fence.proxy.async.shared::cta; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
                 "STATEMENT WAIT"
                 "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; }"
                 ::"r"((unsigned)__cvta_generic_to_shared(&bar)), "r"((unsigned)__cvta_generic_to_shared(tile)), "l"(x),
                 "r"(threadIdx.x) : "memory");
    y[threadIdx.x] = tile[threadIdx.x];
    for (int i = 128 + threadIdx.x; i < 1024; i += 128) y[i] = x[i];
}
"""
AWAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W;"
HEAD = """// weft: in      x : i32[1024] = arange
// weft: out     y : i32[1024]
// weft: launch  k(x, y) grid(1) block(128)
__global__ void k(const int* x, int* y) {
    __shared__ alignas(128) int tile[1024];
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar), to = (unsigned)__cvta_generic_to_shared(tile);
"""
WAIT = 'asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra L; }" ::"r"(at));'
BULK = f"""{HEAD}
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
    __syncthreads();
    if (threadIdx.x == 0) {{
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 4096;" ::"r"(at));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 4096, [%2];"
                     ::"r"(to), "l"(x), "r"(at) : "memory");
    }}
    {WAIT}
    STORE
}}
"""
STORES = {
    "bulk copy and threads": "for (int i = threadIdx.x; i < 1024; i += 128) y[i] = tile[i];",
    "bulk copy there and back": """if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 4096;" ::"l"(y), "r"(to) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }""",
}


@dataclass(frozen=True)
class Kind:
    """A surveyed kind: its name, and what runs it and returns what is wrong, or nothing."""

    name: str
    run: Callable[[], str]


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--only", choices=list(GPUS))
    options.add_argument("--match", default="", help="run only kinds whose name has this text")
    chosen = options.parse_args()
    figures: dict[str, int] = {}
    wrong = 0
    for arch, gpu in GPUS.items():
        if chosen.only not in (None, arch):
            continue
        kinds = [kind for kind in _kinds(arch, gpu) if chosen.match in kind.name]
        ran = 0
        for kind in kinds:
            outcome = _outcome(kind)
            ran += outcome == "ran"
            wrong += outcome.startswith("wrong")
            print(f"{arch}\t{kind.name}\t{outcome}", file=sys.stderr, flush=True)
        figures |= {f"{arch}_ran": ran, f"{arch}_total": len(kinds)}
    print(json.dumps({**figures, "wrong": wrong}))
    return 1 if wrong else 0


def _outcome(kind: Kind) -> str:
    try:
        problem = kind.run()
    except weft.triton.KernelFindings as error:
        return f"wrong: {error}"
    except (WeftError, RuntimeError) as error:
        return f"refused: {str(error).splitlines()[0][:200]}"
    return f"wrong: {problem}" if problem else "ran"


def _kinds(arch: str, gpu: str) -> Iterator[Kind]:
    by_name = {workload.name: workload for workload in WORKLOADS}
    for name, types in POINTERS.items():
        for dtype in types.split():
            if f"{name} {dtype}" not in NOT_SURVEYED[arch]:
                yield _triton(gpu, by_name[name], dtype)
    for workload in DESCRIPTORS:
        for dtype in workload.types:
            if f"{workload.name} {dtype}" != "reduce fp32" and (workload.name != "gather" or arch != "sm_90"):
                yield _triton(gpu, workload, dtype)
    if arch == "sm_120":
        yield Kind("dot with scales, e4m3", lambda: _scaled(gpu, "e4m3", 1))
        yield Kind("dot with scales, e2m1", lambda: _scaled(gpu, "e2m1", 2))
        return
    for name, store in STORES.items():
        yield Kind(f"CUDA: {name}", lambda store=store: _cuda(gpu, BULK.replace("STORE", store)))  # type: ignore[misc]
    for name, given in CLUSTERS.items():
        yield Kind(f"CUDA: {name}", lambda given=given: _cuda(gpu, _cluster(*given)))  # type: ignore[misc]


def _triton(gpu: str, workload: Workload, dtype: str) -> Kind:
    def run() -> str:
        with weft.triton.on(gpu, check=True):
            case = workload.make(dtype, 1)
            return workload.wrong(case, case.run(), dtype)

    return Kind(f"Triton: {workload.name} {dtype}", run)


def _cluster(arrivals: int, statement: str) -> str:
    text = CLUSTER.replace("STATEMENT", statement).replace("WAIT", AWAIT if arrivals else "")
    text = text.replace("%cluster", "%%cluster").replace("ARRIVALS", str(max(arrivals, 1)))
    head, assembly, tail = re.split(r'(asm volatile.*?::"r")', text, maxsplit=1, flags=re.DOTALL)
    return head + assembly.replace(";", ";\\n") + tail  # a line is the place of one instruction


def _cuda(gpu: str, text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kind.cu"
        file.write_text(text)
        device = VirtualGPU(gpu)
        done = load(file, arch=device.arch).run(device, watch=watch_for(["all"]))
    found = [finding for finding in done.run.findings if finding.level is not Severity.INFO]
    if found:
        return str(found[0].message)
    return "" if (np.asarray(done.arrays["y"]) == np.arange(1024)).all() else "y differs from x"


def _scaled(gpu: str, kind: str, pack: int) -> str:
    """Compare a dot of random numbers and scales with float64; sums of f32 are truncated on the tensor cores."""
    k, rng = 128, np.random.default_rng(7)
    code = {"e4m3": ml_dtypes.float8_e4m3fn, "e2m1": ml_dtypes.float4_e2m1fn}[kind]
    x, y = (rng.standard_normal((rows, k)).astype(code) for rows in (128, 64))
    s, t = (rng.integers(120, 135, (rows, k // 32), np.uint8) for rows in (128, 64))
    a, b = (np.ascontiguousarray(values).view(np.uint8) for values in (x, y))
    if pack == 2:  # the first of two elements in the low half of a byte
        a, b = (codes[:, 0::2] | codes[:, 1::2] << 4 for codes in (a, b))
    c = torch.empty(128, 64)
    with weft.triton.on(gpu, check=True):
        scaled_dot[(1,)](*(torch.from_numpy(each.copy()) for each in (a, s, b, t)), c, k, kind, pack)
    left, right = (
        values.astype(np.float64) * 2.0 ** (scale.astype(int) - 127).repeat(32, 1) for values, scale in ((x, s), (y, t))
    )
    error = np.abs(c.numpy() - left @ right.T) / (np.abs(left) @ np.abs(right).T)
    return "" if error.max() < 2**-20 else f"an error of {error.max():.2e} of the sum of the terms' magnitudes"


if __name__ == "__main__":
    sys.exit(main())
