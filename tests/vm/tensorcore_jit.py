"""Compiles a tensor-core function with a loop around it: one call from a test does thousands of tiles."""

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from weft.vm.emit.tensorcore import tensorcore_ir
from weft.vm.mma_kind import MmaKind
from weft.vm.reference.fragments import mma_fragment

Array = NDArray[Any]

_SCALE_BYTES = 4 * (16 + 8)
_DRIVER = """
define void @tiles(ptr %d, ptr %a, ptr %b, ptr %c, ptr %s, i64 %count) {{
entry:
  br label %tile
tile:
  %i = phi i64 [ 0, %entry ], [ %next, %tile ]
  %oa = mul i64 %i, {a}
  %ob = mul i64 %i, {b}
  %oc = mul i64 %i, {c}
  %os = mul i64 %i, {s}
  %ps = getelementptr i8, ptr %s, i64 %os
  %pa = getelementptr i8, ptr %a, i64 %oa
  %pb = getelementptr i8, ptr %b, i64 %ob
  %pc = getelementptr i8, ptr %c, i64 %oc
  %pd = getelementptr i8, ptr %d, i64 %oc
  call void @{name}(ptr %pd, ptr %pa, ptr %pb, ptr %pc{scales})
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %tile, label %done
done:
  ret void
}}
"""


class CompiledMma:
    """Takes logical matrices of raw bits and returns logical matrices; the registers are those of the fragments."""

    def __init__(
        self, kind: MmaKind, *, mode: str = "hardware", arch: str = "sm_89", cpu: str = "", count: int = 1
    ) -> None:
        """With a count, each call of the function computes that many tiles that share A."""
        self.fragments = {operand: mma_fragment(kind, operand) for operand in "abcd"}
        word = 8 if kind.a_type == "f64" else 4
        sizes = {operand: f.registers * 32 * word for operand, f in self.fragments.items()}
        embedded = not cpu and bool(llvm.get_host_cpu_features().get("avx512f"))
        name, text = tensorcore_ir(kind, mode, arch, count=count, embedded_rounding=embedded)
        self.scales = kind.scales
        text += _DRIVER.format(
            name=name,
            a=sizes["a"],
            b=count * sizes["b"],
            c=count * sizes["c"],
            s=_SCALE_BYTES,
            scales=", ptr %ps" if kind.scales else "",
        )
        self._engine, self.tiles = _compile(text, cpu)

    def __call__(
        self, a: Array, b: Array, c: Array, scales: tuple[Array, ...] = (), *, in_place: bool = False
    ) -> Array:
        """`a` has one matrix for every `count` matrices of `b` and `c`; scales are (T, 16, n) and (T, n, 8)."""
        words = _aligned(np.zeros((len(a), _SCALE_BYTES // 4, 4), np.uint8))
        if scales:
            words[:, :16, : self.scales], words[:, 16:, : self.scales] = scales[0], scales[1].transpose(0, 2, 1)
        operands = zip("abc", (a, b, c), strict=True)
        registers = {name: _aligned(self.fragments[name].pack(x)) for name, x in operands}
        d = registers["c"] if in_place else _aligned(np.zeros_like(registers["c"]))
        self.tiles(d.ctypes.data, *(registers[x].ctypes.data for x in "abc"), words.ctypes.data, len(a))
        return self.fragments["d"].unpack(d)


def _compile(text: str, cpu: str) -> tuple[Any, Callable[..., None]]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    features = "" if cpu else llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu or llvm.get_host_cpu_name(), features=features, opt=2, jit=True
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1)))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, ctypes.c_int64)
    return engine, prototype(engine.get_function_address("tiles"))


def _aligned(values: Array) -> Array:
    """Return a copy that starts at a multiple of 64 bytes."""
    raw = np.empty(values.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy
