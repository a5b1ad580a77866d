"""Counters of a profiled launch, by name, → Work. Uncertain values are not used for bounds."""

from collections.abc import Mapping
from dataclasses import replace

from .occupancy import LaunchShape
from .opcodes import WHOLE_TILES
from .work import Instructions, Memory, Work, instructions_of

_ACCESSES = (
    ("smsp__sass_inst_executed_op_shared_ld.sum", "vm__shared_ld"),
    ("smsp__sass_inst_executed_op_shared_st.sum", "vm__shared_st"),
    ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "vm__global_ld_requests"),
    ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", "vm__global_st_requests"),
    ("smsp__inst_executed_op_ldgsts.sum", "vm__ldgsts"),
)
_SHARED = frozenset(["LDS", "STS", *WHOLE_TILES])
_LOCAL = frozenset(["LDL", "STL"])


def work_of(launch: LaunchShape, sass: Mapping[str, int], ncu: Mapping[str, int], vm: Mapping[str, int]) -> Work:
    """Return the work of a launch from its executed SASS opcodes and its counters under ncu's and Weft's names."""
    return Work(launch, _instructions(sass, ncu, vm), _memory(sass, ncu, vm))


def _instructions(sass: Mapping[str, int], ncu: Mapping[str, int], vm: Mapping[str, int]) -> Instructions:
    """Return the instructions by unit.

    An access whose lanes are all off is executed but keeps no load/store unit busy: accesses are counted separately.
    Where ptxas copied a loop, PTX shows how often its work ran but not how often each copy's overhead did. Then only
    the work is certain: integer instructions and the issue slots of such blocks count for the estimate only.
    """
    active = sum(_either(ncu, vm, *names) for names in _ACCESSES) + vm.get("vm__ldsm", 0)
    active += sum(count for opcode, count in sass.items() if opcode.partition(".")[0] in _LOCAL)
    found = instructions_of(sass, accesses=active)
    copied = vm.get("vm__sass_inst_shared_out", 0)
    if not copied:
        return found
    work = found.fp32 + found.mufu + found.lsu + found.shuffles + found.tensor
    sure = max(found.executed - copied, work)
    return replace(found, executed=sure, unsure=found.executed - sure, imad=0, alu=0)


def _memory(sass: Mapping[str, int], ncu: Mapping[str, int], vm: Mapping[str, int]) -> Memory:
    """Return the certain wavefronts: at PTX's width at most one for each SASS instruction; of matched ones, all."""
    other = sum(count * _lines_written(opcode) for opcode, count in sass.items())
    if "memory_l1_wavefronts_shared" in ncu:
        shared = ncu["memory_l1_wavefronts_shared"]
    else:
        seen = vm.get("vm__shared_wavefronts", 0)
        least = sum(count for opcode, count in sass.items() if opcode.partition(".")[0] in _SHARED)
        shared = max(min(seen, least), vm.get("vm__shared_wavefronts_matched", 0))
        other += seen - shared
    return Memory(
        shared_wavefronts=shared,
        other_wavefronts=other,
        tags=_either(ncu, vm, "memory_l1_tag_requests_global", "vm__global_tags"),
        load_sectors=vm.get("vm__distinct_load_sectors", 0),
        store_sectors=vm.get("vm__distinct_store_sectors", 0),
    )


def _lines_written(opcode: str) -> int:
    """Return the wavefronts of a warp's cp.async of 16, 8 or 4 bytes per lane into shared memory, without conflicts."""
    name, *modifiers = opcode.split(".")
    if name != "LDGSTS":
        return 0
    return 4 if "128" in modifiers else 2 if "64" in modifiers else 1


def _either(ncu: Mapping[str, int], vm: Mapping[str, int], name: str, ours: str) -> int:
    """Return the counter under ncu's name, or under Weft's name where it may differ from ncu's."""
    return ncu[name] if name in ncu else vm.get(ours, 0)
