"""Opens a kernel file, host code included, for every verb."""

import os
from collections.abc import Mapping, Sequence

from weft.engines.kernel_file import KernelFile
from weft.engines.kernel_file import load as load_lines


def load(
    path: str | os.PathLike[str],
    *,
    gpu: str = "",
    arch: str = "",
    defines: Mapping[str, str] = {},
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    launch: str | os.PathLike[str] | None = None,
    compiler: str = "nvrtc",
) -> KernelFile:
    """Read a CUDA, PTX or Triton file; launch lines that a CUDA file lacks are read from its host code.

    Raises IncompleteImport where host code does not give all of them, NoLaunchLines, with a draft, where there is none.
    `gpu` is the GPU it is compiled for (default: l4); `arch` (`sm_89`) chooses the smallest GPU of an architecture.
    `launch` is the launch-line file of a PTX file (default: the `.launch` file next to it), `compiler` `nvrtc` or
    `nvcc`.
    """
    from .torch_extension.open_file import open_host_code  # imported late: most files have no host code

    return load_lines(
        path,
        gpu=gpu,
        arch=arch,
        defines=defines,
        include_dirs=include_dirs,
        launch=launch,
        compiler=compiler,
        host_code=open_host_code,
    )
