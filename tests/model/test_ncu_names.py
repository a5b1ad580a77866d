"""Names of ncu's metrics: real ones pass, invented ones and wrong suffixes are refused with similar names."""

import re

import pytest

from weft.bench import ncu
from weft.model.ncu_names import CAPABILITIES, names, problem
from weft.profile.count import OURS

IN_EVERY_GUIDE = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum.per_second",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
    "l1tex__t_sector_hit_rate.pct",
    "smsp__issue_active.avg.per_cycle_active",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "derived__memory_l1_conflicts_shared_nway",
    "launch__occupancy_limit_barriers",
    "device__attribute_multiprocessor_count",
    "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
    "profiler__replayer_passes",
    "group:memory__shared_table",
    "breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "regex:smsp__inst_executed_op_.*",
    "smsp__inst_executed",
)
"""As NVIDIA's guide and its section files spell them."""


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_real_names(capability: str) -> None:
    said = {name: problem(name, capability) for name in (*IN_EVERY_GUIDE, *OURS, *ncu.METRICS)}
    assert {name: why for name, why in said.items() if why} == {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smsp__gmio_stall.avg.pct", "nearest: smsp__warps_issue_stalled_mio_throttle"),
        ("l1tex__t_sector_pipe_lsu_mem_global_op_ld.sum", "nearest: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
        ("sm__occupancy_active_warps_pct", "unknown metric"),
        ("quite_another_thing", "no metric has a similar name"),
        ("dram__bytes.per_second", "the first suffix is a roll-up"),
        ("dram__bytes.sum.per_minute", "not .per_minute"),
        ("dram__bytes.total", "not .total"),
        ("sm__throughput.sum", "a throughput ends in"),
        ("l1tex__t_sector_hit_rate.avg", "a ratio ends in .ratio, .pct, .max_rate"),
        ("launch__registers_per_thread.sum", "takes no suffix"),
        ("regex:^nothing_like_it$", "matches no known metric"),
        ("regex:(", "not a regular expression"),
        ("group:memory__no_table", "unknown metric"),
    ],
)
def test_refused(name: str, said: str) -> None:
    why = problem(name, "8.9")
    assert why is not None and said in why


def test_a_metric_of_another_chip() -> None:
    """Thread block clusters and the link between chips exist from 9.0 on."""
    assert problem("ctc__rx_bytes.sum", "9.0") is None
    assert problem("ctc__rx_bytes.sum", "8.9") == "ncu has it on compute capability 9.0, not on 8.9"


def test_the_table_is_one_of_names() -> None:
    assert len(names()) > 3500
    assert {kind.section for kind in names().values()} == {
        "counters",
        "ratios",
        "throughputs",
        "as they are",
        "groups",
    }
    assert not [name for name in names() if not re.fullmatch(r"(group:)?[a-z0-9]+_[\w.]+", name)]
