"""Python processes that tests start: they have the test's virtual GPU and report what ran on it.

A variable of the environment names chip and checkers; a folder in PYTHONPATH holds the file that every Python imports
when it starts. A process that gets another environment, or runs with `-I` or `-E`, is not reached.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.core.knobs import CHILD_OF_TEST

_START = str(Path(__file__).parent / "child_start")


class Children:
    """What child processes find in their environment from now on."""

    def __init__(self) -> None:
        self._before = {name: os.environ.get(name) for name in ("PYTHONPATH", CHILD_OF_TEST)}
        self._counts = Path(tempfile.mkdtemp(prefix="weft-children-"))

    def tell(self, gpu: str, tools: Sequence[str]) -> None:
        """Give processes that start from now on this chip and these checkers."""
        os.environ[CHILD_OF_TEST] = json.dumps({"gpu": gpu, "tools": tools, "counts": str(self._counts)})
        paths = [_START, self._before["PYTHONPATH"] or ""]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    def counts(self) -> list[dict[str, Any]]:
        """Return what ran in processes that have ended, as `Active.counts` does."""
        return [json.loads(file.read_text()) for file in sorted(self._counts.glob("*.json"))]

    def close(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(self._counts, ignore_errors=True)
