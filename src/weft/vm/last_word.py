"""Accesses of the aligned 32-bit word at a buffer's end, of which the buffer has only a part.

GPUs have no atomics for most 8- and 16-bit types: compilers read the aligned word (`ld.relaxed`; older ones
plainly, see `passes/relax_guesses.py`) and exchange it by `atom.cas.b32`, with the neighbours' bits unchanged. At the
last element of a bf16 tensor of odd length half of the word is behind the end. Allocators give whole words (CUDA 256
bytes, PyTorch 512), so these two accesses are in bounds; a plain load or store of such a word is not.
"""

from weft.ptx.module import WIDTH, Instruction

WORD_BYTES = 4


def takes_last_word(ins: Instruction) -> bool:
    """Whether an instruction is a compare-and-swap of a word, or the strong load in front of it."""
    if ins.facts.is_atomic and ins.form.returns:
        return ins.has("cas") and WIDTH[ins.type] == 8 * WORD_BYTES
    strong = ins.facts.is_load and ins.has("order")
    return strong and not ins.has("vec") and WIDTH[ins.type] == 8 * WORD_BYTES
