"""Kernels in which all programs access the same few words."""

import triton
import triton.language as tl


@triton.jit
def all_store(p_ptr, SAME: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(p_ptr, tl.num_programs(0))
    tl.store(p_ptr + 1, tl.num_programs(1) if SAME else (pid == 777).to(tl.int32))


@triton.jit
def take_a_lock(lock_ptr, count_ptr, FORGETS: tl.constexpr):
    pid = tl.program_id(0)
    if pid != FORGETS:
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
    tl.store(count_ptr, tl.load(count_ptr) + 1)
    tl.debug_barrier()
    if pid != FORGETS:
        tl.atomic_xchg(lock_ptr, 0)
