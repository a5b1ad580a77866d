"""A deadlock is reported as a deadlock, not as an output that is never stored."""

from pathlib import Path

from tests.diagnose.edited import text_of
from weft.diagnose.conclusion import place_of, sentence
from weft.diagnose.diagnose import diagnose
from weft.judge.select import Choice, find_candidate

WAITS = 'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");'


def test_a_barrier_that_one_warp_waits_at_alone(tmp_path: Path) -> None:
    start = "    float m = -CUDART_INF_F, l = 0.0f;"
    file = tmp_path / "mine.cu"
    file.write_text(text_of("scalar", start, f"{start}\n    {WAITS}"))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if WAITS in text)
    found = diagnose(*find_candidate(str(file), task=None), Choice(shapes=("small",), masks=("none",), seeds=(0,)))
    assert sentence(found).startswith("S301 ")
    assert not found.signatures
    place = place_of(found)
    assert place is not None and place.line == line
