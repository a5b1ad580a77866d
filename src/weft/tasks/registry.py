"""The tasks that Weft includes, and tasks from a user's file."""

import runpy
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from weft.core.errors import UsageError
from weft.core.names import did_you_mean

from .fp8_sdpa import FP8_SDPA
from .qk_dot import QK_DOT
from .quantised_sdpa import QUANTISED_SDPA
from .sdpa import SDPA
from .sdpa_backward import SDPA_BACKWARD
from .sdpa_decode import SDPA_DECODE
from .task import Task
from .variants import PAGED_DECODE, PAGED_DECODE_FP8, SDPA_VARLEN, SLIDING_WINDOW, SOFTCAP_SINKS

_DENSE = (QK_DOT, SDPA, FP8_SDPA, QUANTISED_SDPA, SDPA_DECODE, SDPA_BACKWARD)
_VARIANTS = (SLIDING_WINDOW, SOFTCAP_SINKS, SDPA_VARLEN, PAGED_DECODE, PAGED_DECODE_FP8)
TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in (*_DENSE, *_VARIANTS)})
"""Tasks by name."""


def find_task(name: str) -> Task:
    """Return a task by name, or the `TASK` of a Python file, which is run."""
    if name in TASKS:
        return TASKS[name]
    path = Path(name)
    if path.suffix != ".py":
        known = f"{', '.join(TASKS)}, or a Python file that defines TASK"
        raise UsageError(f"task {name!r}{did_you_mean(name, TASKS)}: use one of {known}")
    if not path.is_file():
        raise UsageError(f"task {name}: there is no such file")
    found = runpy.run_path(str(path)).get("TASK")
    if not isinstance(found, Task):
        raise UsageError(f"{name} does not define `TASK = Task(…)`; see docs/howto/add_task.md")
    return found
