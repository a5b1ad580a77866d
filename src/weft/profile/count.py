"""A launch on the virtual GPU → Counts: what the probe counted, the SASS instructions, and what is not known."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.core.errors import UsageError
from weft.core.records import Run

from .block_runs import BlockRuns, find_block_runs
from .kernel_match import KernelMatch
from .match import Match
from .records import Counts, SourceLine
from .sass_accesses import NEVER
from .site_probe import ALIGNED, BLOCK, FIELDS, HIDDEN, site_name

_LOAD, _STORE = ("load", "global"), ("store", "global")
_INSTRUCTIONS = {
    "smsp__sass_inst_executed_op_shared_ld.sum": ("LDS", "vm__shared_ld"),
    "smsp__sass_inst_executed_op_shared_st.sum": ("STS", "vm__shared_st"),
    "smsp__inst_executed_op_ldgsts.sum": ("LDGSTS", "vm__ldgsts"),
}
"""ncu's name → the SASS opcode it counts, and Weft's name."""
OURS = {
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "vm__global_ld_requests",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "vm__global_st_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "vm__global_ld_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "vm__global_st_sectors",
    "memory_l1_tag_requests_global": "vm__global_tags",
    "memory_l2_theoretical_sectors_global": "vm__global_sectors",
    "memory_l1_wavefronts_shared": "vm__shared_wavefronts",
    "memory_l1_wavefronts_shared_ideal": "vm__shared_wavefronts_ideal",
    "derived__memory_l1_wavefronts_shared_excessive": "vm__shared_wavefronts_excessive",
    "sm__inst_executed_pipe_tensor_op_hmma.sum": "vm__hmma",
    **{name: ours for name, (_, ours) in _INSTRUCTIONS.items()},
}
"""ncu's name → Weft's, where the two may differ."""
_NCU_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"


def count_launch(kernel: KernelMatch, run: Run) -> Counts:
    """Return the counts of one launch that a SiteProbe of `kernel` watched."""
    if f"{BLOCK}@0" not in run.counters:
        raise UsageError("these counters do not come from a SiteProbe only: launch through Profiler")
    runs = [run.counters[f"{BLOCK}@{block.id}"] for block in kernel.cfg.blocks]
    ran_at: Counter[int] = Counter()
    for block in kernel.cfg.blocks:
        for ins in block.body:
            ran_at[ins.line] += runs[block.id]
    matches = tuple(_checked_by_run(match, ran_at[match.access.line], run.counters) for match in kernel.matches)
    lines = tuple(_line(match, kernel, run.counters) for match in matches)
    executed = [ran_at[match.access.line] for match in matches]
    total = sum(executed)
    matched = sum(count for count, match in zip(executed, matches, strict=True) if match.matched)
    ncu, vm = _memory(matches, lines, executed)
    vm |= _from_ptx(kernel, runs)
    for name in ("vm__distinct_load_sectors", "vm__distinct_store_sectors", "vm__divergent_block_runs"):
        vm[name] = run.counters.get(name, 0)
    vm["vm__inst_executed"] = run.instructions
    notes = [*kernel.notes, *_unmatched(matches, executed)]
    sass: dict[str, int] = {}
    issued: dict[int, dict[str, int]] = {}
    if kernel.blocks:
        ran = find_block_runs(kernel.blocks, kernel.cfg, matches, runs)
        issued = _mix(kernel, ran)
        sass = _summed(issued)
        vm["vm__sass_inst_executed"] = sum(sass.values())
        vm["vm__sass_inst_shared_out"] = sum(
            len(kernel.blocks[at].instructions) * ran.runs[at] for at in ran.shared_out
        )
        hmma = [block.id for block in kernel.blocks if any(ins.name == "HMMA" for ins in block.instructions)]
        exact = not ran.shared_out.intersection(hmma)
        name = "sm__inst_executed_pipe_tensor_op_hmma.sum" if exact else "vm__hmma"
        (ncu if exact else vm)[name] = sum(count for opcode, count in sass.items() if opcode.startswith("HMMA"))
        notes += _keep_where_issued(sass, ncu, vm)
        if vm["vm__sass_inst_shared_out"]:
            notes.append(
                "ptxas made several copies of a loop; PTX does not show how often each ran (the longest is assumed to "
                f"run most): {vm['vm__sass_inst_shared_out']} warp instructions of SASS are a lower estimate"
            )
    return Counts(sass, ncu, vm, matched / total if total else 1.0, lines, tuple(notes), issued, kernel.places)


def _checked_by_run(match: Match, executed: int, counters: Mapping[str, int]) -> Match:
    """Return the match; with a reason, if it merges several iterations into one access but the run shows otherwise."""
    seen = counters.get(site_name("shared_accesses", match.leader or match.access.line), 0)
    if match.every == 1 or seen * match.every == executed:
        return match
    return replace(match, reason=f"one {match.sass} for {match.every} iterations contradicts how often it ran")


def _line(match: Match, kernel: KernelMatch, counters: Mapping[str, int]) -> SourceLine:
    access = match.access
    seen = {field: counters.get(site_name(field, access.line), 0) for field in FIELDS}
    executed = seen["shared_accesses"] or seen["global_requests"]
    if access.verb == "copy":
        executed = seen["shared_fills"]
    return SourceLine(
        access.line,
        access.opcode,
        kernel.places.get(access.line),
        executed // match.events,
        seen["shared_wavefronts"],
        seen["shared_ideal"],
        seen["global_sectors"],
        seen["global_tags"],
        match.matched,
        _lane_bytes(match),
    )


def _lane_bytes(match: Match) -> int:
    """Return the bytes per lane; a HIDDEN access is part of another."""
    if match.access.wmma or match.width == HIDDEN:
        return 0
    return match.width % ALIGNED if match.width else match.access.bytes


def _memory(
    matches: Sequence[Match], lines: Sequence[SourceLine], executed: Sequence[int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return memory counters: under ncu's names where every access in them is matched and means the same."""
    ncu: dict[str, int] = {}
    vm: dict[str, int] = {}
    rows = [(m, line) for m, line, count in zip(matches, lines, executed, strict=True) if count]
    shared = [(m, line) for m, line in rows if _space(m, line) == "shared" and m.access.verb in ("load", "store")]
    plain_global = {_LOAD: "ld", _STORE: "st"}
    others = {m.access.verb for m, _ in rows} - {"load", "store"}

    def put(exact: bool, name: str, ours: str, value: int) -> None:
        (ncu if exact else vm)[name if exact else ours] = value

    for (verb, _), short in plain_global.items():
        part = [(m, line) for m, line in rows if m.access.verb == verb and _space(m, line) == "global"]
        exact = all(m.matched for m, _ in part)
        put(
            exact,
            _NCU_GLOBAL.format("requests", short),
            f"vm__global_{short}_requests",
            sum(li.executed for _, li in part),
        )
        put(
            exact,
            _NCU_GLOBAL.format("sectors", short),
            f"vm__global_{short}_sectors",
            sum(li.sectors for _, li in part),
        )
    whole = all(m.matched for m, _ in rows) and not others
    far = [line for m, line in rows if _space(m, line) == "global"]
    put(whole, "memory_l1_tag_requests_global", "vm__global_tags", sum(line.tags for line in far))
    put(whole, "memory_l2_theoretical_sectors_global", "vm__global_sectors", sum(line.sectors for line in far))
    for verb, short in (("load", "ld"), ("store", "st")):
        part = [(m, line) for m, line in shared if m.access.verb == verb and not m.sass.startswith("LDSM")]
        exact = all(m.matched for m, _ in part)
        name = f"smsp__sass_inst_executed_op_shared_{short}.sum"
        put(exact, name, f"vm__shared_{short}", sum(line.executed for m, line in part if m.width != HIDDEN))
    vm["vm__ldsm"] = sum(line.executed for m, line in shared if m.sass.startswith("LDSM"))
    near = [line for _, line in shared]
    exact = all(m.matched for m, _ in shared) and not others
    waves, ideal = sum(line.wavefronts for line in near), sum(line.ideal for line in near)
    # At the width of the SASS, even where the sums cannot have ncu's names: a bound may use it.
    vm["vm__shared_wavefronts_matched"] = sum(line.wavefronts for m, line in shared if m.matched)
    put(exact, "memory_l1_wavefronts_shared", "vm__shared_wavefronts", waves)
    put(exact, "memory_l1_wavefronts_shared_ideal", "vm__shared_wavefronts_ideal", ideal)
    put(exact, "derived__memory_l1_wavefronts_shared_excessive", "vm__shared_wavefronts_excessive", waves - ideal)
    copies = [(m, line) for m, line in rows if m.access.verb == "copy"]
    exact = all(m.matched for m, _ in copies)
    put(exact, "smsp__inst_executed_op_ldgsts.sum", "vm__ldgsts", sum(line.executed for _, line in copies))
    vm["vm__ldgsts_sectors"] = sum(line.sectors for _, line in copies)
    atomics = [line for m, line in rows if m.access.verb == "atomic" and line.sectors]
    vm["vm__global_atomic_requests"] = sum(line.executed for line in atomics)
    vm["vm__global_atomic_sectors"] = sum(line.sectors for line in atomics)
    return ncu, vm


