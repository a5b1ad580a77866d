"""In a child process of a test under `pytest --weft`: the virtual GPU, once the child needs it."""

import atexit
import importlib.abc
import importlib.machinery
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.core import knobs

_PACKAGES = ("torch", "triton")


def activate_when_needed() -> None:
    """Activate the test's virtual GPU when PyTorch has been imported, or when Triton looks for a driver.

    Most processes need none: one that only imports Triton must not wait for PyTorch.
    """
    given = knobs.child_of_test()
    if given and not any(isinstance(each, _Imports) for each in sys.meta_path):
        sys.meta_path.insert(0, _Imports(_Activation(json.loads(given))))


class _Activation:
    """The virtual GPU of this process, made at most once."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._done = False

    def after(self, package: str) -> None:
        """Act on the end of an import."""
        if "torch" in sys.modules:
            self()
        elif package == "triton":
            drivers = sys.modules["triton.runtime.driver"]
            create = drivers._create_driver

            def create_driver() -> Any:
                self()
                return create()

            setattr(drivers, create.__name__, create_driver)

    def __call__(self) -> None:
        if self._done:
            return
        self._done = True
        try:
            import weft.triton as virtual
        except ImportError as error:
            said = f"this process of a test under --weft has no virtual GPU: {error}"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
            return
        device = virtual.activate(self._settings["gpu"], tools=self._settings["tools"], cuda=True)
        atexit.register(_count, device, Path(self._settings["counts"]))


class _Imports(importlib.abc.MetaPathFinder):
    """Sees when the imports of PyTorch and Triton end, both if one imports the other."""

    def __init__(self, activation: _Activation) -> None:
        self._activation = activation
        self._under_way = 0

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _PACKAGES:
            return None
        others = (each for each in sys.meta_path if each is not self)
        found = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if found is not None and found.loader is not None:
            self._follow(found.loader)
        return found

    def _follow(self, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            self._under_way += 1
            try:
                load(module)
            finally:
                self._under_way -= 1
            if not self._under_way:
                self._activation.after(module.__name__)

        loader.exec_module = exec_module


def _count(device: Any, folder: Path) -> None:
    """Tell the test's process what ran."""
    ran = {"launches": device.launches, "refused": device.refused, "kernels": sorted(device.kernels)}
    if folder.is_dir():
        (folder / f"{os.getpid()}.json").write_text(json.dumps(ran))
