"""The program as a child process: its environment, its start, its end."""

import ctypes
import os
import platform
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.core import knobs
from weft.core.errors import ToolMissing, UsageError

LIBRARY, AUDIT = "libcuda.so.1", "libweft_audit.so"
RUNTIMES = ("libcudart.so.13", "libcudart.so.12")
"""The CUDA runtime over our driver, newest first."""
SOCKET, TRACE = "WEFT_DRIVER_SOCKET", "WEFT_DRIVER_TRACE"
FOLDER, NOTES, DEVICES = "WEFT_DRIVER_FOLDER", "WEFT_DRIVER_NOTES", "WEFT_DRIVER_DEVICES"
"""What the libraries read in the program's process."""
CACHES = {"CUPY_CACHE_DIR": "cupy", "PYCUDA_CACHE_DIR": "pycuda", "NUMBA_CACHE_DIR": "numba"}
"""Where clients keep machine code that they compiled: not together with that of a GPU, which may lack its PTX."""
_PR_SET_PDEATHSIG = 1


def library_folder() -> Path:
    """Return the folder of the stand-in driver. Raises ToolMissing if this installation has none for this machine."""
    folder = Path(__file__).parent / "lib" / f"{platform.system()}-{platform.machine()}".lower()
    if not (folder / LIBRARY).is_file():
        raise ToolMissing(
            f"`weft exec` needs {LIBRARY}, which this installation of Weft does not have for {folder.name}: install "
            "Weft's wheel for Linux on x86-64 or aarch64, or run scripts/build_driver in a copy of the sources (it "
            "needs a C compiler; with --release the package ziglang is the compiler)"
        )
    return folder


def listen(path: str) -> socket.socket:
    """Return a socket to which the program can connect before anything accepts."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)
    return listening


def environment(library: Path, path: str, trace: Path | None, devices: str = "") -> dict[str, str]:
    """Return the environment of the program: it finds our driver first, and the driver finds the server."""
    found = dict(os.environ)
    notes = notes_folder()
    notes.mkdir(parents=True, exist_ok=True)
    _prepend(found, "LD_LIBRARY_PATH", str(library))
    _prepend(found, "LD_AUDIT", str(library / AUDIT))
    # Loaded, so that a runtime inside the program can be replaced by it.
    for runtime in reversed(RUNTIMES):
        _prepend(found, "LD_PRELOAD", str(library / runtime))
    found["TRITON_LIBCUDA_PATH"] = str(library)
    found["NVCC_APPEND_FLAGS"] = f"{found.get('NVCC_APPEND_FLAGS', '')} -lineinfo".strip()
    for variable, folder in CACHES.items():
        if variable not in found:
            found[variable] = str(notes.parent / folder)
            (notes.parent / folder).mkdir(exist_ok=True)
    found |= {SOCKET: path, FOLDER: str(library), NOTES: str(notes), DEVICES: devices}
    found.pop(TRACE, None)
    if trace is not None:
        trace.write_text("")
        found[TRACE] = str(trace.resolve())
    return found


def notes_folder() -> Path:
    """Return the folder in which the audit library keeps the PTX of cubins that the program compiled."""
    return knobs.cache_dir().resolve() / "clients" / "ptx"


def _prepend(variables: dict[str, str], name: str, value: str) -> None:
    others = variables.get(name, "")
    variables[name] = f"{value}:{others}" if others else value


def start(command: Sequence[str], variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the program. It is killed if this process ends before it."""
    c_library = ctypes.CDLL(None)

    def die_with_parent() -> None:
        c_library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    try:
        return subprocess.Popen(command, env=dict(variables), preexec_fn=die_with_parent)
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}") from error


def wait(child: "subprocess.Popen[bytes]") -> int:
    """Wait for the program; return its exit code, 128 + n if signal n ended it. Signals are the program's to handle."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    terminate = signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
    try:
        code = child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminate)
    return code if code >= 0 else 128 - code
