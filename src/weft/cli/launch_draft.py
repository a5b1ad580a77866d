"""Print how a file is launched to standard error: what was read from its host code, or a draft of launch lines."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from weft.core.errors import UsageError
from weft.engines.expressions import HOLE
from weft.engines.kernel_file import KernelFile, NoLaunchLines
from weft.interop.torch_extension.open_file import IncompleteImport
from weft.toolchain.ptx_file import is_ptx


@contextlib.contextmanager
def draft_shown(source: str | Path) -> Iterator[None]:
    """In this context NoLaunchLines prints its draft, ready to copy into a file, and its message is one sentence."""
    try:
        yield
    except IncompleteImport as error:
        for missing in error.missing:
            print(missing, file=sys.stderr)
        raise UsageError(error.sentence) from error
    except NoLaunchLines as error:
        print(error.draft, file=sys.stderr)
        where = f"for {Path(source).with_suffix('.launch')}" if is_ptx(source) else "to put at its head"
        replace = f": replace each {HOLE}" * (HOLE in error.draft)
        raise UsageError(
            f"{source} has no `// weft: launch` line; the lines above are a draft {where}{replace} "
            "(docs/tutorials/own_kernel.md)"
        ) from error


def say_host_code(kernel: KernelFile) -> None:
    """Print what was read from host code instead of launch lines, and what was assumed."""
    for note in kernel.source.host.notes if kernel.source.host is not None else ():
        print(note, file=sys.stderr)
