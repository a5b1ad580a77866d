"""A user's list of ncu metrics: read, checked by name before anything runs, and answered where Weft can."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import UsageError
from weft.model.ncu_names import problem

from .ncu_values import Relation, Said

_COMMENT = re.compile(r"(?:#|//).*")
_BETWEEN = re.compile(r"[\s,;\\\"'=]+")
_WORDS = ("ncu", "--metrics")
"""A list may be copied from a command line."""
_REASONS = (
    (("stall", "pcsamp", "issue_active", "eligible"), "stalls depend on the hardware's schedule"),
    (("hit_rate", "lookup_hit", "lookup_miss"), "cache contents are not modelled"),
    (("pct_of_peak", "per_second", "per_cycle", "throughput"), "a share of time, which only a GPU has"),
    (("cycles", "time_"), "time, which only a GPU has: see the bounds and the estimate"),
    (("warps_active",), "achieved occupancy depends on the hardware's schedule"),
    (("dram__", "lts__", "lrc__", "fbpa__"), "traffic beyond L1 depends on cache contents"),
)
"""Parts of a name → why Weft does not count it."""


@dataclass(frozen=True)
class Answer:
    """One name of the list. `said` is None for what needs hardware; `why` is the reason, or a remark on the value."""

    metric: str
    said: Said | None
    why: str


def read_list(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list or of a file (comments start with # or //), each once."""
    path = Path(text)
    if path.is_file():
        text = path.read_text(encoding="utf-8")
    elif path.suffix in (".txt", ".list", ".metrics") or "/" in text:
        raise UsageError(f"--metrics {text}: there is no such file")
    words = (word for line in text.splitlines() for word in _BETWEEN.split(_COMMENT.sub("", line)))
    names = tuple(dict.fromkeys(word for word in words if word and word not in _WORDS))
    if not names:
        raise UsageError("--metrics: the list is empty")
    return names


def check_list(metrics: Sequence[str], capability: str) -> None:
    """Raise UsageError with every metric that ncu would refuse on such a GPU."""
    found = [(name, why) for name in metrics if (why := problem(name, capability))]
    if found:
        reasons = "; ".join(f"{name}: {why}" for name, why in found)
        raise UsageError(
            f"{len(found)} of {len(metrics)} metrics are not available, and nothing ran: {reasons} "
            "(`ncu --query-metrics` lists the metrics of an ncu version)"
        )


def answer(metric: str, values: Mapping[str, Said]) -> Answer:
    """Return the answer for a metric; a base name is answered by its sum."""
    said = values.get(metric) or values.get(f"{metric}.sum")
    if said is None:
        reason = next((why for parts, why in _REASONS if any(part in metric for part in parts)), None)
        return Answer(
            metric, None, f"needs hardware: {reason}" if reason else "Weft does not count it, ncu on a GPU does"
        )
    if said.relation is Relation.SAME:
        return Answer(metric, said, "" if metric in values else f"of it, {metric}.sum")
    bound = "at least: " if said.relation is not Relation.RELATED else "not the same: "
    return Answer(metric, said, f"{bound}{said.why}")
