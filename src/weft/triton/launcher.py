"""The launcher that Triton calls for a compiled kernel: PTX, cubin and arguments → a Call on the active device."""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime.cache import get_cache_manager

from weft.core.errors import UsageError
from weft.core.records import Binary, Resources
from weft.toolchain.cubin_facts import CubinFacts, cubin_facts
from weft.toolchain.inline_asm_lines import steady_lines

from .arguments import Parameters
from .device import MOST_PROGRAMS, Call, active
from .tensors import DeviceCopies

_NAME_LIMIT = 150
"""Triton truncates names of files in its cache to this length."""
_FIRST_LINE = re.compile(r"\.entry\b.*?^\s*\.loc\s+(\d+)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Loaded:
    """A cubin as the driver would load it."""

    name: str
    cubin: bytes
    facts: CubinFacts


@functools.lru_cache(maxsize=MOST_PROGRAMS)
def load(name: str, cubin: bytes) -> Loaded:
    """Read what the launch and the model need from a cubin."""
    return Loaded(name, cubin, cubin_facts(cubin, name))


@dataclass(frozen=True)
class _Source:
    """A kernel's source, without Triton's object: that keeps every kernel alive that was compiled from it."""

    name: str
    file: str
    text: str

    @staticmethod
    def of(src: Any) -> "_Source":
        jitted = getattr(src, "fn", None)
        return _Source(src.name, getattr(jitted, "file_name", ""), getattr(jitted, "src", ""))


class Launcher:
    """Made once per compiled kernel; called once per launch."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.ctas = metadata.num_ctas
        """CTAs that execute a program together, as a cluster."""
        self.source, self.metadata = _Source.of(src), metadata
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

        sizes = [size * prod(grid) * self.ctas for size in self.scratch]
        shared = self.metadata.shared
        grid = (grid[0] * self.ctas, *grid[1:])
        with torch._C.DisableTorchFunction():  # tensors as they are, without the overrides of a mode
            active().launch(Call(self.binary, function.name, grid, self.ctas, self.threads, shared, sizes, pack))


_made: dict[tuple[str, str], Launcher] = {}
"""The last used at the end."""


def launcher(src: Any, metadata: Any) -> Launcher:
    """Return the launcher of a compiled kernel, which Triton requests where it assumes that nothing is loaded yet."""
    key = metadata.hash, _Source.of(src).file
    made = _made.pop(key, None) or Launcher(src, metadata)
    while len(_made) >= MOST_PROGRAMS:
        del _made[next(iter(_made))]
    _made[key] = made
    return made


def _binary(source: _Source, metadata: Any, function: Loaded) -> Binary:
    ptx = _ptx(source, metadata)
    local = function.facts.local_bytes
    resources: Mapping[str, Resources] = {function.name: Resources(function.facts.registers, 0, 0, 0, local)}
    return Binary(
        source_name=source.file or source.name,
        arch=f"sm_{metadata.target.arch}",
        compiler=f"triton {triton.__version__}",
        flags=(f"num_warps={metadata.num_warps}", f"num_stages={metadata.num_stages}"),
        ptx=ptx,
        cubin=function.cubin,
        entries={function.name: function.name},
        resources=resources,
        dynamic_shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        source_digest=hashlib.sha256(source.text.encode()).hexdigest(),
        ptx_digest=hashlib.sha256(ptx.encode()).hexdigest(),
    )


def _ptx(source: _Source, metadata: Any) -> str:
    """Return the PTX from Triton's cache, where its compiler has written it."""
    path = get_cache_manager(metadata.hash).get_file(f"{source.name[:_NAME_LIMIT]}.ptx")
    if path is None:
        raise UsageError(
            f"Triton's cache has no PTX of {source.name}: unset TRITON_STORE_BINARY_ONLY and clear the cache"
        )
    return _in_its_file(steady_lines(Path(path).read_text()), source.file)


def _in_its_file(ptx: str, file: str) -> str:
    """Return the PTX with the current path of the kernel's file: a moved script finds the PTX of its old path."""
    first = _FIRST_LINE.search(ptx)
    if first is None or not file:
        return ptx
    return re.sub(rf'^(\s*\.file\s+{first[1]}\s+)".*"', lambda found: f'{found[1]}"{file}"', ptx, flags=re.MULTILINE)
