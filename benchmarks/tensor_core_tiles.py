"""Compares the virtual GPU's tensor cores with the published rules, and with MMA-Sim, on many tiles of every form.

    python benchmarks/tensor_core_tiles.py [--tiles 1000] [--match TEXT] [--mmasim TILES]

For every form of `wgmma` and of `mma.sync` on sm_90 and sm_120 (and on sm_80 and sm_89), `--tiles` tiles of m16n8 of
each of 12 regimes (ordinary numbers, cancellation, denormals, largest numbers, NaN and infinity, zeros, ties) run on
the compiled functions. The results must be, bit for bit, those of tests/vm/published_rules.py, which restates the rules
in float64. `--mmasim` also compares that many tiles of each regime with the package of the rules' authors, where it has
the form (`pip install --no-deps mmasim`). Progress goes to stderr; the last line of stdout is one JSON object: `wrong`
and `differs_from_mmasim` count tiles in which at least one element differs.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.vm.published_rules import Form, product
from tests.vm.tensorcore_jit import CompiledMma
from tests.vm.tiles import FORMS, REGIMES, SMALL, kind_of, random_scales, random_tiles

Array = NDArray[Any]
GENERATIONS = {
    "wgmma": "Hopper", "sm_90": "Hopper", "sm_120": "RTX Blackwell", "sm_89": "Ada Lovelace", "sm_80": "Ampere",
}  # fmt: skip
AT_ONCE = 100
SEED = 2026


class MmaSim:
    """The package `mmasim` for one form."""

    def __init__(self, form: Form) -> None:
        from mmasim import nv_ptx

        generation = GENERATIONS[form.chip]
        self.form = form
        types = f"{form.result}.{form.a}.{form.b}.{form.result}"
        if form.scale:
            kind, block = "mxf8f6f4" if form.k == 32 else "mxf4nvf4", form.k // form.scales
            name = f"m16n8k{form.k}.kind::{kind}.block{block}.{types}.{form.scale}"
            self.operation = nv_ptx.MMABlockScale(generation, name)
        elif {form.a, form.b} & set(SMALL):
            self.operation = nv_ptx.MMA(generation, f"m16n8k32.kind::f8f6f4.{types}")
        elif form.chip == "wgmma":
            self.operation = nv_ptx.WGMMA(generation, f"m64n8k{form.k}.{form.result}.{form.a}.{form.b}")
        else:
            self.operation = nv_ptx.MMA(generation, f"m16n8k{form.k}.{types}")

    def __call__(self, a: Array, b: Array, c: Array, scales: tuple[Array, ...] = ()) -> Array:
        import torch

        def tensor(bits: Array, dtype: Any) -> Any:
            return torch.from_numpy(bits.view(f"i{bits.itemsize}")).view(dtype)

        def by_columns(bits: Array, dtype: Any) -> Any:
            return tensor(np.ascontiguousarray(bits.transpose(0, 2, 1)), dtype)[:, None].expand(-1, 16, -1, -1)

        operation, parts = self.operation, []
        for first in range(0, len(a), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            x = tensor(a[part], operation.a_type)[:, :, None, :].expand(-1, -1, 8, -1)
            y = by_columns(b[part], operation.b_type)
            factors = []
            if scales:
                rows = tensor(scales[0][part], operation.s_type)[:, :, None, :].expand(-1, -1, 8, -1)
                factors = [rows, by_columns(scales[1][part], operation.s_type)]
            d = operation.dpa(x, y, tensor(c[part], operation.c_type), *factors)
            parts.append(d.contiguous().view(torch.int16 if c.itemsize == 2 else torch.int32).numpy())
        return np.concatenate(parts).view(c.dtype)


def simulator(form: Form) -> MmaSim | None:
    """Return the package's simulator, or None if it has none of this form."""
    try:
        return MmaSim(form)
    except ModuleNotFoundError as error:
        raise SystemExit(f"{error}; install the package: pip install --no-deps mmasim") from None
    except AssertionError:
        return None


def tiles_that_differ(got: Array, expected: Array) -> int:
    return int((got != expected).any(axis=(1, 2)).sum())


def measure(form: Form, tiles: int, with_mmasim: int) -> dict[str, int]:
    """Return the figures of one form."""
    kind = kind_of(form)
    compiled = CompiledMma(kind, arch=form.chip)
    other = simulator(form) if with_mmasim and not kind.is_integer else None
    figures = {"tiles": 0, "wrong": 0}
    if other is not None:
        figures |= {"tiles_of_mmasim": 0, "differs_from_mmasim": 0}
    regimes = ("any",) if kind.is_integer else REGIMES
    for regime in regimes:
        a, b, c = random_tiles(kind, regime, tiles * len(REGIMES) // len(regimes), SEED)
        scales = random_scales(form, regime, len(a), SEED)
        got = compiled(a, b, c, scales)
        wrong = tiles_that_differ(got, product(a, b, c, form, scales))
        figures["tiles"] += len(a)
        figures["wrong"] += wrong
        if wrong:
            print(f"{form}: {wrong} tiles of {regime} are wrong", file=sys.stderr)
        if other is not None:
            a, b, c, got = (x[:with_mmasim] for x in (a, b, c, got))
            differs = tiles_that_differ(got, other(a, b, c, tuple(x[:with_mmasim] for x in scales)))
            figures["tiles_of_mmasim"] += len(a)
            figures["differs_from_mmasim"] += differs
            if differs:
                print(f"{form}: {differs} tiles of {regime} differ from mmasim", file=sys.stderr)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiles", type=int, default=1000, help="tiles of each of 12 regimes")
    parser.add_argument("--match", default="", help="run only forms whose name has this text")
    parser.add_argument("--mmasim", type=int, default=0, metavar="TILES", help="tiles of each regime for mmasim")
    options = parser.parse_args()
    start = time.perf_counter()
    forms: dict[str, dict[str, int]] = {}
    for form in FORMS:
        if options.match in str(form):
            forms[str(form)] = measure(form, options.tiles, options.mmasim)
            print(f"{form}: {forms[str(form)]}", file=sys.stderr, flush=True)
    totals = {
        name: sum(figures.get(name, 0) for figures in forms.values())
        for name in ("tiles", "wrong", "tiles_of_mmasim", "differs_from_mmasim")
    }
    print(json.dumps({**totals, "forms": forms, "seconds": round(time.perf_counter() - start, 1)}))
    return 1 if totals["wrong"] or totals["differs_from_mmasim"] else 0


if __name__ == "__main__":
    sys.exit(main())
