"""Effect of Ada's FP8 tensor cores, of flushing and of smoothing on the error of `fp8_mma`.

    python benchmarks/fp8_accumulation.py [--lengths 512,2048,8192]

For every length and kind of input, 128 queries of one head of 64 channels against all keys, no mask, fp16 inputs: the
kernel runs on the virtual GPU with FLUSH and SMOOTH on and off, with the tensor core's arithmetic (`hardware`) and with
plain fp32 sums (`ieee`). Errors are the root mean square of O against float64 attention on the original inputs, as a
share of the root mean square of that attention; "apart" is the same for one arithmetic compared with the other. "of
bound" is the worst block of 64 rows over the error bound of task quantised_sdpa: above 1 the bound is exceeded.
`offset_keys` is unit_normal with K's channels around means drawn from N(0, 10²). The last line is one JSON object.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

import weft
from weft.attention.dtypes import Array
from weft.attention.error_report import compare
from weft.attention.fp8_noise import recipe_noise
from weft.attention.fp8_recipe import Recipe, RecipeRun
from weft.attention.gates import size_gate
from weft.attention.reference import attention
from weft.attention.regimes import make
from weft.attention.shapes import Shape
from weft.kernels import RUNGS

LENGTHS = (512, 2048, 8192)
QUERIES, D = 128, 64
REGIMES = ("unit_normal", "v_offset", "logits_8", "sorted_keys", "outlier_channels", "uneven_channels", "offset_keys")
CHOICES = tuple((flush, smooth) for flush in ("64", "0") for smooth in ("1", "0"))
MODES = ("hardware", "ieee")


def inputs(regime: str, keys: int) -> dict[str, Array]:
    """Return q, k and v."""
    shape = Shape(f"fp8_{keys}", 1, 1, 1, QUERIES, keys, D)
    if regime != "offset_keys":
        return dict(zip("qkv", make(regime, shape, "f16", 0), strict=True))
    q, k, v = make("unit_normal", shape, "f16", 0)
    means = 10 * np.random.default_rng(0).standard_normal((1, 1, 1, D))
    return {"q": q, "k": (k + means).astype(np.float16), "v": v}


def measure(regime: str, keys: int) -> Iterator[dict[str, Any]]:
    """Return one row for each choice of FLUSH, SMOOTH and arithmetic."""
    arrays = inputs(regime, keys)
    exact = attention(**arrays)
    size = float(np.sqrt((exact.o**2).mean()))
    for flush, smooth in CHOICES:
        recipe = Recipe(flush=flush != "0", smooth=smooth == "1")
        run = RecipeRun(recipe, **arrays, mask=np.ones((QUERIES, keys), np.bool_))
        noise = recipe_noise(run, exact)
        kernel = weft.load(RUNGS["fp8_mma"].path, defines={"FLUSH": flush, "SMOOTH": smooth})
        outputs = {}
        for mode in MODES:
            outcome, outputs[mode] = kernel.run(weft.VirtualGPU(mode=mode), arrays)
            if not outcome.clean:
                raise SystemExit(str(outcome.findings[0]))
        apart = compare(outputs["hardware"]["o"], outputs["ieee"]["o"].astype(np.float64)).rmse / size
        for mode, after in outputs.items():
            error = compare(after["o"], exact.o)
            yield {
                "regime": regime,
                "keys": keys,
                "flush": int(flush),
                "smooth": int(smooth),
                "mode": mode,
                "error": error.rmse / size,
                "bias": error.bias / size,
                "apart": apart,
                "lse_error": float(np.abs(after["lse"] - exact.lse).max()),
                "of_bound": size_gate("quantised", after["o"], exact.o, noise, "f16").ratio,
            }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--regimes", default=",".join(REGIMES))
    options = parser.parse_args()
    rows = []
    print("regime            keys  flush smooth mode      error %   bias %  apart %  of bound")
    for regime in options.regimes.split(","):
        for keys in map(int, options.lengths.split(",")):
            for row in measure(regime, keys):
                rows.append(row)
                print(
                    f"{regime:16} {keys:5}  {row['flush']:5} {row['smooth']:6} {row['mode']:8} "
                    + " ".join(f"{100 * row[name]:8.2f}" for name in ("error", "bias", "apart"))
                    + f" {row['of_bound']:9.2f}"
                )
    print(json.dumps({"queries": QUERIES, "d": D, "rows": rows}))


if __name__ == "__main__":
    main()
