"""LLVM IR text → machine code in this process, through object files that can be kept on disk."""

import atexit
import functools
import hashlib
import itertools
import platform
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import llvmlite
import llvmlite.binding as llvm

from weft.core import knobs
from weft.core.errors import WeftError
from weft.toolchain.cache import Cache, cache_key

_lock = threading.RLock()


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def emitter_version() -> str:
    """Return a digest of the code generator's source: objects of another version are never loaded."""
    digest = hashlib.sha256(llvmlite.__version__.encode())
    root = Path(__file__).parent
    for path in sorted([*root.rglob("*.py"), *(root.parent / "ptx").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def host() -> tuple[str, str]:
    """Return the CPU name and features to compile for; WEFT_CPU names another CPU (its features only)."""
    _initialise()
    forced = knobs.host_cpu()
    if forced:
        return forced, ""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def _machine(level: int) -> Any:
    _initialise()
    cpu, features = host()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small", jit=True
    )


@functools.cache
def _jit() -> Any:
    # JITLink: RuntimeDyld aborts when the code and the data of a kernel are more than 2 GB apart.
    return llvm.create_lljit_compiler(_machine(2), use_jit_link=True)


def object_key(*parts: str) -> str:
    """Return the cache key of a compiled object: the request, the host, LLVM and the emitter's version."""
    return cache_key(["object", platform.machine(), *host(), emitter_version(), *parts])


def objects() -> Cache:
    """Return the cache of compiled objects."""
    return Cache("object")


LARGE = 8 << 20
"""Characters of IR, reached only by -G builds: LLVM's usual instruction selection takes many minutes, its fast one
half a minute."""


def compile_object(text: str, what: str, *, level: int = 1, large: int = LARGE) -> bytes:
    """Compile LLVM IR to a relocatable object. Only SSA construction and clean-up run: more passes do not pay.

    From `large` characters on, LLVM's fast instruction selection is used.
    """
    with _lock:
        start = time.perf_counter()
        machine = _machine(level if len(text) < large else 0)
        try:
            module = llvm.parse_assembly(text)
        except RuntimeError as error:
            raise WeftError(f"internal error: LLVM refused the code of {what}: {error}") from None
        parsed = time.perf_counter()
        options = llvm.create_pipeline_tuning_options(speed_level=0)
        builder = llvm.create_pass_builder(machine, options)
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, builder)
        optimised = time.perf_counter()
        code: bytes = machine.emit_object(module)
        if knobs.debug() >= 1:
            done = time.perf_counter()
            steps = f"parse {parsed - start:.3f} s, passes {optimised - parsed:.3f} s, code {done - optimised:.3f} s"
            print(f"weft: {what}: {len(text) // 1024} KB of IR, {steps}, {len(code) // 1024} KB", file=sys.stderr)
        if knobs.debug() >= 2:
            print(text, file=sys.stderr)
        return code


_numbers = itertools.count()
_live: "weakref.WeakSet[Any]" = weakref.WeakSet()


@atexit.register
def _keep_until_the_end() -> None:
    """Leave code that is still loaded to the end of the process: LLVM itself may be gone before its last user."""
    for tracker in list(_live):
        tracker.detach()


def load(code: bytes, exports: list[str], imports: Mapping[str, int], name: str) -> Mapping[str, int]:
    """Link an object into this process; return the addresses of `exports`.

    The code is unloaded when the returned object is deleted.
    """
    with _lock:
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for symbol, address in imports.items():
            library.import_symbol(symbol, address)
        for symbol in exports:
            library.export_symbol(symbol)
        tracker: Any = library.link(_jit(), f"{name}.{next(_numbers)}")
        _live.add(tracker)
        return cast(Mapping[str, int], tracker)
