"""The launcher that Triton calls for a compiled kernel: PTX, cubin and arguments → a Call on the active device."""

import functools
import hashlib
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime.cache import get_cache_manager

from weft.core.errors import Unsupported, UsageError
from weft.core.records import Binary, Resources
from weft.toolchain.elf import CubinError, read_elf
from weft.toolchain.inline_asm_lines import steady_lines

from .arguments import Parameters
from .device import Call, active
from .tensors import DeviceCopies

_NAME_LIMIT = 150
"""Triton truncates names of files in its cache to this length."""
_FIRST_LINE = re.compile(r"\.entry\b.*?^\s*\.loc\s+(\d+)", re.MULTILINE | re.DOTALL)
_REGISTERS, _FRAME = 0x2F, 0x11
_SIZED = 0x04
"""Format of records whose 16 bits are a size."""


@dataclass(frozen=True)
class CubinFacts:
    """Registers and local memory of one kernel."""

    registers: int
    local_bytes: int
    """Stack frame per thread: arrays in local memory, arguments of printf, spilled registers."""


@dataclass(frozen=True)
class Loaded:
    """A cubin as the driver would load it."""

    name: str
    cubin: bytes
    facts: CubinFacts


@functools.lru_cache(maxsize=1024)
def load(name: str, cubin: bytes) -> Loaded:
    """Read what the launch and the model need from a cubin."""
    return Loaded(name, cubin, cubin_facts(cubin, name))


class Launcher:
    """Made once per compiled kernel; called once per launch."""

    def __init__(self, src: Any, metadata: Any) -> None:
        if metadata.num_ctas != 1:
            raise Unsupported("num_ctas above 1 is not supported (clusters need sm_90); launch with num_ctas=1")
        self.source, self.metadata = src, metadata
        self.parameters = Parameters(src.signature, getattr(metadata, "tensordesc_meta", None))
        self.threads = metadata.num_warps * 32
        self.scratch = (metadata.global_scratch_size, metadata.profile_scratch_size)
        self.binary: Binary | None = None

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: Any,
        function: Loaded,
        kernel_metadata: Any,
        launch_metadata: Any,
        enter_hook: Callable[[Any], object] | None,
        exit_hook: Callable[[Any], object] | None,
        *args: Any,
    ) -> None:
        """Launch, with arguments in the order of Triton's launcher; a grid without CTAs launches nothing."""
        if enter_hook is not None:
            enter_hook(launch_metadata)
        grid = (int(grid_x), int(grid_y), int(grid_z))
        if prod(grid) > 0:
            self._launch(grid, function, args)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _launch(self, grid: tuple[int, int, int], function: Loaded, args: Sequence[Any]) -> None:
        if self.binary is None:
            self.binary = _binary(self.source, self.metadata, function)

        def pack(layout: Sequence[tuple[str, int, int]], copies: DeviceCopies, scratch: Sequence[int]) -> bytes:
            return self.parameters.pack(layout, args, copies.address, copies.number, scratch)

        sizes = [size * prod(grid) for size in self.scratch]
        shared = self.metadata.shared
        with torch._C.DisableTorchFunction():  # tensors as they are, without the overrides of a mode
            active().launch(Call(self.binary, function.name, grid, self.threads, shared, sizes, pack))


_made: dict[tuple[str, str], Launcher] = {}


def launcher(src: Any, metadata: Any) -> Launcher:
    """Return the launcher of a compiled kernel, which Triton requests where it assumes that nothing is loaded yet."""
    key = metadata.hash, getattr(getattr(src, "fn", None), "file_name", "")
    if key not in _made:
        _made[key] = Launcher(src, metadata)
    return _made[key]


def _binary(src: Any, metadata: Any, function: Loaded) -> Binary:
    ptx = _ptx(src, metadata)
    local = function.facts.local_bytes
    resources: Mapping[str, Resources] = {function.name: Resources(function.facts.registers, 0, 0, 0, local)}
    jitted = getattr(src, "fn", None)
    return Binary(
        source_name=getattr(jitted, "file_name", src.name),
        arch=f"sm_{metadata.target.arch}",
        compiler=f"triton {triton.__version__}",
        flags=(f"num_warps={metadata.num_warps}", f"num_stages={metadata.num_stages}"),
        ptx=ptx,
        cubin=function.cubin,
        entries={function.name: function.name},
        resources=resources,
        dynamic_shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        source_digest=hashlib.sha256(getattr(jitted, "src", "").encode()).hexdigest(),
        ptx_digest=hashlib.sha256(ptx.encode()).hexdigest(),
    )


def _ptx(src: Any, metadata: Any) -> str:
    """Return the PTX from Triton's cache, where its compiler has written it."""
    path = get_cache_manager(metadata.hash).get_file(f"{src.name[:_NAME_LIMIT]}.ptx")
    if path is None:
        raise UsageError(f"Triton's cache has no PTX of {src.name}: unset TRITON_STORE_BINARY_ONLY and clear the cache")
    return _in_its_file(steady_lines(Path(path).read_text()), getattr(getattr(src, "fn", None), "file_name", ""))


def _in_its_file(ptx: str, file: str) -> str:
    """Return the PTX with the current path of the kernel's file: a moved script finds the PTX of its old path."""
    first = _FIRST_LINE.search(ptx)
    if first is None or not file:
        return ptx
    return re.sub(rf'^(\s*\.file\s+{first[1]}\s+)".*"', lambda found: f'{found[1]}"{file}"', ptx, flags=re.MULTILINE)


def cubin_facts(cubin: bytes, kernel: str) -> CubinFacts:
    """Read from a cubin what the driver would report after loading it.

    Its section `.nv.info` is a list of records: format, attribute, 16 bits of value or size, then as many bytes. The
    records used here hold the number of the kernel's symbol and a value.
    """
    elf = read_elf(cubin)
    info = next((section.data for section in elf.sections if section.name == ".nv.info"), b"")
    values: dict[int, int] = {}
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute in (_REGISTERS, _FRAME) and size == 8:
            symbol, value = struct.unpack_from("<II", info, at)
            if symbol < len(elf.symbols) and elf.symbols[symbol].name == kernel:
                values[attribute] = value
        at += size
    if _REGISTERS not in values:
        raise CubinError(f"the cubin does not record how many registers {kernel} needs")
    return CubinFacts(values[_REGISTERS], values.get(_FRAME, 0))
