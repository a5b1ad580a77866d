"""PTX → Program: a kernel compiled for this host, with everything that a launch needs."""

import functools
import hashlib
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from weft.core.errors import UsageError
from weft.core.records import Dim3, SharedSymbol, shared_place
from weft.ptx.module import Function, Instruction, Module, Special, Sym, Variable
from weft.ptx.parse import parse_kernel
from weft.ptx.passes.find_in_flight import InFlight
from weft.ptx.passes.find_waits import asks_others
from weft.ptx.passes.kernel_passes import KernelPasses

from . import jit
from .clusters import maps_generic
from .device_functions import order_shows, uses_heap
from .emit.divergent import Divergent
from .emit.in_step import InStep, resume_points
from .emit.kernel import Kernel, find_chains, frame_slots
from .layout import Layout, Placed, lay_out, module_globals

RANGES = "+avx512dq"
"""The feature of CPUs with VRANGEPS: the smaller or larger number as in PTX, unless an operand is a signalling NaN."""
LARGE_DIVERGENT = 256 << 10
"""Characters of IR: in a large kernel few warps run divergent code, and not for long. LLVM's fast instruction selection
takes a third of the time; a small loop that is divergent throughout would run 1.3 times as long."""


@dataclass(frozen=True)
class Plan:
    """What a launch needs in addition to the machine code; stored with it, so that a warm start parses nothing."""

    entry: str
    arch: str
    mode: str
    params: tuple[tuple[str, int, int], ...]
    """Name, offset and size of each parameter."""
    layout: Layout
    frame_bytes: int
    block_sizes: tuple[int, ...]
    """Instructions of each block."""
    chain_sizes: tuple[int, ...]
    """Instructions of the run of blocks that starts at each block; 0 inside a run."""
    globals: tuple[Variable, ...]
    imports: tuple[str, ...]
    ordered: bool
    """Whether results depend on the order of CTAs: strong loads, atomics whose value or rounding order matters, and
    addresses of malloc."""
    waits: bool
    """Whether a CTA may wait for another: then as many CTAs as the GPU holds run together."""
    reads_unset: bool
    """Whether some register may be read before it is set; frames are then cleared for every CTA."""
    names_regions: bool
    """Whether the kernel declares a WEFT_REGION."""
    uses_heap: bool
    """Whether it calls malloc or free."""
    in_flight: tuple[InFlight, ...]
    """Registers that code touches while a product may use them."""
    bounds_registers: bool
    """Whether a directive tells ptxas how many registers a thread has at the start (`Function.bounds_registers`)."""
    cluster: Dim3
    """CTAs per cluster that the kernel requires; zeros: none."""
    explicit_cluster: bool
    """Whether it must be launched with a cluster."""
    max_threads: int
    ptx_digest: str

    @functools.cached_property
    def has_agents(self) -> bool:
        """Return whether the kernel has bulk copies or products of a warpgroup, which go on after their instruction."""
        return any(name.startswith(("bulk.", "multicast.", "warpgroup.")) for name in self.imports)

    @functools.cached_property
    def param_bytes(self) -> int:
        """Return the bytes of the parameters."""
        return max((at + size for _, at, size in self.params), default=0)


def runs_of_blocks(chain_sizes: Sequence[int], visits: Sequence[int]) -> tuple[int, ...]:
    """Return how often warps ran each block: in step, where a run of blocks counts at its first, and divergent."""
    runs, in_step = [], 0
    for block, size in enumerate(chain_sizes):
        in_step = visits[block] if size else in_step
        runs.append(in_step + visits[len(chain_sizes) + block])
    return tuple(runs)


class Program:
    """A compiled kernel, loaded while this object exists. Code for divergent warps is compiled when first needed."""

    def __init__(self, source: "ProgramSource", plan: Plan, code: bytes) -> None:
        self.source = source
        self.plan = plan
        self.code_bytes = len(code)
        self._code = [jit.load(code, ["in_step"], {}, plan.entry)]
        self.in_step = self._code[0]["in_step"]
        self._any_block: Program | None = None
        self._divergent: tuple[int, tuple[str, ...]] | None = None
        self._lock = threading.Lock()

    def suited_to(self, block: Dim3) -> "Program":
        """Return this program, or one that does not assume a warp of 32 consecutive tid.x if `block` breaks that."""
        x, y, z = block
        if x % 32 == 0 or y * z == 1 or not self.source.rows:
            return self
        with self._lock:
            if self._any_block is None:
                source = self.source
                self._any_block = _compile(
                    ProgramSource(
                        source.text or source.module,
                        source.entry,
                        mode=source.mode,
                        arch=source.arch_given,
                        cubin=source.cubin,
                        rows=False,
                    )
                )
            return self._any_block

    def divergent(self) -> tuple[int, tuple[str, ...]]:
        """Return the address of the code for divergent warps, and the imports of both copies."""
        with self._lock:
            if self._divergent is None:
                self._divergent = self._compile_divergent()
            return self._divergent

    def _compile_divergent(self) -> tuple[int, tuple[str, ...]]:
        key = self.source.key("divergent")
        blob = jit.objects().get(key) if key else None
        if blob is None:
            imports = list(self.plan.imports)
            text = Divergent(self.source.kernel, "divergent", imports).emit_module()
            code = jit.compile_object(text, f"{self.plan.entry} (divergent)", large=LARGE_DIVERGENT)
            blob = json.dumps(imports).encode() + b"\n" + code
            if key:
                jit.objects().put(key, blob)
        head, _, code = blob.partition(b"\n")
        self._code.append(jit.load(code, ["divergent"], {}, f"{self.plan.entry}.divergent"))
        return self._code[1]["divergent"], tuple(json.loads(head))


