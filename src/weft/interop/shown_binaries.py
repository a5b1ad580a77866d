"""The binaries of a file, to be shown to the user; the file needs no launch lines."""

import os
from collections.abc import Mapping, Sequence

from weft.core.chips import choose_gpu, target_of
from weft.core.errors import UsageError
from weft.core.records import Binary
from weft.engines.compile_file import Build, compile_source
from weft.engines.kernel_file import read_host_code
from weft.engines.kernel_source import read_source

from .open_kernel import load
from .torch_extension.open_file import open_host_code


def shown_binaries(
    path: str | os.PathLike[str],
    *,
    gpu: str = "",
    entries: Sequence[str] = (),
    defines: Mapping[str, str] = {},
    sizes: Mapping[str, int] = {},
    include_dirs: Sequence[str] = (),
    compiler: str = "nvrtc",
) -> list[Binary]:
    """Return the kernels named in `entries`, else those of the launch lines at `sizes`, else all kernels of the file.

    `gpu` is as in `load`. A Triton file has one binary for each kernel that it launches.
    """
    source = read_source(path, None, include_dirs)
    gpu = choose_gpu(gpu, default=source.lines.gpu)
    source = read_host_code(source, open_host_code, target_of(gpu), include_dirs)
    if source.lines.launches and not entries:
        kernel = load(path, gpu=gpu, defines=defines, include_dirs=include_dirs, compiler=compiler)
        return list({binary.ptx_digest: binary for binary in kernel.binaries(sizes=sizes).values()}.values())
    if sizes:
        raise UsageError(f"--size selects kernels of launch lines, but {path} has none, or --entry names the kernels")
    if source.is_triton:
        raise UsageError(f"{path} has no `# weft: launch` line; see docs/reference/launch_lines.md")
    if source.compiled and (defines or include_dirs):
        raise UsageError(f"{path} is already compiled PTX: -D and -I have no effect")
    build = Build(target_of(gpu), tuple(include_dirs), False, compiler)
    return [compile_source(source, build, defines=defines, entries=entries)]
