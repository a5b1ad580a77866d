"""The line after which a missing barrier belongs: the end of a statement, in the user's file, without a barrier yet."""

from collections.abc import Callable
from pathlib import Path

import pytest

from weft.core.records import Place
from weft.probes.barrier_line import BarrierLine, barrier_line
from weft.toolchain.cuda_headers import include_dirs

LOOP = """\
__global__ void f(float* o, int n) {
    for (int t = 0; t < n; ++t) {
        load(sK, t);
        __syncthreads();
        for (int d = 0; d < 8; ++d) {
            s += sQ[d] * sK[d];
        }
        if (t & 1)
            __syncthreads();
        load(sV, t);
        s +=
            sV[t];
    }
    sum[t] += sum[t + 32];
    while (n /= 2)
        sum[t] += sum[t + n];
    o[0] = sum[0];
}
"""


@pytest.fixture
def at(tmp_path: Path) -> Callable[[int], Place]:
    file = tmp_path / "f.cu"
    file.write_text(LOOP)
    return lambda line: Place(str(file), line)


def test_it_ends_the_statement_that_contains_one_access(at: Callable[[int], Place]) -> None:
    assert barrier_line(at(3), at(6), []) == BarrierLine(at(3))
    assert barrier_line(at(6), at(10), []) == BarrierLine(at(7)), "after the loop, not inside it"
    assert barrier_line(at(12), at(10), []) == BarrierLine(at(12)), "of the next iteration"


def test_if_a_barrier_orders_one_direction_the_other_has_none(at: Callable[[int], Place]) -> None:
    assert barrier_line(at(3), at(6), [at(4)]) == BarrierLine(at(7))
    assert barrier_line(at(6), at(3), [at(4)]) == BarrierLine(at(7))
    assert barrier_line(at(12), at(3), [at(4)]) == BarrierLine(at(12))


def test_a_barrier_under_a_condition_does_not_count(at: Callable[[int], Place]) -> None:
    assert barrier_line(at(6), at(10), [at(9)]) == BarrierLine(at(7))


def test_without_a_loop_there_is_no_path_back(at: Callable[[int], Place]) -> None:
    assert barrier_line(at(17), at(3), []) == BarrierLine(at(13))


def test_two_accesses_of_one_statement(at: Callable[[int], Place]) -> None:
    assert barrier_line(at(14), at(14), []) == BarrierLine(at(14), inside=True)
    assert barrier_line(at(16), at(16), []) == BarrierLine(at(16)), "between its iterations"
    assert barrier_line(at(11), at(12), [at(4)]) == BarrierLine(at(12), inside=True), (
        "a barrier separates its iterations already"
    )


def test_it_is_never_in_a_header_of_cuda(at: Callable[[int], Place]) -> None:
    header = str(include_dirs()[-1] / "cuda_fp16.hpp")
    read, written = Place(header, 90, inlined_at=at(6)), Place(header, 40, inlined_at=at(10))
    assert barrier_line(read, written, []) == BarrierLine(at(7))
    assert barrier_line(Place(header, 90, inlined_at=at(14)), Place(header, 40, inlined_at=at(14)), []) == BarrierLine(
        at(14), inside=True
    )
    assert barrier_line(Place(header, 90), at(3), []) is None


def test_in_the_function_that_contains_both(at: Callable[[int], Place]) -> None:
    call = at(17)
    here, there = Place(at(1).file, 3, inlined_at=call), Place(at(1).file, 6, inlined_at=call)
    assert barrier_line(here, there, []) == BarrierLine(at(3))
    assert barrier_line(here, at(6), []) == BarrierLine(at(13)), "line 17 calls the first; no path leads back"


def test_a_text_that_cannot_be_read() -> None:
    assert barrier_line(Place("gone.cu", 4), Place("gone.cu", 9), []) == BarrierLine(Place("gone.cu", 4))
    assert barrier_line(None, Place("gone.cu", 9), []) is None
