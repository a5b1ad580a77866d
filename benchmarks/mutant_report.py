"""Rows of `mutants.py` → figures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

Row = dict[str, Any]

RATES = {
    "killed_rate": "killed",
    "stage_rate": "stage_right",
    "line_rate": "line_right",
    "line_top3_rate": "line_among_three",
    "signature_rate": "named",
}
NAMES = {
    "weft": "weft diagnose",
    "robust_kbench_like": "5 seeds × shapes × masks, 1e-3",
    "kernelbench_like": "5 seeds, one shape, 1e-2",
    "loose": "the loose gate",
}


def report(rows: Sequence[Row]) -> Row:
    """Return all published figures."""
    tried = [row for row in rows if row["outcome"] not in ("original", "refused")]
    counted = [row for row in tried if row["outcome"] in ("killed", "survived")]
    originals = [row for row in rows if row["outcome"] == "original"]
    seconds = [row["seconds"] for row in counted]
    same = [row for row in tried if row not in counted]
    return {
        "total": len(counted),
        "rungs": len({row["rung"] for row in counted}),
        **_rates(counted),
        **{f"heldout_{name}": rate for name, rate in _rates([row for row in counted if row["held_out"]]).items()},
        "heldout_total": sum(row["held_out"] for row in counted),
        "with_repair": _repair_rates([row for row in counted if "repaired" in row]),
        "false_alarms": sum(row["alarm"] for row in originals),
        "correct_runs": sum(row["judged"] for row in originals),
        "seconds_per_mutant": round(mean(seconds), 2) if seconds else None,
        "seconds_per_mutant_median": round(median(seconds), 2) if seconds else None,
        "policies": {name: _policy(name, counted, originals) for name in NAMES if name != "weft"},
        "refused": sum(row["outcome"] == "refused" for row in rows),
        "equivalent_share": _share(same, lambda row: True, len(tried)),
        "equivalent": [_which(row) for row in same],
        "survivors": [_which(row) for row in counted if row["outcome"] == "survived"],
        "by_class": {
            name: {"total": len(own), **_rates(own)}
            for name in sorted({row["class"] for row in counted})
            if (own := [row for row in counted if row["class"] == name])
        },
        "by_rung": {
            name: {"total": len(own), **_rates(own)}
            for name in sorted({row["rung"] for row in counted})
            if (own := [row for row in counted if row["rung"] == name])
        },
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the kill rate by class of bug, one bar per policy."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "weft", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    counted = [row for row in rows if row["outcome"] in ("killed", "survived") and row.get("policies")]
    originals = [row for row in rows if row["outcome"] == "original"]
    classes = sorted({row["class"] for row in counted})
    figure, axes = plt.subplots(figsize=(10, 3.6), layout="constrained")
    for number, (policy, name) in enumerate(NAMES.items()):
        heights = []
        for each in classes:
            own = [row for row in counted if row["class"] == each]
            rate = _rates(own)["killed_rate"] if policy == "weft" else _policy(policy, own, originals)["killed_rate"]
            heights.append(100 * (rate or 0.0))
        axes.bar([at + 0.2 * number for at in range(len(classes))], heights, 0.2, label=name)
    axes.set_xticks([at + 0.3 for at in range(len(classes))], [name.replace(" ", "\n") for name in classes], fontsize=8)
    axes.set_ylabel("mutants rejected, %")
    axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def _rates(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return the share of all mutants that count: a survivor has no right stage either."""
    return {
        name: _share(rows, lambda row, field=field: row["outcome"] == "killed" and (field == "killed" or row[field]))
        for name, field in RATES.items()
    }


def _repair_rates(rows: Sequence[Row]) -> Row:
    """Return what `--repair` answers about the killed mutants that were run with it, and the same without edits."""
    answers = [{**row, **row["repaired"]} for row in rows]
    held_out = [answer for answer in answers if answer["held_out"]]
    return {
        "total": len(rows),
        **_rates(answers),
        **_fix_rates(answers),
        "without": _rates(rows),
        "heldout_total": len(held_out),
        **{f"heldout_{name}": rate for name, rate in (_rates(held_out) | _fix_rates(held_out)).items()},
        "seconds_per_mutant": round(mean(answer["seconds"] for answer in answers), 2) if answers else None,
        "seconds_per_mutant_median": round(median(answer["seconds"] for answer in answers), 2) if answers else None,
    }


def _fix_rates(answers: Sequence[Row]) -> dict[str, float | None]:
    """Return how many mutants an edit repairs, how many have a verified change of the source, and how many of these
    changes are right on larger workloads.
    """
    return {
        "repaired_rate": _share(answers, lambda row: bool(row["repairs"])),
        "fixed_rate": _share(answers, lambda row: bool(row["fix"])),
        "fixed_right_rate": _share(answers, lambda row: bool(row.get("fix_right"))),
    }


def _policy(name: str, rows: Sequence[Row], originals: Sequence[Row]) -> Row:
    """Return the kill rate of a policy on rungs whose right kernel it passes; on others a rejection has no meaning."""
    rejects = sorted(row["rung"] for row in originals if row["policies"].get(name))
    own = [row for row in rows if name in row.get("policies", {}) and row["rung"] not in rejects]
    return {
        "total": len(own),
        "killed_rate": _share(own, lambda row: row["policies"][name]),
        "rejects_right_kernels": rejects,
    }


def _share(rows: Sequence[Row], which: Callable[[Row], bool], of: int | None = None) -> float | None:
    whole = len(rows) if of is None else of
    return round(sum(map(which, rows)) / whole, 4) if whole else None


def _which(row: Row) -> str:
    return f"{row['id']} · line {row['line']} · {row['outcome']} · {row['before']} → {row['after']}"
