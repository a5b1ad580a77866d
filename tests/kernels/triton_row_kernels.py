"""Triton kernels over rows: layer norm and its gradient, group norm, cross entropy, dropout, top-k."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, N, epsilon, BLOCK: tl.constexpr):
    """y = (x - mean) · rstd · weight + bias per row, in blocks of columns; mean and rstd are kept for the gradient."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0).to(tl.float32)
        centred = tl.where(columns < N, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + epsilon)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < N
        x = tl.load(x_ptr + row * N + columns, mask=inside, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside, eviction_policy="evict_last").to(tl.float32)
        bias = tl.load(bias_ptr + columns, mask=inside, eviction_policy="evict_last").to(tl.float32)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_ptr + row * N + columns, y.to(y_ptr.dtype.element_ty), mask=inside, cache_modifier=".cs")


@triton.jit
def layer_norm_gradient(
    x_ptr,
    weight_ptr,
    dy_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    db_ptr,
    lock_ptr,
    N,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """dx per row; dw and db are summed over rows in GROUPS buffers, each behind a spin lock."""
    row = tl.program_id(0)
    group = row % GROUPS
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * N + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    normed = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    weighted = tl.where(inside, weight * dy, 0.0)
    along = tl.sum(normed * weighted, axis=0) / N
    shift = tl.sum(weighted, axis=0) / N
    dx = (weighted - (normed * along + shift)) * rstd
    tl.store(dx_ptr + row * N + columns, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    # The buffers start undefined: the second lock word shows whether the group has been written.
    lock, count = lock_ptr + group, lock_ptr + GROUPS + group
    dw_row, db_row = dw_ptr + group * N + columns, db_ptr + group * N + columns
    dw, db = dy * normed, dy
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        dw += tl.load(dw_row, mask=inside)
        db += tl.load(db_row, mask=inside)
    tl.store(dw_row, dw, mask=inside)
    tl.store(db_row, db, mask=inside)
    tl.debug_barrier()  # all threads have stored before the lock is released
    tl.atomic_xchg(lock, 0)


@triton.jit
def column_sums(x_ptr, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """out[n] = Σ x[m, n]: the second stage of the weight gradients."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, M, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        total += tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + columns, tl.sum(total, axis=0).to(out_ptr.dtype.element_ty), mask=columns < N)


@triton.jit
def _merge_moments(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    """Two sets of (mean, Σ(x - mean)², count) become one; the same bits either way round, as a butterfly needs it."""
    n = n_a + n_b
    delta = mean_b - mean_a
    some = tl.maximum(n, 1.0)
    return (mean_a * n_a + mean_b * n_b) / some, (m2_a + m2_b) + delta * delta * (n_a * n_b / some), n


@triton.jit
def group_norm(x_ptr, y_ptr, size, epsilon, BLOCK: tl.constexpr):
    """Each group of `size` values to mean 0 and variance 1, with moments merged in one tree."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + tl.program_id(0) * size + offsets, mask=inside, other=0.0).to(tl.float32)
    mean, m2, _ = tl.reduce((x, tl.zeros_like(x), inside.to(tl.float32)), 0, _merge_moments)
    y = (x - mean) * tl.rsqrt(m2 / size + epsilon)
    tl.store(y_ptr + tl.program_id(0) * size + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def cross_entropy(logits_ptr, target_ptr, loss_ptr, best_ptr, gradient_ptr, V, ignored, BLOCK: tl.constexpr):
    """Loss, arg max and gradient per row of logits; rows whose target is `ignored` have loss and gradient 0."""
    row = tl.program_id(0)
    target = tl.load(target_ptr + row)
    columns = tl.arange(0, BLOCK)
    inside = columns < V
    x = tl.load(logits_ptr + row * V + columns, mask=inside, other=-float("inf")).to(tl.float32)
    largest, best = tl.max(x, axis=0, return_indices=True, return_indices_tie_break_left=True)
    exponentials = tl.exp(x - largest)
    total = tl.sum(exponentials, axis=0)
    loss = 0.0
    gradient = tl.zeros((BLOCK,), dtype=tl.float32)
    if target != ignored:
        loss = largest + tl.log(total) - tl.load(logits_ptr + row * V + target).to(tl.float32)
        gradient = exponentials / total - (columns == target).to(tl.float32)
    tl.store(loss_ptr + row, loss)
    tl.store(best_ptr + row, best)
    tl.store(gradient_ptr + row * V + columns, gradient.to(gradient_ptr.dtype.element_ty), mask=inside)


@triton.jit
def dropout(x_ptr, residual_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    """y = residual + dropout(x), the mask from tl.rand: nothing but the seed is kept for the gradient."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, cache_modifier=".cg").to(tl.float32)
    kept = tl.rand(seed, offsets) > p
    y = tl.load(residual_ptr + offsets, mask=inside).to(tl.float32) + tl.where(kept, x / (1 - p), 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def random_bits(out_ptr, n, seed, BLOCK: tl.constexpr):
    """out (4, n): the four words of Philox that tl.randint4x gives for each offset."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.randint4x(seed, offsets)
    inside = offsets < n
    tl.store(out_ptr + offsets, r0, mask=inside)
    tl.store(out_ptr + n + offsets, r1, mask=inside)
    tl.store(out_ptr + 2 * n + offsets, r2, mask=inside)
    tl.store(out_ptr + 3 * n + offsets, r3, mask=inside)
