"""Notes of ptxas about products and registers are kept with the Binary and shown with the launch they are about."""

from pathlib import Path

import pytest

from weft.core.records import AssemblerNote, Run
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.toolchain import binary_file
from weft.toolchain.cuda import compile_cuda
from weft.toolchain.ptxas_log import parse_notes

LOG = """ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : (C7509) Potential Performance Loss: wgmma.mma_async instructions are serialized due to calls in the function 'f' in line 282
ptxas info    : (C7517) wgmma.wait_group is injected in around line 67 by compiler to allow use of registers in function 'g'
ptxas info    : (C7517) wgmma.wait_group is injected in around line 67 by compiler to allow use of registers in function 'g'
ptxas info    : (C9001) something else
ptxas info    : Used 30 registers, used 0 barriers
"""  # noqa: E501
SOURCE = """
// weft: out     y : f32[512]
// weft: launch  touched(y) grid(1) block(128)
// weft: launch  clean(y) grid(1) block(128)
__device__ unsigned long long describe(const void* tile) {
    return (static_cast<unsigned>(__cvta_generic_to_shared(tile)) >> 4) | 8ull << 16 | 16ull << 32;
}
template <bool TOUCHED>
__device__ void multiply(float* y) {
    __shared__ alignas(128) unsigned short a[64 * 16], b[8 * 16];
    for (int i = threadIdx.x; i < 64 * 16; i += 128) a[i] = 0x3c00;
    b[threadIdx.x] = 0x3c00;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
    for (int k = 0; k < 4; k++) {
        if (TOUCHED && k == 2) d[0] = y[k];
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(describe(a)), "l"(describe(b)));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
    for (int i = 0; i < 4; i++) y[4 * threadIdx.x + i] = d[i];
}
__global__ void touched(float* y) { multiply<true>(y); }
__global__ void clean(float* y) { multiply<false>(y); }
"""


def test_notes_of_a_log() -> None:
    assert parse_notes(LOG) == (
        AssemblerNote("C7508", "'setmaxnreg' ignored; unable to determine register count at entry"),
        AssemblerNote("C7509", "wgmma.mma_async instructions are serialized due to calls", "f", 282),
        AssemblerNote("C7517", "wgmma.wait_group is injected by compiler to allow use of registers", "g", 67),
    )


def test_the_cache_keeps_them() -> None:
    binary = compile_cuda(SOURCE, name="k.cu", arch="sm_90a")
    assert {note.function for note in binary.notes} == {"_Z7touchedPf"}
    assert binary_file.unpack(binary_file.pack(binary)) == binary


@pytest.mark.parametrize(("kernel", "codes"), [("touched", {"P701", "S310"}), ("clean", set())])
def test_a_launch_has_the_notes_about_its_kernel(kernel: str, codes: set[str], tmp_path: Path) -> None:
    other = {"touched": "clean", "clean": "touched"}[kernel]
    file = tmp_path / "k.cu"
    file.write_text(SOURCE.replace(f"// weft: launch  {other}(y) grid(1) block(128)\n", ""))
    run = _run(file)
    assert {finding.code for finding in run.findings} == codes
    places = [finding.place for finding in run.findings if finding.code == "P701"]
    assert all(place is not None and place.file.endswith("k.cu") and 16 < place.line < 24 for place in places)


def _run(file: Path) -> Run:
    return load(file, arch="sm_90a").run(VirtualGPU("sm_90a")).run