@functools.lru_cache(maxsize=16)
def _parsed(text: str, entry: str) -> Module:
    """Return the module with the bodies that one kernel needs; the variants of the kernel share it."""
    return parse_kernel(text, entry)


_FILE = re.compile(r'^(\s*\.file\s+\d+\s+)".*$', re.MULTILINE)


@functools.lru_cache(maxsize=16)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.lru_cache(maxsize=16)
def _code_digest(text: str) -> str:
    """Return a digest without the names of source files: a copy of a file elsewhere has the same machine code."""
    return _digest(_FILE.sub(r"\1", text))


class ProgramSource:
    """The source of a program; parsed and analysed only when needed."""

    def __init__(
        self,
        ptx: str | Module,
        entry: str,
        *,
        mode: str,
        arch: str | None,
        cubin: Iterable[SharedSymbol],
        rows: bool = True,
    ) -> None:
        self.entry, self.mode, self.rows = entry, mode, rows
        self.text = ptx if isinstance(ptx, str) else None
        self._module = ptx if isinstance(ptx, Module) else None
        self.cubin = tuple(cubin)
        self.arch_given = arch

    @functools.cached_property
    def module(self) -> Module:
        return self._module or _parsed(self.text or "", self.entry)

    @functools.cached_property
    def function(self) -> Function:
        function = self.module.functions.get(self.entry)
        if function is None or not function.entry:
            known = ", ".join(self.module.entries()) or "none"
            raise UsageError(f"no kernel {self.entry!r} in this PTX; it has: {known}")
        return function

    @functools.cached_property
    def passes(self) -> KernelPasses:
        return KernelPasses(self.module, self.function, warps_are_rows=self.rows)

    @property
    def inlined(self) -> Function:
        """Return the kernel with the functions it calls inlined."""
        return self.passes.inlined

    @functools.cached_property
    def arch(self) -> str:
        return self.arch_given or self.module.target.removesuffix("a")

    @functools.cached_property
    def kernel(self) -> Kernel:
        passes = self.passes
        frame, frame_bytes = frame_slots(passes.cfg, passes.liveness)
        layout = lay_out(self.module, self.inlined, self.cubin)
        order = tuple(variable.name for variable in module_globals(self.module))
        chains = find_chains(passes.cfg, resume_points(passes.cfg, passes.uniformity, passes.regions))
        return Kernel(
            self.module,
            passes.cfg,
            passes.liveness,
            passes.uniformity,
            passes.regions,
            chains,
            passes.hidden_ways,
            _reads_clock(passes.inlined),
            passes.hidden_nans,
            passes.quiet_nans if RANGES in jit.host()[1] else frozenset(),
            passes.repeats,
            maps_generic(passes.inlined),
            layout,
            self.mode,
            self.arch,
            order,
            frame,
            frame_bytes,
        )

    def key(self, part: str) -> str | None:
        """Return the cache key of one compiled copy; None if the program was made from a Module."""
        if self.text is None:
            return None
        shared = json.dumps([asdict(symbol) for symbol in self.cubin])
        return jit.object_key(
            "kernel",
            part,
            _code_digest(self.text),
            self.entry,
            self.mode,
            self.arch_given or "",
            shared,
            str(self.rows),
        )

    @functools.cached_property
    def uses_heap(self) -> bool:
        """Return whether the kernel calls malloc or free."""
        return any(uses_heap(item) for item in self.inlined.body if isinstance(item, Instruction))

    def waiting_at(self, block: int) -> Instruction | None:
        """Return the instruction at which a warp waits when it is at the start of a block."""
        blocks = self.kernel.cfg.blocks
        if block >= len(blocks):
            return None
        before = blocks[block - 1].end if block else None
        if before is not None and before.facts.is_barrier:
            return before
        here = blocks[block]
        return here.body[0] if here.body else here.end

    @functools.cached_property
    def instruction_at(self) -> Mapping[int, Instruction]:
        """Return PTX line → the instruction there.

        A function called from several places is there several times: then its place has only the calls they share.
        """
        found: dict[int, Instruction] = {}
        for item in self.inlined.body:
            if isinstance(item, Instruction):
                known = found.get(item.line, item)
                found[item.line] = replace(item, place=shared_place(known.place, item.place))
        return found

    def trap_at(self, line: int) -> Instruction | None:
        """Return the trap at a PTX line; other instructions may be on the same line."""
        items = (item for item in self.inlined.body if isinstance(item, Instruction) and item.line == line)
        return next((item for item in items if item.form.facts.control == "trap"), None)


