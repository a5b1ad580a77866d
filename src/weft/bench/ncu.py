"""Nsight Compute: the command that profiles one launch, and its CSV as values."""

import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

METRICS = (
    "gpu__time_duration.sum",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "smsp__inst_executed.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "smsp__sass_inst_executed_op_shared_ld.sum",
    "smsp__sass_inst_executed_op_shared_st.sum",
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "dram__bytes_read.sum",
)
"""Metrics that are compared with a prediction. Tests check every name against weft.model.ncu_names."""

_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")


def command(ncu: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that profiles `python -m weft.cli.launch_once`; clocks are as in the bench."""
    return [
        ncu,
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--clock-control",
        "none",
        "--metrics",
        ",".join(METRICS),
        sys.executable,
        "-m",
        "weft.cli.launch_once",
        *arguments,
    ]


def parse_raw(text: str) -> list[dict[str, str]]:
    """Return the rows of `--page raw --csv`, one per launch, without lines before the header and the row of units."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    return [row for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))) if (row["ID"] or "").strip()]


def metrics_of(row: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """Yield the metrics of one launch that have a number; `n/a` has none."""
    for name in METRICS:
        text = (row.get(name) or "").strip()
        if _THOUSANDS.fullmatch(text):
            text = text.replace(",", "")
        try:
            yield name, float(text)
        except ValueError:
            continue
