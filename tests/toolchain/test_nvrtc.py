"""A fault of the installation is not the kernel's."""

import shutil
import subprocess
import sys
from pathlib import Path

from cuda.pathfinder import load_nvidia_dynamic_lib

COMPILE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])  # cuda-bindings takes the library that is loaded already
from weft.core.errors import ToolMissing
from weft.toolchain.nvrtc import compile_program
try:
    compile_program("__global__ void k() {}", name="k.cu", options=["-arch=sm_89"])
except ToolMissing as error:
    print(error)
"""


def test_a_missing_library_of_nvrtc_is_no_compile_error(tmp_path: Path) -> None:
    """NVRTC looks for its built-in functions next to itself."""
    whole = load_nvidia_dynamic_lib("nvrtc").abs_path
    assert whole is not None
    alone = Path(shutil.copy(Path(whole).resolve(), tmp_path / Path(whole).name))
    done = subprocess.run([sys.executable, "-c", COMPILE, str(alone)], capture_output=True, text=True, check=True)
    assert "failed to open libnvrtc-builtins" in done.stdout
    assert done.stdout.rstrip().endswith("pip install --force-reinstall nvidia-cuda-nvrtc")
