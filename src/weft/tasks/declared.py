"""Which arithmetic a kernel declares, for the tight gate."""

from dataclasses import replace

from weft.attention.emulate import Algorithm

from .task import PLAIN, Declared

_TENSOR_CORE = frozenset(["wmma_qk", "wmma", "fp8_wmma", "pipelined", "hopper_tma", "fa_triton", "varlen_triton"])
_ROUNDS_P = frozenset(["wmma", "fp8_wmma", "pipelined", "hopper_tma", "fa_triton", "varlen_triton"])


def algorithms_of(declared: Declared, encoding: str, dtype: str) -> tuple[Algorithm, ...]:
    """Return the algorithm of a rung; for any other kernel those it may follow, one of which must match completely.

    A kernel that is not on the ladder may or may not round P to its element type, in tiles of any size. One that
    decodes 8-bit inputs may multiply them as they are, or rounded to its element type or to f16 for the tensor cores.
    """
    rung, macros = declared.rung, declared.macros
    block_m, block_n = (int(macros.get(name, "32")) for name in ("BLOCK_M", "BLOCK_N"))
    plain = Algorithm(block_m=block_m, block_n=block_n, out_dtype=dtype)
    if rung is None:
        short = replace(plain, operand_dtype=dtype, p_dtype=dtype, p_open=True)
        if encoding == PLAIN:
            return (short,)
        decoded = [replace(short, operand_dtype="f32"), short, replace(short, operand_dtype="f16", p_dtype="f16")]
        return tuple(dict.fromkeys(decoded))
    element = "f16" if rung == "fp8_wmma" else dtype
    return (
        replace(
            plain,
            operand_dtype=element if rung in _TENSOR_CORE else "f32",
            p_dtype=element if rung in _ROUNDS_P else "f32",
            splits=int(macros.get("SPLITS", macros.get("splits", "1"))),
        ),
    )
