"""Generated functions on the virtual GPU and on this machine's own processor: the same arguments, the same bits.

Many functions share one translation unit: NVRTC compiles it with `--fmad=false`, g++ with `-ffp-contract=off`.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import weft
from weft.core.records import Binary

from .generate import OUTPUTS, Generated, generate
from .operations import INTEGERS, TYPES

ARGUMENTS = 192
"""Sets of arguments per function: six warps."""
BLOCK = 64
MAX_STEPS = 1 << 22
"""Backward branches; a generated loop has at most eight rounds, so only a bug reaches this."""
_HERE = Path(__file__).parent
_NUMPY: dict[str, Any] = {
    **{kind: np.dtype(kind.removesuffix("_t")) for kind in INTEGERS},
    "float": np.dtype(np.float32), "double": np.dtype(np.float64), "__half": np.dtype(np.float16),
    "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """A function whose results differ, with the first arguments that show it."""

    seed: int
    debug: bool
    message: str


def host_compiler() -> str | None:
    """Return the path of g++, or None if it is not installed."""
    return shutil.which("g++")


def compare(seeds: Sequence[int], folder: Path, *, builds: Sequence[bool] = (False,)) -> list[Difference]:
    """Compile the functions of these seeds for both sides and run them; `builds` has True for the `-G` build.

    `folder` takes the host's library.
    """
    functions = [generate(seed) for seed in seeds]
    host = _compile_host(functions, folder)
    expected = {function.seed: _on_host(host, function) for function in functions}
    differences = []
    for debug in builds:
        device = _compile_device(functions, debug=debug)
        gpu = weft.VirtualGPU(threads=1)
        for function in functions:
            message = _compare_on_gpu(expected[function.seed], function, gpu, device)
            if message:
                differences.append(Difference(function.seed, debug, message))
    return differences


def _on_host(host: ctypes.CDLL, function: Generated) -> Array:
    arguments, expected = inputs(function), np.zeros((ARGUMENTS, OUTPUTS), np.uint64)
    places = [ctypes.c_void_p(each.ctypes.data) for each in (*arguments, expected)]
    host[f"host_{function.name}"](*places, ctypes.c_int(ARGUMENTS))
    return expected


def _compare_on_gpu(expected: Array, function: Generated, gpu: weft.VirtualGPU, device: Binary) -> str:
    """Return what is wrong on the virtual GPU; empty if nothing is."""
    arguments, found = inputs(function), np.zeros_like(expected)
    blocks = ARGUMENTS // BLOCK
    run = gpu.launch(device, f"device_{function.name}", blocks, BLOCK, [*arguments, found], max_steps=MAX_STEPS)
    if run.findings:
        return f"a finding: {run.findings[0]}"
    if np.array_equal(found, expected):
        return ""
    row, column = np.argwhere(found != expected)[0]
    values = ", ".join(repr(each[row].item()) for each in arguments)
    return f"({values}) gives {found[row, column]:#x} as output {column}, the host {expected[row, column]:#x}"


def inputs(function: Generated) -> list[Array]:
    """Return one array per argument: a third edge values, a third small numbers, a third random bits."""
    rng = np.random.default_rng(function.seed)
    return [_values(kind, rng) for kind in function.arguments]


def _values(kind: str, rng: np.random.Generator) -> Array:
    own = _NUMPY[kind]
    bits = np.dtype(f"uint{8 * own.itemsize}")
    anything = rng.integers(0, np.iinfo(bits).max, ARGUMENTS, bits, endpoint=True).view(own)
    if kind in INTEGERS:
        info = np.iinfo(own)
        edges = np.array([0, 1, 2, info.max, info.min, info.max - 1, info.max // 2, info.min + 1], own)
        small = rng.integers(-9 if info.min < 0 else 0, 10, ARGUMENTS).astype(own)
    else:
        least = np.array([1], bits).view(own)[0]
        edges = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.5, 65504.0, least], own)
        small = (rng.standard_normal(ARGUMENTS) * rng.choice([1, 100, 1e4], ARGUMENTS)).astype(own)
    which = rng.integers(0, 3, ARGUMENTS)
    values = np.where(which == 0, rng.choice(edges, ARGUMENTS), np.where(which == 1, small, anything))
    return np.ascontiguousarray(values.astype(own, copy=False))


def _compile_host(functions: Sequence[Generated], folder: Path) -> ctypes.CDLL:
    compiler = host_compiler()
    assert compiler is not None, "g++ is not installed"
    name = f"host_{functions[0].seed}"
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(_unit(functions, "host.h", _host_entry))
    options = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-w", f"-I{_HERE}"]
    subprocess.run([compiler, *options, "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


def _compile_device(functions: Sequence[Generated], *, debug: bool) -> Binary:
    text = _unit(functions, "device.h", _device_entry)
    return weft.compile_cuda(text, name="generated.cu", include_dirs=[_HERE], fmad=False, debug=debug)


def _unit(functions: Sequence[Generated], header: str, entry: Any) -> str:
    parts = [f'#include "{header}"\n#include "prelude.h"\n']
    parts += [function.text + entry(function) for function in functions]
    return "\n".join(parts)


def _parameters(function: Generated) -> tuple[str, str]:
    """Return the pointers that an entry takes, and the arguments number `i` after them."""
    taken = ", ".join(f"const {kind}* p{at}" for at, kind in enumerate(function.arguments))
    given = ", ".join(f"p{at}[i]" for at in range(len(function.arguments)))
    return f"{taken}, uint64_t* out", f"{given}, out + i * {OUTPUTS}"


def _host_entry(function: Generated) -> str:
    taken, given = _parameters(function)
    head = f'extern "C" void host_{function.name}({taken}, int count)'
    return f"{head} {{\n    for (int i = 0; i < count; ++i) {function.name}({given});\n}}\n"


def _device_entry(function: Generated) -> str:
    taken, given = _parameters(function)
    head = f'extern "C" __global__ void device_{function.name}({taken})'
    return f"{head} {{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    {function.name}({given});\n}}\n"


assert set(_NUMPY) == set(TYPES)
