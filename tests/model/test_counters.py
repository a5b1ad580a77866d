"""Counters by name → Work: values under ncu's names are certain, the rest is used for the estimate only."""

from weft.model.counters import work_of
from weft.model.occupancy import LaunchShape

LAUNCH = LaunchShape(128, 10, 64, 4096)
SASS = {"LDS.128": 40, "STS": 10, "LDG.E": 20, "STG.E": 5, "LDGSTS.E.BYPASS.128": 6, "FFMA": 100, "IADD3": 30, "BRA": 4}
NCU = {
    "smsp__sass_inst_executed_op_shared_ld.sum": 40,
    "smsp__sass_inst_executed_op_shared_st.sum": 10,
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 20,
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": 3,
    "smsp__inst_executed_op_ldgsts.sum": 6,
    "memory_l1_wavefronts_shared": 95,
    "memory_l1_tag_requests_global": 70,
}
VM = {"vm__distinct_load_sectors": 7, "vm__distinct_store_sectors": 2, "vm__ldsm": 0, "vm__sass_inst_shared_out": 0}


def test_all_is_matched() -> None:
    """Two of five stores had no active lane; six cp.async of 16 bytes write four lines each."""
    found = work_of(LAUNCH, SASS, NCU, VM)
    assert found.launch == LAUNCH
    assert (found.instructions.lsu, found.instructions.executed, found.instructions.unsure) == (79, 215, 0)
    memory = found.memory
    assert (memory.shared_wavefronts, memory.other_wavefronts, memory.tags) == (95, 24, 70)
    assert (memory.load_sectors, memory.store_sectors) == (7, 2)


def test_wavefronts_at_the_width_of_ptx_are_no_bound() -> None:
    """160 wavefronts of scalar PTX loads that ptxas merged: 50 SASS instructions are certain."""
    names = {"memory_l1_wavefronts_shared", "smsp__sass_inst_executed_op_shared_ld.sum"}
    ncu = {name: value for name, value in NCU.items() if name not in names}
    found = work_of(LAUNCH, SASS, ncu, VM | {"vm__shared_wavefronts": 170, "vm__shared_ld": 160})
    assert (found.memory.shared_wavefronts, found.memory.other_wavefronts) == (50, 120 + 24)
    assert found.instructions.lsu == 81


def test_matched_wavefronts_are_a_bound_if_the_sum_has_wefts_name() -> None:
    """cp.async in the kernel: the sum has Weft's name, but 120 of its 170 wavefronts are at the width of the SASS."""
    ncu = {name: value for name, value in NCU.items() if name != "memory_l1_wavefronts_shared"}
    found = work_of(LAUNCH, SASS, ncu, VM | {"vm__shared_wavefronts": 170, "vm__shared_wavefronts_matched": 120})
    assert (found.memory.shared_wavefronts, found.memory.other_wavefronts) == (120, 50 + 24)
    few = work_of(LAUNCH, SASS, ncu, VM | {"vm__shared_wavefronts": 170, "vm__shared_wavefronts_matched": 20})
    assert (few.memory.shared_wavefronts, few.memory.other_wavefronts) == (50, 120 + 24)


def test_the_overhead_of_loop_copies_is_no_bound() -> None:
    found = work_of(LAUNCH, SASS, NCU, VM | {"vm__sass_inst_shared_out": 20}).instructions
    assert (found.executed, found.unsure, found.alu, found.fp32) == (195, 20, 0, 100)
    more = work_of(LAUNCH, SASS, NCU, VM | {"vm__sass_inst_shared_out": 200}).instructions
    assert (more.executed, more.unsure) == (100 + 79, 215 - 179)


def test_spills_use_the_load_store_units() -> None:
    found = work_of(LAUNCH, {"STL": 4, "LDL.64": 6, "EXIT": 1}, {}, {})
    assert found.instructions.lsu == 10
    assert found.memory.shared_wavefronts == 0
