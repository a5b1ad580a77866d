"""Puts the stand-in CUDA driver of `weft exec` into the wheel, if scripts/build_driver has built it for the machine.

Such a wheel is for one platform. Without the library the wheel is for all, and only `weft exec` is missing from it.
WEFT_MACHINE (x86_64, aarch64) chooses another machine than this one.
"""

import os
import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "libcuda.so.1"
RELEASED = "manylinux_2_17"
"""A file with this name next to the library: it was built for glibc 2.17."""


class DriverHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the libraries and the platform's tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Change the build data of a wheel."""
        machine = os.environ.get("WEFT_MACHINE", platform.machine())
        folder = f"weft/driver/lib/linux-{machine}"
        built = Path(self.root, "src", folder)
        if self.target_name != "wheel" or version == "editable" or not (built / LIBRARY).is_file():
            return
        for library in built.glob("*.so.*[0-9]"):
            build_data["force_include"][str(library)] = f"{folder}/{library.name}"
        build_data["pure_python"] = False
        system = RELEASED if (built / RELEASED).exists() else "linux"
        build_data["tag"] = f"py3-none-{system}_{machine}"
