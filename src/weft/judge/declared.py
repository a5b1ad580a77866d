"""Which arithmetic a kernel declares, for the tight gate."""

from collections.abc import Mapping

from weft.attention.emulate import Algorithm

_TENSOR_CORE = frozenset(["wmma_qk", "wmma", "fp8_wmma"])
_ROUNDS_P = frozenset(["wmma", "fp8_wmma"])


def algorithm_of(rung: str | None, dtype: str, macros: Mapping[str, str]) -> Algorithm:
    """The algorithm of a rung of the ladder; of any other kernel what a 16-bit kernel may do at most.

    A kernel that is not on the ladder may or may not round P to its element type: the emulation rounds it, and its
    allowance of one step covers a kernel that does not.
    """
    block_m, block_n = (int(macros.get(name, "32")) for name in ("BLOCK_M", "BLOCK_N"))
    short = "f16" if rung == "fp8_wmma" else dtype
    on_tensor_cores = rung is None or rung in _TENSOR_CORE
    return Algorithm(
        block_m=block_m,
        block_n=block_n,
        operand_dtype=short if on_tensor_cores else "f32",
        p_dtype=short if rung is None or rung in _ROUNDS_P else "f32",
        splits=int(macros.get("SPLITS", "4")) if rung == "split_k" else 1,
        out_dtype=dtype,
    )
