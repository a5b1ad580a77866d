"""CUDA C++ and Triton source → Binary: PTX, cubin and resource usage, through a content-addressed cache.

binary = compile_cuda("kernel.cu", arch="sm_89", entries=["attn<64,64,true>"])
binary.ptx, binary.entries["attn<64,64,true>"], binary.resources
"""

from .cache import Cache, cache_key
from .cuda import compile_cuda
from .sass import disassemble
from .triton_aot import compile_triton

__all__ = ["Cache", "cache_key", "compile_cuda", "compile_triton", "disassemble"]