def _space(match: Match, line: SourceLine) -> str:
    """Return the memory space of a generic access, by what was counted."""
    if match.access.space != "generic":
        return match.access.space
    return "shared" if line.wavefronts else "global"


def _from_ptx(kernel: KernelMatch, runs: Sequence[int]) -> dict[str, int]:
    """Return tensor-core instructions by shape and type, barriers and special functions, counted in PTX."""
    totals: Counter[str] = Counter()
    for block in kernel.cfg.blocks:
        for ins in (*block.body, *([block.end] if block.end else [])):
            if ins.facts.multiplies:
                types = [ins.mods[slot] for slot in ("dtype", "atype", "btype", "ctype") if slot in ins.mods]
                totals[".".join([f"vm__{ins.facts.multiplies}", ins.mods["shape"], *types])] += runs[block.id]
            elif ins.facts.is_warp_barrier or ins.facts.group == "cta":
                totals["vm__bar_warp_sync" if ins.facts.is_warp_barrier else "vm__barriers"] += runs[block.id]
            elif ins.facts.group == "warp" and ins.facts.copies:
                totals["vm__shfl"] += runs[block.id]
    return dict(totals)


def _mix(kernel: KernelMatch, ran: BlockRuns) -> dict[int, dict[str, int]]:
    """Return PTX line → opcodes issued for it."""
    totals: dict[int, dict[str, int]] = {}
    for block in kernel.blocks:
        for ins in block.instructions:
            if ran.runs[block.id]:
                opcode = f"@{NEVER} {ins.opcode}" if ins.predicate == NEVER else ins.opcode
                row = totals.setdefault(ins.ptx_line, {})
                row[opcode] = row.get(opcode, 0) + ran.runs[block.id]
    return totals


def _summed(issued: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for opcodes in issued.values():
        totals.update(opcodes)
    return dict(sorted(totals.items()))


def _keep_where_issued(sass: Mapping[str, int], ncu: dict[str, int], vm: dict[str, int]) -> list[str]:
    """Move counts to Weft's names if some were issued with no active lane: whether ncu counts these is not known."""
    notes = []
    for name, (opcode, ours) in _INSTRUCTIONS.items():
        issued = sum(count for written, count in sass.items() if written.partition(".")[0] == opcode)
        if name in ncu and ncu[name] != issued:
            vm[ours] = ncu.pop(name)
            vm[f"{ours}_issued"] = issued
            notes.append(
                f"{opcode}: {issued} issued, {vm[ours]} with an active lane; which number ncu shows is not known"
            )
    return notes


def _unmatched(matches: Sequence[Match], executed: Sequence[int]) -> list[str]:
    """Return one note for each reason."""
    reasons: dict[str, list[int]] = {}
    for match, count in zip(matches, executed, strict=True):
        if match.reason and count:
            reasons.setdefault(match.reason, []).append(match.access.line)
    return [f"{reason} (PTX line {', '.join(map(str, lines))})" for reason, lines in reasons.items()]
