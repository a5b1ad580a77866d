"""Weft: the workbench for fused attention kernels. It runs the real compiled kernel on a CPU, exactly.

The public names load on first use, so that `import weft` imports no compiler and no framework.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.core.version import __version__
    from weft.engines.launch import Launch
    from weft.engines.protocol import RunOptions
    from weft.engines.virtual import VirtualGPU
    from weft.interop.open_kernel import load
    from weft.toolchain.cuda import compile_cuda
    from weft.toolchain.triton_aot import compile_triton

__all__ = ["Launch", "RunOptions", "VirtualGPU", "__version__", "compile_cuda", "compile_triton", "load"]

# Public name → "module:attribute". The imports above give a type checker the same names;
# tests/arch compares the two.
_LAZY = {
    "Launch": "weft.engines.launch:Launch",
    "RunOptions": "weft.engines.protocol:RunOptions",
    "__version__": "weft.core.version:__version__",
    "VirtualGPU": "weft.engines.virtual:VirtualGPU",
    "compile_cuda": "weft.toolchain.cuda:compile_cuda",
    "compile_triton": "weft.toolchain.triton_aot:compile_triton",
    "load": "weft.interop.open_kernel:load",
}


def __getattr__(name: str) -> object:
    target = _LAZY.get(name)
    if target is None:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    module, _, attribute = target.partition(":")
    value: object = getattr(import_module(module), attribute)
    globals()[name] = value  # the next access finds it without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
