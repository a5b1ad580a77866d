"""Host threads of a launch: small kernels run on the caller's, large ones on threads with a stack for their code."""

import ctypes
import threading

import pytest

from weft.vm.host_threads import SMALL_CODE_BYTES, STACK_PER_CODE, run_together

_libc = ctypes.CDLL(None)


def stack_bytes() -> int:
    """Return the size of the calling thread's stack, as the C library knows it."""
    _libc.pthread_self.restype = ctypes.c_void_p
    attributes, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
    assert _libc.pthread_getattr_np(ctypes.c_void_p(_libc.pthread_self()), attributes) == 0
    assert _libc.pthread_attr_getstacksize(attributes, ctypes.byref(size)) == 0
    return size.value


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("code_bytes", [SMALL_CODE_BYTES, 10 * SMALL_CODE_BYTES + 1], ids=["small", "large"])
def test_every_part_runs_once_on_a_stack_for_its_code(parts: int, code_bytes: int) -> None:
    ran: list[tuple[int, int, int]] = []
    before = threading.stack_size()
    together = threading.Barrier(parts, timeout=60)

    def part(number: int) -> None:
        together.wait()
        ran.append((number, threading.get_ident(), stack_bytes()))

    run_together([lambda number=number: part(number) for number in range(parts)], code_bytes)
    assert sorted(number for number, _, _ in ran) == list(range(parts)) and threading.stack_size() == before
    own = {number for number, thread, _ in ran if thread == threading.get_ident()}
    if code_bytes == SMALL_CODE_BYTES:
        assert own == {0}
    else:
        assert own == set() and min(stack for _, _, stack in ran) >= STACK_PER_CODE * code_bytes
