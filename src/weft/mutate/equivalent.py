"""Whether a mutant differs from its original: it compiles, and its PTX or its runs are different.

Only two proofs show that a mutant is equivalent: the same PTX in every build the kernel supports, or the same bits
and the same findings on workloads that no judge uses, larger than the judge's.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from weft.attention.shapes import SHAPES
from weft.core.errors import WeftError
from weft.core.records import Finding
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.judge.select import Supports
from weft.probes.tools import watch_for
from weft.tasks.task import Task, Workload

_LINE_INFORMATION = re.compile(r"\s*(?://.*|\.loc\b.*|\.file\b.*|\$L__(?:tmp|func_begin|func_end)\w*:.*)?")
_INTERNAL = re.compile(r"_INTERNAL_[0-9a-f]+_\d+_\w+?_[0-9a-f]{8}_\d+")
_TEXT = re.compile(r"\.global \.align 1 \.b8 (?:\$str|__unnamed)[\w$]*\[.*")
_VARIABLE = re.compile(r"\.global \.align \d+ \.\w+ (\w+)(?:\[\d+\])? =.*")

SEEDS = (1009, 1013)
"""No judge uses these seeds."""
LARGER = ("validation_128", "split_256", "split_65", "d80", "d96", "d128", "gqa_8", "few_queries", "decode_draft")
"""None is in the quick selection of `sdpa`, `fp8_sdpa` or `quantised_sdpa`; each is larger in some direction."""
REGIMES = ("unit_normal", "logits_16", "one_hot", "reversed_keys", "outlier_channels", "all_equal")


class Build(StrEnum):
    """The result of compiling a mutant."""

    REFUSED = "refused"
    """A build fails that the original compiles: it does not count as a mutant."""
    SAME = "same"
    """The PTX of every build is the original's."""
    DIFFERENT = "different"


def canonical(ptx: str) -> str:
    """Return PTX without its origin: line information, names of files, unused constants."""
    body = _INTERNAL.sub("_INTERNAL", ptx.split("\t.section\t", 1)[0])
    rows = [row.split("//")[0].rstrip() for row in body.splitlines()]
    rows = [row for row in rows if not _LINE_INFORMATION.fullmatch(row) and not _TEXT.fullmatch(row)]
    words = Counter(re.findall(r"\w+", "\n".join(rows)))
    kept = (row for row in rows if not (match := _VARIABLE.fullmatch(row)) or words[match[1]] > 1)
    return "\n".join(kept)


def builds(supports: Supports) -> Iterator[Workload]:
    """Yield one small workload per build: the first of everything, then every other choice of one axis alone."""
    shape = SHAPES["small"]
    first = Workload(shape, supports.dtypes[0], supports.masks[0], "unit_normal", 0, supports.encodings[0])
    yield first
    yield from (replace(first, mask=mask) for mask in supports.masks[1:])
    yield from (replace(first, dtype=dtype) for dtype in supports.dtypes[1:])
    yield from (replace(first, encoding=encoding) for encoding in supports.encodings[1:])
    for name in ("d32", "d80", "d96", "d128", "decode_draft"):
        if supports.takes(SHAPES[name]):
            yield replace(first, shape=SHAPES[name])


class Original:
    """The right kernel that mutants are compared with; each of its builds is compiled once."""

    def __init__(self, candidate: Candidate, supports: Supports) -> None:
        self.candidate, self.supports = candidate, supports
        self._ptx: dict[Workload, Mapping[str, str]] = {}
        self._runs: dict[Workload, _Shown] = {}

    def compare(self, mutated: Candidate) -> Build:
        """Return how the mutant's builds compare; the first that differs decides, so most cost one compilation."""
        task = self.supports.task
        for workload in builds(self.supports):
            if workload not in self._ptx:
                self._ptx[workload] = _ptx(self.candidate, task, workload)
            try:
                found = _ptx(mutated, task, workload)
            except WeftError:
                return Build.REFUSED
            if found != self._ptx[workload]:
                return Build.DIFFERENT
        return Build.SAME

    def same_runs(self, mutated: Candidate, todo: Sequence[Workload]) -> bool:
        """Whether outputs agree bit for bit, and findings in code and line, on all workloads."""
        task = self.supports.task
        return all(self._own_run(each) == _run(mutated, task, each) for each in todo)

    def _own_run(self, workload: Workload) -> "_Shown":
        if workload not in self._runs:
            self._runs[workload] = _run(self.candidate, self.supports.task, workload)
        return self._runs[workload]


def _ptx(candidate: Candidate, task: Task, workload: Workload) -> Mapping[str, str]:
    problem = task.draw(workload)
    binaries = candidate.load(problem).binaries(problem.arrays)
    return {entry: canonical(binary.ptx) for entry, binary in binaries.items()}


def larger_workloads(supports: Supports) -> tuple[Workload, ...]:
    """Return workloads that no judge uses: other shapes, seeds and regimes, with every mask, type and encoding."""
    found: list[Workload] = []
    shapes = [SHAPES[name] for name in LARGER if name in supports.task.workloads.shapes]
    regimes = [name for name in REGIMES if name in supports.task.workloads.regimes]
    for number, shape in enumerate(each for each in shapes if supports.takes(each)):
        for turn, mask in enumerate(supports.masks):
            at = number + turn
            dtype, regime = supports.dtypes[at % len(supports.dtypes)], regimes[at % len(regimes)]
            if not supports.takes_values(regime, dtype):
                regime = regimes[0]
            encoding = supports.encodings[at % len(supports.encodings)]
            found.append(Workload(shape, dtype, mask, regime, SEEDS[at % len(SEEDS)], encoding))
    return tuple(found)


_Shown = tuple[Mapping[str, bytes], frozenset[object]] | str
"""Outputs and findings of a run, or why there was none."""


def _run(candidate: Candidate, task: Task, workload: Workload) -> _Shown:
    problem = task.draw(workload)
    inputs = {name: array.copy() for name, array in problem.arrays.items()}
    try:
        kernel = candidate.load(problem)
        gpu = VirtualGPU(kernel.gpu)
        run, arrays = kernel.run(gpu, inputs, watch=watch_for(("all",)), max_steps=candidate.max_steps)
    except WeftError as error:
        return f"{type(error).__name__} on {workload}"
    outputs = {output.name: arrays[output.name].tobytes() for output in task.outputs if output.name in arrays}
    return outputs, frozenset(map(_which, run.findings))


def _which(finding: Finding) -> tuple[str, int]:
    return finding.code, finding.place.line if finding.place else 0
