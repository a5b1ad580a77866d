"""Runs the parts of a launch on host threads whose stacks are large enough for the kernel's code.

A register of the kernel is 32 lanes, 128 bytes, and those that the CPU has no register for are on the stack. In
kernels of Triton libraries with 5 to 7.5 MB of code they took 8 to 12.5 MB; a usual stack has 8 MB.
"""

import threading
from collections.abc import Callable, Sequence

SMALL_CODE_BYTES = 1 << 20
"""Such code has frames of about 0.1 MB and runs on the caller's stack: a thread would double the time of a launch."""
STACK_PER_CODE = 8
"""Bytes of stack for a byte of code; only those that are used take memory."""
_PAGE = 1 << 16
_starting = threading.Lock()


def run_together(parts: Sequence[Callable[[], None]], code_bytes: int) -> None:
    """Run all parts at the same time and wait for them; the caller's thread takes the first of a small kernel."""
    large = code_bytes > SMALL_CODE_BYTES
    threads = [threading.Thread(target=part) for part in (parts if large else parts[1:])]
    with _starting:  # the size of new stacks is a setting of the process
        before = threading.stack_size(-(-STACK_PER_CODE * code_bytes // _PAGE) * _PAGE) if large else None
        try:
            for thread in threads:
                thread.start()
        finally:
            if before is not None:
                threading.stack_size(before)
    if not large:
        parts[0]()
    for thread in threads:
        thread.join()
