"""The facts read from a kernel's cubin are those that ptxas reported when it made it."""

import pytest

from tests.kernels.triton_kernels import matmul, vector_add
from weft.toolchain.cubin_facts import cubin_facts
from weft.toolchain.elf import CubinError
from weft.toolchain.triton_aot import compile_triton


@pytest.mark.parametrize("maxnreg", [None, 32])
def test_registers_and_frame_are_those_of_the_log(maxnreg: int | None) -> None:
    pointers = {name: "*fp16" for name in ("a_ptr", "b_ptr", "c_ptr")}
    binary = compile_triton(
        matmul,
        signature={**pointers, "M": "i32", "N": "i32", "K": "i32"},
        options={"maxnreg": maxnreg},
        constexprs={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 4},
        num_warps=4,
    )
    said = binary.resources["matmul"]
    facts = cubin_facts(binary.cubin, "matmul")
    assert (facts.registers, facts.local_bytes) == (said.registers, said.local_bytes)
    assert (said.local_bytes > 0) == (maxnreg == 32)


def test_a_missing_kernel_is_an_error() -> None:
    pointers = {name: "*fp32" for name in ("x_ptr", "y_ptr", "out_ptr")}
    binary = compile_triton(vector_add, signature={**pointers, "n": "i32"}, constexprs={"BLOCK": 128})
    with pytest.raises(CubinError, match="how many registers"):
        cubin_facts(binary.cubin, "other")
