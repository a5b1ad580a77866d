"""The kernel of a tool call: a path, a rung's name, or text."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.engines.launch_lines import options_of
from weft.kernels.ladder import RUNGS
from weft.supervise.screen import screen, screen_options, without_allows

LANGUAGES = {"cuda": "kernel.cu", "ptx": "kernel.ptx"}


@dataclass(frozen=True)
class Given:
    """The source that a tool was called with."""

    path: str = ""
    text: str = ""
    language: str = "cuda"
    launch: str = ""
    """Launch lines of a PTX text."""

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.text):
            raise UsageError("give the kernel as `path` (a file, or a rung of the ladder) or as `text`, not both")
        if self.text and self.language not in LANGUAGES:
            raise UsageError(
                f"text is {' or '.join(LANGUAGES)}, not {self.language!r}; give a Triton kernel by its path"
            )
        if self.path and self.path not in RUNGS and not Path(self.path).is_file():
            raise UsageError(
                f"there is no file {self.path} on this machine (relative to {Path.cwd()}): give an absolute path, the "
                f"source as `text`, or a rung of the ladder{did_you_mean(self.path, RUNGS)}: {', '.join(RUNGS)}"
            )


@contextlib.contextmanager
def written(given: Given) -> Iterator[str]:
    """Yield a target that Weft opens. Text is screened like every candidate and written to a temporary folder.

    This changes to that folder, so that places in answers are `kernel.cu:12`: use it only in a separate process.
    """
    if given.path:
        yield given.path
        return
    screen(given.text, given.language, given.launch)
    with tempfile.TemporaryDirectory(prefix="weft-mcp-") as folder, contextlib.chdir(folder):
        file = Path(LANGUAGES[given.language])
        file.write_text(without_allows(given.text), newline="")
        if given.launch:
            file.with_suffix(".launch").write_text(without_allows(given.launch), newline="")
        screen_options(options_of(file))
        yield str(file)
