"""Where an answer was found: everything outside the bundle that could change it."""

import platform

import llvmlite
import ml_dtypes
import numpy as np

import weft
from weft.supervise.key import judge_version
from weft.toolchain import cuda_headers, nvrtc
from weft.vm.jit import host


def environment() -> dict[str, str]:
    """Of this machine and this installation. No names of machines, users or folders."""
    return {
        "weft": weft.__version__,
        "judge": judge_version()[:16],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "llvmlite": llvmlite.__version__,
        "compiler": nvrtc.version(),
        "headers": cuda_headers.fingerprint()[:16],
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": host()[0],
    }
