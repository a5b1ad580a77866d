"""Right kernels in many forms, none of which may be rejected: every CUDA rung at every value of its levers, one changed
at a time, and kernels that `weft evolve` makes.
"""

from collections.abc import Iterator
from random import Random

from weft.core.chips import DEFAULT_GPU
from weft.evolve.levers import family, render, start_of, two_levers
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.supervise.records import CandidateSource, Request

RENDERED = 8
SHAPE = "few_keys"


def honest_kernels() -> Iterator[tuple[str, Request]]:
    """Return names and requests, always the same."""
    for name, rung in RUNGS.items():
        if rung.language != "CUDA":
            continue  # Triton is Python: no candidate
        text = rung.path.read_text()
        points = [{}, *({lever: value} for lever, values in rung.levers.items() for value in values[1:])]
        dtypes = rung.outputs if rung.encodings else rung.dtypes
        choice = Choice((SHAPE,), ("unit_normal",), rung.masks[:1], dtypes[:1], rung.encodings[:1], seeds=(0,))
        for point in points:
            said = " ".join(f"{lever}={value}" for lever, value in point.items()) or "as it is"
            request = Request(
                CandidateSource(text, defines=point),
                rung.task,
                name,
                choice,
                score=None,
                debug_build=False,
                chip=rung.gpu or DEFAULT_GPU,
            )
            yield f"{name} {said}", request
    space, random = family("sdpa"), Random(11)
    point = start_of("wmma")
    seen = {point}
    for _ in range(RENDERED):
        point = two_levers(space, point, random, avoid=frozenset(seen))
        seen.add(point)
        choice = Choice((SHAPE,), ("unit_normal",), ("none",), ("f16",), seeds=(0,))
        yield point.text, Request(CandidateSource(render(space, point)), choice=choice, score=None, debug_build=False)
