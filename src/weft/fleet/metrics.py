"""The status in the Prometheus text exposition format 0.0.4."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .status import FleetStatus

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Metric:
    """A name with its samples, by labels."""

    name: str
    kind: str
    """`gauge` or `counter`."""
    help: str
    samples: Mapping[Labels, float] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        """Yield its lines; nothing if it has no samples."""
        if self.samples:
            yield f"# HELP {self.name} {self.help}"
            yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples.items():
            inside = ",".join(f'{name}="{_escape(text)}"' for name, text in labels)
            yield f"{self.name}{{{inside}}} {value}" if labels else f"{self.name} {value}"


def metrics(status: FleetStatus) -> tuple[Metric, ...]:
    """Return the metrics. Counters never fall, as rows of the store are never deleted; other numbers are gauges."""
    census, oldest = status.census, status.oldest_lease_seconds
    lives = Counter((worker.row.kind, worker.life) for worker in status.workers)
    # One series per recent worker: series of workers that are gone would accumulate.
    alive = [worker for worker in status.workers if worker.life in ("running", "silent")]
    runs = Counter(run.state for run in status.runs)
    return (
        Metric(
            "weft_evaluations",
            "gauge",
            "Evaluations of the queue by state.",
            {(("state", state.value.lower()),): count for state, count in census.depth.items()},
        ),
        Metric(
            "weft_evaluations_waiting",
            "gauge",
            "Queued evaluations by what they need.",
            {(("needs", needs),): count for needs, count in sorted(census.waiting.items())},
        ),
        Metric(
            "weft_verdicts_total",
            "counter",
            "Evaluations that ended, by status.",
            {(("status", status_),): count for status_, count in sorted(census.statuses.items())},
        ),
        Metric("weft_verdicts_cached_total", "counter", "Evaluations answered by the cache.", {(): census.cached}),
        Metric(
            "weft_verdicts_per_minute", "gauge", "Verdicts of all workers, over the window.", {(): status.per_minute}
        ),
        Metric(
            "weft_leases_overdue", "gauge", "Leases that expired and were not taken over yet.", {(): census.overdue}
        ),
        Metric(
            "weft_oldest_lease_seconds",
            "gauge",
            "Seconds since the oldest lease was renewed.",
            {} if oldest is None else {(): oldest},
        ),
        Metric(
            "weft_workers",
            "gauge",
            "Workers by kind and state.",
            {(("kind", kind), ("life", life)): count for (kind, life), count in sorted(lives.items())},
        ),
        Metric(
            "weft_worker_silent_seconds",
            "gauge",
            "Seconds since the last heartbeat of a worker.",
            {(("worker", worker.row.name),): worker.silent_seconds for worker in alive},
        ),
        Metric(
            "weft_worker_verdicts_per_minute",
            "gauge",
            "Verdicts of a worker, over the window.",
            {(("worker", worker.row.name),): worker.per_minute for worker in alive},
        ),
        Metric(
            "weft_runs",
            "gauge",
            "Runs by state.",
            {(("state", state),): count for state, count in sorted(runs.items())},
        ),
    )


def exposition(status: FleetStatus) -> str:
    """Return the page that Prometheus scrapes."""
    return "".join(line + "\n" for metric in metrics(status) for line in metric.lines())


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
