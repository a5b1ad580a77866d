"""A production kernel's run compared with float64, and the findings of the checkers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft import VirtualGPU
from weft.attention.dtypes import Array
from weft.attention.gates import flash_gate
from weft.attention.reference import Causal, attention, attention16
from weft.core.records import Finding, Place
from weft.engines.kernel_file import KernelFile, load
from weft.probes.tools import watch_for
from weft.toolchain.cuda_headers import package_file

HERE = Path(__file__).parent
ELEMENTS = {"f16": "half", "bf16": "__nv_bfloat16"}


def production_kernel(file: str, dtype: str, header_of: tuple[str, str], **defines: str) -> KernelFile:
    """A file of this folder that includes headers of a package: the package, and one of its headers as included."""
    package, header = header_of
    folder = package_file(package, header).parents[header.count("/")]
    return load(HERE / file, defines={"ELEMENT": ELEMENTS[dtype], **defines}, include_dirs=[folder])


@dataclass(frozen=True)
class Outcome:
    """One run under all checkers."""

    findings: tuple[Finding, ...]
    o: Array
    """(b, h, s, d)"""
    lse: Array
    gold: Array
    gold_lse: Array
    error: float


def agreement(
    gpu: VirtualGPU, kernel: KernelFile, sizes: Mapping[str, int], dtype: str, *, causal: Causal, tokens_first: bool
) -> Outcome:
    """Run on generated inputs and check o by FlashAttention's rule. `tokens_first`: arrays are (s, h, d).

    One `gpu` for all shapes of a kernel: it keeps the program.
    """
    run, arrays = kernel.run(gpu, sizes=sizes, watch=watch_for(["all"]))

    def usual(name: str) -> Array:
        array = arrays[name]
        return array.reshape(-1, *array.shape[-2:]).transpose(1, 0, 2)[None] if tokens_first else array

    q, k, v, o = (usual(name) for name in ("q", "k", "v", "o"))
    gold = attention(q, k, v, causal=causal)
    gate = flash_gate(o, gold.o, attention16(q, k, v, causal=causal).o, dtype)
    assert gate.passed, f"{dict(sizes)}: {gate}"
    lse = arrays["lse"]
    lse = lse.reshape(-1, lse.shape[-1]).T[None] if tokens_first else lse
    error = float(np.abs(o.astype(np.float64) - gold.o).max())
    return Outcome(run.findings, o, lse, gold.o, gold.lse, error)


def where(findings: Iterable[Finding]) -> set[tuple[str, str, str]]:
    """Code, file of the access, and file of a race's other access or of the use of an uninitialised value."""
    return {(finding.code, _file(finding.place), _file(finding.other)) for finding in findings}


def _file(place: Place | None) -> str:
    return Path(place.file).name if place else ""
