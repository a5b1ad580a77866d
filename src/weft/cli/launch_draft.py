"""A file that does not say how it is launched: its draft of launch lines, on standard error."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from weft.core.errors import UsageError
from weft.engines.kernel_file import NoLaunchLines
from weft.toolchain.ptx_file import is_ptx


@contextlib.contextmanager
def draft_shown(source: str | Path) -> Iterator[None]:
    """Inside, NoLaunchLines prints its draft as it would stand in a file, and becomes one sentence."""
    try:
        yield
    except NoLaunchLines as error:
        print(error.draft, file=sys.stderr)
        where = f"for {Path(source).with_suffix('.launch')}" if is_ptx(source) else "to put at its head"
        raise UsageError(f"{source} has no `// weft: launch` line; the lines above are a draft {where}") from error
