"""Parts of a diagnosis that its text, its JSON and its page all show."""

from dataclasses import dataclass

from weft.attention.shapes import SHAPES
from weft.tasks.task import PLAIN

from .compare import BY_KEY
from .records import Diagnosis, Divergence

SHOWN_COLUMNS = 8


@dataclass(frozen=True)
class RowExcerpt:
    """A few elements around the first wrong one, in its row; of a stage without columns, rows around it."""

    kind: str
    """What the elements are numbered by: key, column or row."""
    row: int | None
    numbers: tuple[int, ...]
    wrong: tuple[bool, ...]
    expected: tuple[float, ...]
    actual: tuple[float | None, ...]
    """None: not observed."""

    @property
    def label(self) -> str:
        return self.kind if self.row is None else f"{self.kind}, row {self.row}"


def row_excerpt(first: Divergence) -> RowExcerpt:
    """Return the expected row next to the actual one."""
    has_columns = len(first.index) == 4
    at, line = first.index[-1], first.index[:-1]
    count = first.expected.shape[-1]
    start = max(0, min(at - 1, count - SHOWN_COLUMNS))
    shown = range(start, min(start + SHOWN_COLUMNS, count))
    offset = first.keys.start if first.stage in BY_KEY else 0
    return RowExcerpt(
        kind="key" if first.stage in BY_KEY else "column" if has_columns else "row",
        row=line[2] if has_columns else None,
        numbers=tuple(i + offset for i in shown),
        wrong=tuple(bool(first.wrong[(*line, i)]) for i in shown),
        expected=tuple(float(first.expected[(*line, i)]) for i in shown),
        actual=tuple(float(first.actual[(*line, i)]) if first.observed[(*line, i)] else None for i in shown),
    )


def where_wrong(first: Divergence) -> str:
    """Return `u of KV tile 1 (keys 32-63): batch 0 head 0, rows 0-2, columns 0-31; 43.8 % of the observed elements`."""
    keys = "" if first.tile is None else f" ({_span('key', first.keys)})"
    columns = f", {'keys' if first.stage in BY_KEY else 'columns'} {first.columns}" if first.columns else ""
    rows = "keys" if first.stage in ("k", "v") else "rows"
    share = f"{100 * first.share:.3g} % of the observed elements"
    return f"{first.name}{keys}: {first.heads}, {rows} {first.rows}{columns}; {share}"


def case_line(diagnosis: Diagnosis) -> str:
    """Return sizes, types and origin of the diagnosed workload."""
    first, work = diagnosis.case.first_verdict.workload, diagnosis.verdict.workload
    shape = work.shape
    sizes = f"B={shape.b} HQ={shape.hq} HKV={shape.hkv} SQ={shape.sq} SKV={shape.skv} D={shape.d}"
    rest = f"{'' if work.encoding == PLAIN else work.encoding + ' → '}{work.dtype}, mask {work.mask}, {work.regime}"
    origin = f" (shrunk from {first})" if work != first else f" ({shape.name})"
    return f"{sizes}, {rest}, seed {work.seed}{origin}"


def verify_command(diagnosis: Diagnosis) -> str:
    """Return the command that judges the workload that failed first again."""
    case, work = diagnosis.case, diagnosis.case.first_verdict.workload
    if work.shape.name not in SHAPES:
        return "the same command again"
    seeds = " --seeds 1" if work.seed == 0 else f" --seed {work.seed}"
    encoding = "" if work.encoding == PLAIN else f" --encodings {work.encoding}"
    options = f"--shapes {work.shape.name} --masks {work.mask} --regimes {work.regime} --dtypes {work.dtype}"
    return f"weft check {case.candidate.rung or case.candidate.path} --task {case.task.name} {options}{encoding}{seeds}"


def _span(noun: str, keys: range) -> str:
    return f"{noun} {keys.start}" if len(keys) == 1 else f"{noun}s {keys.start}-{keys.stop - 1}"
