"""A kernel file with launch lines: weft.load reads how it is launched, NumPy computes the expected result."""

from pathlib import Path

import numpy as np

import weft


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention in double precision."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores[..., np.triu(np.ones(scores.shape[-2:], bool), k=1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def main() -> None:
    kernel = weft.load(Path(__file__).with_name("attention.cu"))
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 1, 2, 50, 32)).astype(np.float16)

    # The shapes of the arrays give B, H, S and D; `o` is allocated from its line in the file.
    run, arrays = kernel.run(weft.VirtualGPU(), {"q": q, "k": k, "v": v})

    assert run.clean, "\n".join(map(str, run.findings))
    error = np.abs(arrays["o"] - attention(q, k, v)).max()
    assert error < 2e-3, error  # O is rounded to fp16: half an ulp at |O| < 4 is 2^-10
    print(f"{run.entries[0]}: largest error {error:.1e}, {run.instructions} warp instructions")


if __name__ == "__main__":
    main()
