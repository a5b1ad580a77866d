"""Python imports this file when it starts a child process of a test under `pytest --weft` (`children.py`)."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]
own = importlib.machinery.PathFinder.find_spec(__name__, sys.path)
if own is not None and own.loader is not None:  # the environment's own file of this name
    sys.modules[__name__] = importlib.util.module_from_spec(own)
    own.loader.exec_module(sys.modules[__name__])
if importlib.util.find_spec("weft") is not None:  # otherwise another environment's Python, which has no virtual GPU
    from weft.pytest_plugin.in_child import activate_when_needed

    activate_when_needed()
