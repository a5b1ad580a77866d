"""A @triton.jit function → Binary, ahead of time and without a GPU."""

import contextlib
import hashlib
import inspect
import io
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from weft.core import knobs
from weft.core.distribution import install_command
from weft.core.errors import CompileError, ToolMissing, UsageError
from weft.core.records import Binary, Diagnostic, Place

from . import binary_file
from .cache import Cache, cache_key
from .inline_asm_lines import steady_lines
from .ptxas_log import parse_notes, parse_resources
from .triton_key import key_by_times

_ARCH = re.compile(r"sm_(\d{2,3})a?")
_COMPILING = threading.Lock()
"""Held while Triton compiles, because its settings and standard output belong to the entire process."""


def compile_triton(
    fn: Any,
    *,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object] = {},
    arch: str = "sm_89",
    num_warps: int = 4,
    num_stages: int = 3,
    attrs: Mapping[str, int] | None = None,
    fmad: bool = True,
    options: Mapping[str, object] = {},
    cache: bool = True,
) -> Binary:
    """Compile `fn` for argument types such as {"x": "*fp16", "n": "i32"} and constants such as {"BLOCK": 64}.

    `attrs` gives divisibility: {"x": 16} promises a pointer aligned to 16 bytes or an integer divisible by
    16, without which Triton cannot load vectors. `fmad` is Triton's `enable_fp_fusion`; `options` are the
    other options of its CUDA backend (`maxnreg`, `num_ctas` …).
    """
    triton = require_triton()
    match = _ARCH.fullmatch(arch)
    if not match:
        raise UsageError(f"arch {arch!r} is not of the form sm_89")
    jitted = _unwrap(triton, fn)
    types = _signature(jitted, signature, constexprs)
    hints = dict(attrs or {})
    for name in hints:
        if name not in types or types[name] == "constexpr":
            raise UsageError(f"attrs: {name!r} is not an argument of {jitted.__name__}")
    settings = {**options, "num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": fmad}
    target = triton.backends.compiler.GPUTarget("cuda", int(match[1]), 32)
    file = inspect.getsourcefile(jitted.fn) or jitted.__name__
    key = cache_key(
        [
            "triton, steady lines",
            triton.__version__,
            arch,
            file,
            jitted.cache_key,
            repr(sorted(types.items())),
            repr(sorted((name, getattr(value, "cache_key", value)) for name, value in constexprs.items())),
            repr(sorted(hints.items())),
            triton.compiler.make_backend(target).parse_options(settings).hash(),
            repr(sorted(triton.compiler.compiler.get_cache_invalidating_env_vars().items())),
        ]
    )
    store = Cache("triton")
    stored = store.get(key) if cache else None
    binary = binary_file.unpack(stored) if stored is not None else None
    if binary is not None:
        return binary
    source = triton.compiler.ASTSource(
        fn=jitted,
        signature=types,
        constexprs=dict(constexprs),
        attrs={(jitted.arg_names.index(name),): [["tt.divisibility", by]] for name, by in hints.items()},
    )
    compiled, log = _compile(triton, lambda: triton.compile(source, target=target, options=settings), jitted, file)
    ptx = steady_lines(compiled.asm["ptx"])
    flags = tuple(f"{name}={value}" for name, value in sorted({**settings, **constexprs}.items()))
    binary = Binary(
        source_name=file,
        arch=arch,
        compiler=f"triton {triton.__version__}",
        flags=flags,
        ptx=ptx,
        cubin=compiled.asm["cubin"],
        entries={jitted.__name__: compiled.metadata.name},
        resources=parse_resources(log),
        notes=parse_notes(log),
        dynamic_shared_bytes=compiled.metadata.shared,
        num_warps=compiled.metadata.num_warps,
        source_digest=hashlib.sha256(jitted.src.encode()).hexdigest(),
        ptx_digest=hashlib.sha256(ptx.encode()).hexdigest(),
    )
    if cache:
        store.put(key, binary_file.pack(binary))
    return binary


def parameter_names(fn: Any) -> tuple[list[str], list[str]]:
    """Return the parameters of a @triton.jit function, and separately those that it declares as constexpr."""
    params = _unwrap(require_triton(), fn).params
    constexprs = [param.name for param in params if param.is_constexpr]
    return [param.name for param in params if not param.is_constexpr], constexprs


def require_triton() -> Any:
    """Return the package, or raise ToolMissing with the install command."""
    try:
        import triton
        import triton.backends.compiler
        import triton.compiler
    except ImportError as error:
        raise ToolMissing(f"Triton is not installed ({error}): {install_command('triton')}") from error
    return triton


def _unwrap(triton: Any, fn: Any) -> Any:
    """Return the @triton.jit function inside @triton.autotune and @triton.heuristics."""
    while not isinstance(fn, triton.JITFunction):
        inner = getattr(fn, "fn", None)
        if inner is None:
            raise UsageError(f"{fn!r} is not a @triton.jit function")
        fn = inner
    return fn


def _signature(jitted: Any, signature: Mapping[str, str], constexprs: Mapping[str, object]) -> dict[str, str]:
    """Return the types in the order of the parameters, with constants marked in Triton's form."""
    names = list(jitted.arg_names)
    if unknown := [name for name in (*signature, *constexprs) if name not in names]:
        raise UsageError(f"{jitted.__name__} has no parameter {', '.join(unknown)}")
    if missing := [name for name in names if name not in signature and name not in constexprs]:
        raise UsageError(f"{jitted.__name__}: give a type or a constexpr for {', '.join(missing)}")
    return {name: "constexpr" if name in constexprs else signature[name] for name in names}


def _compile(triton: Any, run: Callable[[], Any], jitted: Any, file: str) -> tuple[Any, str]:
    """Run Triton's compiler; return its result and the log of ptxas, which Triton only prints."""
    printed = io.StringIO()
    try:
        with _COMPILING, _settings(triton), contextlib.redirect_stdout(printed):
            return run(), printed.getvalue()
    except triton.compiler.errors.CompilationError as error:
        decorators = len(jitted.raw_src) - len(jitted.src.splitlines())  # Triton counts lines from the `def`
        line = jitted.starting_line_number + decorators + getattr(error.node, "lineno", 1) - 1
        message = error.error_message or str(error.__cause__ or error)
        diagnostic = Diagnostic("error", message, Place(file, line))
    except Exception as error:  # any error of a pass of Triton means that the source does not compile
        place = Place(file, jitted.starting_line_number)
        diagnostic = Diagnostic("error", f"{type(error).__name__}: {error}", place)
    raise CompileError(f"{jitted.__name__} does not compile: {diagnostic}", (diagnostic,))


@contextlib.contextmanager
def _settings(triton: Any) -> Iterator[None]:
    """Always compile (a hit in Triton's own cache has no ptxas log) and keep Triton's files in Weft's folder."""
    with (
        triton.knobs.nvidia.scope(),
        triton.knobs.compilation.scope(),
        triton.knobs.cache.scope(),
        key_by_times(triton),
    ):
        triton.knobs.nvidia.dump_ptxas_log = True
        triton.knobs.compilation.always_compile = True
        triton.knobs.cache.dir = str(knobs.cache_dir() / "triton_own")
        yield
