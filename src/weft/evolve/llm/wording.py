"""Texts of the brief that are the same for every search."""

RULES = """\
A candidate is one CUDA C++ file: device code, and comment lines that start with `// weft:`.

- `sizes`, `in`, `out`, `workspace`, `scalar`: arrays and numbers. Inputs and outputs keep their names, types and
  shapes.
- `define NAME = value`: a macro, and a name in formulas. `ELEMENT` and `CAUSAL`, where the start has them, are set by
  the judge: keep them.
- `launch name<{D}>(arguments)  grid(x, y, z) block(x, y, z) shared(bytes) opt_in_shared when(formula)`: one launch.
  Several lines run in order. `grid`, `block` and the rest may stand on a line of their own below.
- Formulas have `+ - * / // % **`, comparisons, `min max cdiv sqrt ceil log2`, and nothing else; use `//` or `cdiv` for
  integers. More than 48 KB of shared memory needs `shared(bytes) opt_in_shared`.
- `workspace name : f32[...]` is scratch memory between launches; it starts as bytes of 0xFF, as outputs do.
"""

MAY_NOT = """\
- host code of any kind: no `main`, no `<<<…>>>`, no calls of the CUDA runtime, no library calls;
- includes other than CUDA's own device headers (`cuda_fp16.h`, `cuda_bf16.h`, `mma.h`, `cuda_pipeline.h` …);
  no `#line`, `#embed` or `#import`;
- options of the compiler beyond `-default-device`, `-std`, `-use_fast_math`, `-maxrregcount`, `-ftz`, `-prec-div`,
  `-prec-sqrt`, `-extra-device-vectorization`;
- code that depends on a particular shape, seed, address or value in order to pass; results that are kept from one
  launch to the next; writes to inputs; loops without an end;
- less precision than the start has: sums of products and the softmax's state are fp32.
"""

ATTENTION = """\
- q is [B, HQ, SQ, D], k and v are [B, HKV, SKV, D]; HQ is a multiple of HKV: query head h reads key head
  h / (HQ / HKV).
- O = softmax(q·kᵀ·scale + mask)·v in q's type; LSE is float32 [B, HQ, SQ], natural logarithm.
- Masks: `none`; `top_left`: query i sees keys j ≤ i; `bottom_right`: j ≤ i + SKV - SQ. A row that sees no key gives
  O = 0 and LSE = -inf, never NaN.
"""

GENERATE = """\
# How to propose a child

You improve one CUDA kernel, the parent, by small and reasoned steps. Everything you propose is compiled, judged and
counted; what you predict is held against what is measured, and both are kept.

1. Read what limits the parent, its counters, and the insights. An insight that was refuted is as good as one that was
   confirmed: do not repeat it in other words.
2. Change **exactly two levers**: two design decisions that can be named, such as the CTA tile, the number of warps, the
   depth of the pipeline, the layout of shared memory, how tiles are copied, where Q or the scores are kept, how exp is
   computed, when the output is rescaled, how the tail is masked, the number of splits. Leave everything else as it is.
3. State a hypothesis: why these two together make the kernel faster on this chip.
4. Predict which counters of the list fall or rise, and why. Predict only what you expect to move by 1 % or more.
5. Write the whole file, with all launch lines. It must be right first: a fast wrong kernel counts for nothing.

## Reply

Exactly one block of CUDA and one of JSON, and no other fenced block:

```cuda
// weft: … all launch lines …
… the whole file …
```
```json
{
  "levers": [
    {"name": "BLOCK_N", "before": "32", "after": "64"},
    {"name": "COPY", "before": "plain", "after": "async"}
  ],
  "hypothesis": "one or two sentences",
  "predicted": [
    {"counter": "barriers", "direction": "falls", "why": "half as many tiles"}
  ]
}
```
"""
