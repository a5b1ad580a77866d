"""One Triton kernel in several variants, for an autotuner to choose from."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def block_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr, KIND: tl.constexpr):
    """out[0] += Σ x. KIND 0 is plain, 1 does useless work, 2 races, 3 keeps all of BLOCK in registers."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0, volatile=KIND == 3)
    if KIND == 1:
        y = x
        for _ in range(64):
            y = tl.sqrt(tl.abs(y)) + 1.0
        x = tl.where(y >= 0.0, x, y)
    if KIND == 3:
        again = tl.load(x_ptr + i, mask=i < n, other=0.0, volatile=True)  # x stays in registers meanwhile
        x = (x + again) / 2
    part = tl.sum(x, axis=0)
    if KIND == 2:
        tl.store(out_ptr, tl.load(out_ptr) + part)
    else:
        tl.atomic_add(out_ptr, part)
