"""Images → PTX: text, fatbins, cubins; what the driver would choose among several; damaged bytes."""

import contextlib
import random
import shutil
import subprocess
from pathlib import Path

import pytest

import weft
from tests.driver.fatbins import CUBIN, LZ4, PLAIN, PTX, ZSTD, Member, fatbin
from weft.core.records import Binary
from weft.driver.images import Image, InvalidImage, NoCode, NoPtx, entries, read_image
from weft.ptx.module import Instruction
from weft.ptx.parse import parse

SOURCE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }'


@pytest.fixture(scope="module")
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, name="twice.cu", arch="sm_89")


def ptx(sm: int) -> bytes:
    return f".version 7.0\n.target sm_{sm}\n.address_size 64\n// for {sm}\n".encode()


def chosen(image: bytes, sm: int = 89) -> int:
    """Return the target of the PTX that is chosen."""
    return read_image(image, sm).target


def test_ptx_text_ends_at_its_nul() -> None:
    assert read_image(ptx(80) + b"\0 and what is behind it", 89).ptx == ptx(80).decode()


@pytest.mark.parametrize("packing", [PLAIN, LZ4, ZSTD])
def test_ptx_in_a_fatbin_is_unpacked(packing: int) -> None:
    text = ptx(89) * 50
    assert [each.data.rstrip(b"\0") for each in entries(fatbin(Member(PTX, 89, text, packing)))] == [text]
    assert read_image(fatbin(Member(PTX, 89, text, packing)), 89).ptx == text.decode()


def test_a_cubin_with_line_information_has_its_ptx(binary: Binary) -> None:
    image = read_image(binary.cubin, 89)
    assert image.cubin == binary.cubin
    assert parse(image.ptx).entries() == ("twice",) and image.target == 89
    lines, given = image.ptx.splitlines(), binary.ptx.splitlines()
    at = next(number for number, line in enumerate(given) if "st.global" in line)
    assert lines[at].split()[4:] == given[at].split()  # the numbers of lines are kept, behind `.loc file line column`


TWO_KERNELS = """
__device__ float half_of(const float* x, int i) {
    return x[i] * 0.5f;
}
extern "C" __global__ void first(float* x, const float* y, int n) {
    int i = threadIdx.x;
    __shared__ float kept[64];
    kept[i] = half_of(y, i);
    __syncthreads();
    if (i < n)
        x[i] = kept[63 - i];
}
extern "C" __global__ void second(float* x, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        atomicAdd(x + i % 4,
                  half_of(x, i));
}
"""


def test_lines_of_a_cubins_tables_are_those_of_the_compilers_own_ptx() -> None:
    """NVRTC's PTX has `.loc`; the PTX in the cubin has none, and gets it back from the two line tables."""
    binary = weft.compile_cuda(TWO_KERNELS, name="two.cu", arch="sm_89")
    given, read = parse(binary.ptx), parse(read_image(binary.cubin, 89).ptx)
    memory = ("ld.global", "st.global", "ld.shared", "st.shared", "atom", "red", "bar")
    compared = 0
    for name in ("first", "second"):
        ours, theirs = (
            [
                each
                for each in module.functions[name].body
                if isinstance(each, Instruction) and each.opcode.startswith(memory)
            ]
            for module in (read, given)
        )
        for one, other in zip(ours, theirs, strict=True):
            assert one.place is not None and other.place is not None
            assert (Path(one.place.file).name, one.place.line) == ("two.cu", other.place.line)
            compared += 1
    assert compared >= 7  # first: two loads, two stores, the barrier; second: a load, the atomic


def test_a_cubin_without_it_is_refused_with_the_cure(binary: Binary) -> None:
    bare = binary.cubin.replace(b".nv_debug_ptx_txt", b".nv_other_ptx_txt")
    for image in (bare, fatbin(Member(CUBIN, 89, bare))):
        with pytest.raises(NoPtx, match="-lineinfo"):
            read_image(image, 89)


def test_the_newest_ptx_that_the_gpu_can_compile_is_chosen() -> None:
    members = [Member(PTX, sm, ptx(sm), ZSTD) for sm in (75, 90, 86, 80)]
    assert chosen(fatbin(*members)) == 86
    assert chosen(fatbin(*members), sm=90) == 90


def test_the_cubin_of_this_gpu_comes_before_ptx(binary: Binary) -> None:
    members = [Member(PTX, 80, ptx(80)), Member(CUBIN, 89, binary.cubin, ZSTD), Member(CUBIN, 90, b"\x7fELF of sm_90")]
    assert chosen(fatbin(*members)) == 89
    assert chosen(fatbin(*members), sm=86) == 80


def test_ptx_for_the_same_target_has_lines_and_is_taken_with_the_cubins_facts(binary: Binary) -> None:
    image = read_image(fatbin(Member(CUBIN, 89, binary.cubin), Member(PTX, 89, ptx(89))), 89)
    assert image == Image(ptx(89).decode(), binary.cubin)


def test_newer_ptx_runs_only_in_place_of_machine_code_and_says_so(binary: Binary) -> None:
    bare = Member(CUBIN, 89, binary.cubin.replace(b".nv_debug_ptx_txt", b".nv_other_ptx_txt"))
    image = read_image(fatbin(bare, Member(PTX, 120, ptx(120))), 89)
    assert (
        image.target == 120 and image.note == "PTX for sm_120 ran in place of machine code for sm_89, which has no PTX"
    )
    with pytest.raises(NoCode, match="sm_120"):
        read_image(fatbin(Member(PTX, 120, ptx(120))), 89)
    with pytest.raises(NoCode, match="sm_120"):
        read_image(ptx(120), 89)


@pytest.mark.parametrize(
    "image", [b"", b"hello", b"\x7fELF", b"\x50\xed\x55\xba", fatbin(Member(PTX, 89, ptx(89)))[:40]]
)
def test_other_bytes_are_no_image(image: bytes) -> None:
    with pytest.raises(InvalidImage):
        read_image(image, 89)


def test_damaged_images_raise_nothing_else(binary: Binary) -> None:
    draw = random.Random(1)
    seeds = [
        binary.cubin,
        fatbin(Member(PTX, 89, ptx(89) * 20, LZ4), Member(CUBIN, 89, binary.cubin, ZSTD)),
        fatbin(Member(PTX, 80, ptx(80)), Member(PTX, 89, ptx(89), ZSTD)),
    ]
    for _ in range(600):
        image = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(min(len(image), 400)) if draw.random() < 0.7 else draw.randrange(len(image))
            image[at] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        if draw.random() < 0.2:
            del image[draw.randrange(len(image)) :]
        with contextlib.suppress(InvalidImage, NoCode, NoPtx):
            read_image(bytes(image), 89)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("mode", ["default", "speed", "none"])
def test_a_fatbin_of_nvcc(tmp_path: Path, mode: str) -> None:
    source, made = tmp_path / "twice.cu", tmp_path / "twice.fatbin"
    source.write_text(SOURCE)
    subprocess.run(
        ["nvcc", "-fatbin", "-arch=sm_89", f"--compress-mode={mode}", "-o", str(made), str(source)], check=True
    )
    image = read_image(made.read_bytes(), 89)
    assert parse(image.ptx).entries() == ("twice",) and image.cubin[:4] == b"\x7fELF"