def compile_program(
    ptx: str | Module,
    entry: str,
    *,
    mode: str = "hardware",
    arch: str | None = None,
    cubin: Iterable[SharedSymbol] = (),
) -> Program:
    """Compile one kernel of a PTX text (cached on disk) or of a parsed Module (not cached)."""
    if mode not in ("hardware", "ieee"):
        raise UsageError(f"mode {mode!r}: use 'hardware' or 'ieee'")
    return _compile(ProgramSource(ptx, entry, mode=mode, arch=arch, cubin=cubin))


def _compile(source: ProgramSource) -> Program:
    key = source.key("in_step")
    blob = jit.objects().get(key) if key else None
    if blob is None:
        plan, text = _emit(source)
        blob = json.dumps(_to_json(plan)).encode() + b"\n" + jit.compile_object(text, source.entry)
        if key:
            jit.objects().put(key, blob)
    head, _, code = blob.partition(b"\n")
    plan = replace(_from_json(json.loads(head)), ptx_digest=_digest(source.text or ""))
    return Program(source, plan, code)


def llvm_text(ptx: str, entry: str, *, mode: str = "hardware") -> str:
    """Return the LLVM IR of a kernel's code for warps in step."""
    return _emit(ProgramSource(ptx, entry, mode=mode, arch=None, cubin=()))[1]


def _emit(source: ProgramSource) -> tuple[Plan, str]:
    kernel = source.kernel
    imports: list[str] = []
    text = InStep(kernel, "in_step", imports).emit_module()
    function = source.function
    threads = function.directives.get("maxntid") or function.directives.get("reqntid") or (1024,)
    waits = source.passes.waits
    limit = functools.reduce(lambda a, b: a * b, threads, 1)
    plan = Plan(
        entry=source.entry,
        arch=source.arch,
        mode=source.mode,
        params=tuple((v.name, kernel.layout.symbols[v.name].address, v.size_bytes) for v in function.params),
        layout=kernel.layout,
        frame_bytes=kernel.frame_bytes,
        block_sizes=tuple(block.size for block in kernel.cfg.blocks),
        chain_sizes=tuple(kernel.chains.get(block.id, 0) for block in kernel.cfg.blocks),
        globals=tuple(module_globals(source.module)),
        imports=tuple(imports),
        ordered=waits or any(_order_shows(item) for item in source.inlined.body if isinstance(item, Instruction)),
        waits=waits,
        reads_unset=bool(kernel.liveness.live_in[0]),
        uses_heap=source.uses_heap,
        names_regions=any(item.pragma for item in source.inlined.body if isinstance(item, Instruction)),
        in_flight=source.passes.in_flight,
        bounds_registers=function.bounds_registers,
        cluster=function.cluster,
        explicit_cluster="explicitcluster" in function.directives,
        max_threads=limit,
        ptx_digest=_digest(source.text or ""),
    )
    return plan, text


def _reads_clock(function: Function) -> bool:
    clocks = ("%clock", "%globaltimer")
    return any(
        isinstance(operand, Special) and operand.name.startswith(clocks)
        for item in function.body
        if isinstance(item, Instruction)
        for operand in item.operands
    )


def _order_shows(ins: Instruction) -> bool:
    """Return whether an access to global memory, or a call, shows in which order CTAs ran."""
    if order_shows(ins):
        return True
    if ins.facts.is_atomic and not ins.form.returns:
        kind = ins.mods.get("type", "f32")  # a reduction of a box: the tensor map has the type
        return "f" in kind and ins.space in ("global", "generic")
    return asks_others(ins)


def _to_json(plan: Plan) -> dict[str, object]:
    fields = asdict(plan)
    for variable in fields["globals"]:
        variable["init"] = variable["init"].hex()
        variable["relocations"] = [[at, sym["name"], sym["offset"]] for at, sym in variable["relocations"]]
    return fields


def _from_json(fields: dict[str, object]) -> Plan:
    data = dict(fields)
    layout = data.pop("layout")
    variables = data.pop("globals")
    assert isinstance(layout, dict) and isinstance(variables, list)
    symbols = {name: Placed(**placed) for name, placed in layout.pop("symbols").items()}
    placed_variables = []
    for variable in variables:
        moved = tuple((at, Sym(name, offset)) for at, name, offset in variable.pop("relocations"))
        init = bytes.fromhex(variable.pop("init"))
        placed_variables.append(Variable(**variable, init=init, relocations=moved))
    for name in ("block_sizes", "chain_sizes", "imports", "cluster"):
        data[name] = tuple(data[name])  # type: ignore[arg-type]
    data["in_flight"] = tuple(InFlight(**each) for each in data["in_flight"])  # type: ignore[attr-defined]
    data["params"] = tuple((name, at, size) for name, at, size in data["params"])  # type: ignore[attr-defined]
    return Plan(**data, layout=Layout(symbols=symbols, **layout), globals=tuple(placed_variables))  # type: ignore[arg-type]
