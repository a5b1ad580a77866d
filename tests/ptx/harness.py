"""Runs single instructions and short bodies of PTX on every engine and compares them bit for bit.

    check("add.sat.s32", {"a": random_values("s32", 1000, rng), "b": ...})

builds one kernel that contains the instruction four times: for every lane, under a guard, in a divergent branch,
and with operands that are the same in all lanes. `check_body` does the same for any text.

A chapter's test module names what it runs in `OPCODES`; `test_coverage.py` compares that with the instruction table.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from weft.core.records import Finding
from weft.ptx import isa
from weft.ptx.module import WIDTH, Module
from weft.ptx.parse import parse
from weft.vm.launch_spec import DeviceRun, LaunchSpec
from weft.vm.layout import lay_out, place_globals
from weft.vm.memory import GlobalMemory
from weft.vm.reference import interpreter

Array = npt.NDArray[Any]

ENGINES: tuple[str, ...] = (
    ("reference", "jit") if find_spec("weft.vm.program") and find_spec("weft.vm.launch") else ("reference",)
)
_BLOCK = 128
_OLD = 0x5A5A5A5A5A5A5A5A
"""The value of a destination before the instruction, so that a test sees whether a lane that is off keeps it."""
_FLOAT = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


# -- values ------------------------------------------------------------------------------------------------------


def bits_type(ptx_type: str) -> str:
    """Return the untyped register class that holds a value: 8-bit values are in 16-bit registers."""
    return "pred" if ptx_type == "pred" else f"b{max(WIDTH[ptx_type], 16)}"


def storage(ptx_type: str) -> np.dtype[Any]:
    """Return the unsigned NumPy type of a value in memory; predicates are bytes."""
    return np.dtype(np.uint8 if ptx_type == "pred" else f"uint{WIDTH[ptx_type]}")


def to_bits(values: Array, ptx_type: str) -> Array:
    """Return values of any NumPy type of the right width as unsigned bits."""
    raw = np.ascontiguousarray(values)
    if raw.dtype == bool:
        return raw.astype(np.uint8)
    if raw.dtype.itemsize != storage(ptx_type).itemsize:
        raise ValueError(f"{raw.dtype} values for a .{ptx_type} operand")
    return raw.view(storage(ptx_type))


_FLOAT_EDGES = {
    "f16": "0000 8000 3c00 bc00 7bff fbff 7c00 fc00 7e00 fe00 7fff 7d00 0001 8001 03ff 0400 8400 "
    "4000 3800 3c01 6400 c900",
    "bf16": "0000 8000 3f80 bf80 7f7f ff7f 7f80 ff80 7fc0 ffc0 7fff 7f81 0001 8001 007f 0080 8080 4000 3f00 3f81 4f00",
    "f32": "00000000 80000000 3f800000 bf800000 7f7fffff ff7fffff 7f800000 ff800000 7fc00000 "
    "ffc00000 7fffffff 7f800001 "
    "00000001 80000001 007fffff 807fffff 00800000 80800000 40000000 3f000000 3f800001 4f000000 "
    "cf000000 5f000000 4b800000 "
    "3effffff 477fe000 33800000",
    "f64": "0000000000000000 8000000000000000 3ff0000000000000 bff0000000000000 7fefffffffffffff ffefffffffffffff "
    "7ff0000000000000 fff0000000000000 7ff8000000000000 fff8000000000000 7ff0000000000001 "
    "0000000000000001 8000000000000001 "
    "000fffffffffffff 0010000000000000 4000000000000000 3fe0000000000000 3ff0000000000001 "
    "41e0000000000000 43e0000000000000",
}
_BYTE_FLOATS = "00 80 38 b8 7e fe 7f ff 01 81 07 08 3c bc 7b fb 7c fc"


def edge_values(ptx_type: str) -> Array:
    """Return values at which implementations differ: zeros, ones, limits, NaN, infinity, denormals, powers of two."""
    if ptx_type == "pred":
        return np.array([False, True])
    if ptx_type in _FLOAT:
        return np.array([int(x, 16) for x in _FLOAT_EDGES[ptx_type].split()], storage(ptx_type)).view(_FLOAT[ptx_type])
    if ptx_type == "tf32":
        return edge_values("f32").view(np.uint32)
    if ptx_type[:2] in ("e4", "e5"):
        small = np.array([int(x, 16) for x in _BYTE_FLOATS.split()], np.uint8)
        return np.concatenate([small, small[::-1]]).view(np.uint16) if ptx_type.endswith("x2") else small
    if ptx_type.endswith("x2"):
        half = to_bits(edge_values(ptx_type[:-2]), ptx_type[:-2]).astype(f"uint{WIDTH[ptx_type]}")
        return (half[:, None] << half.dtype.type(WIDTH[ptx_type] // 2) | half[None, :]).ravel()
    width = WIDTH[ptx_type]
    numbers = {0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, 0x55555555, 0xAAAAAAAA, 0x12345678, 0x0F0F0F0F0F0F0F0F}
    numbers |= {(1 << power) - less for power in range(width + 1) for less in (0, 1)}
    numbers |= {-number for number in numbers}
    wrapped = sorted({number & ((1 << width) - 1) for number in numbers})
    return np.array(wrapped, f"uint{width}").view(f"int{width}" if ptx_type[0] == "s" else f"uint{width}")


def random_values(ptx_type: str, n: int, rng: np.random.Generator) -> Array:
    """Return `n` values: a third random bits, a third small numbers, a third edge values."""
    if ptx_type == "pred":
        return rng.integers(0, 2, n).astype(bool)
    dtype = storage(ptx_type)
    anything = (
        rng.integers(0, 1 << 64, n, np.uint64, endpoint=False).astype(dtype)
        if dtype.itemsize < 8
        else (rng.integers(0, np.iinfo(np.uint64).max, n, np.uint64, endpoint=True))
    )
    if ptx_type in _FLOAT:
        small = to_bits((rng.standard_normal(n) * 2.0 ** rng.integers(-4, 8, n)).astype(_FLOAT[ptx_type]), ptx_type)
    elif ptx_type in ("f16x2", "bf16x2", "f32x2"):
        small = rng.standard_normal(2 * n).astype(_FLOAT[ptx_type[:-2]]).view(dtype)
    elif ptx_type == "tf32":
        small = rng.standard_normal(n).astype(np.float32).view(np.uint32)
    else:
        small = rng.integers(-100, 100, n).astype(np.int64).view(np.uint64).astype(dtype)
    edges = rng.choice(to_bits(edge_values(ptx_type), ptx_type), n)
    which = rng.integers(0, 3, n)
    bits = np.where(which == 0, anything, np.where(which == 1, small, edges)).astype(dtype)
    return bits.view(edge_values(ptx_type).dtype)


# -- kernels -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """A text with its columns: input arrays, uniform inputs and outputs, each name → PTX type."""

    text: str
    inputs: Mapping[str, str]
    uniforms: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass
class Ran:
    """The result of a launch on an engine."""

    outputs: dict[str, Array]
    """As unsigned bits of the register class."""
    outcome: DeviceRun
    memory: GlobalMemory = field(repr=False)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.outcome.findings


HEADER = ".version 8.4\n.target sm_89\n.address_size 64\n"


def header_for(code: str) -> str:
    """Return the header of a file with this code: the target is sm_89, or the first that has all instructions."""
    rows = [found for word in re.findall(r"[a-z][\w.:]*", code) if (found := isa.lookup(word)) is not None]
    needed = [row.facts.first_target(mods) for row, mods in rows]
    last = max(["sm_89", *needed], key=lambda target: (int(target[3:].rstrip("a+")), len(target)))
    return HEADER.replace("sm_89", last.rstrip("+"))


def kernel(
    body: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    *,
    uniforms: Mapping[str, str] | None = None,
    declarations: str = "",
    module_scope: str = "",
) -> Kernel:
    """Return a kernel whose `body` has a register %name per input and output, %tid (global index) and %t0-%t9 (b32)."""
    uniforms = uniforms or {}
    pointers = [*(f"in_{name}" for name in inputs), *(f"out_{name}" for name in outputs)]
    params = [f".param .u64 {name}" for name in pointers]
    params += [f".param .{_memory_type(ptx_type)} u_{name}" for name, ptx_type in uniforms.items()]
    lines = [".reg .b32 %tid, %h<9>, %t<10>;", ".reg .b64 %hd<9>;", ".reg .b16 %hb<9>;", declarations]
    for name, ptx_type in {**inputs, **uniforms, **outputs}.items():
        lines.append(f".reg .{bits_type(ptx_type)} %{name};")
    lines += [
        "mov.u32 %h0, %ntid.x;",
        "mov.u32 %h1, %ctaid.x;",
        "mov.u32 %h2, %tid.x;",
        "mad.lo.u32 %tid, %h0, %h1, %h2;",
    ]
    for name, ptx_type in inputs.items():
        lines += [f"ld.param.u64 %hd0, [in_{name}];", *_element_address(ptx_type)]
        lines += _load(name, ptx_type, "global", "[%hd2]")
    for name, ptx_type in uniforms.items():
        lines += _load(name, ptx_type, "param", f"[u_{name}]")
    for name, ptx_type in outputs.items():
        lines += _preset(name, ptx_type)
    lines.append(body)
    for name, ptx_type in outputs.items():
        register = bits_type(ptx_type)
        lines += [f"ld.param.u64 %hd0, [out_{name}];", *_element_address(register)]
        if register == "pred":
            lines += [f"selp.b32 %h3, 1, 0, %{name};", "st.global.b8 [%hd2], %h3;"]
        else:
            lines.append(f"st.global.{register} [%hd2], %{name};")
    lines.append("ret;")
    code = "\n  ".join(lines)
    text = f"{header_for(code)}{module_scope}\n.visible .entry row({', '.join(params)})\n{{\n  {code}\n}}\n"
    return Kernel(text, dict(inputs), dict(uniforms), dict(outputs))


def _memory_type(ptx_type: str) -> str:
    return "b8" if ptx_type == "pred" else f"b{WIDTH[ptx_type]}"


def _element_address(ptx_type: str) -> list[str]:
    return [f"mul.wide.u32 %hd1, %tid, {storage(ptx_type).itemsize};", "add.u64 %hd2, %hd0, %hd1;"]


def _load(name: str, ptx_type: str, space: str, address: str) -> list[str]:
    if ptx_type == "pred":
        return [f"ld.{space}.u8 %hb0, {address};", f"setp.ne.u16 %{name}, %hb0, 0;"]
    return [f"ld.{space}.{_memory_type(ptx_type)} %{name}, {address};"]


def _preset(name: str, ptx_type: str) -> list[str]:
    register = bits_type(ptx_type)
    if register == "pred":
        return [f"setp.ne.u32 %{name}, %tid, %tid;"]
    return [f"mov.{register} %{name}, {_OLD & ((1 << WIDTH[register]) - 1):#x};"]


def launch(
    made: Kernel,
    inputs: Mapping[str, Array],
    *,
    engine: str,
    uniforms: Mapping[str, Array] | None = None,
    n: int | None = None,
    block: int = _BLOCK,
    shared_bytes: int = 0,
    program: "Any" = None,
) -> Ran:
    """Launch `made` once over the inputs (all of the same length, padded to complete CTAs by repetition)."""
    uniforms = uniforms or {}
    count = n if n is not None else max((len(v) for v in inputs.values()), default=block)
    padded = -(-count // block) * block
    memory = GlobalMemory(1 << 20)
    module = program.module if program else parse(made.text)
    globals_at = place_globals(module, memory)
    params = b""
    for name, ptx_type in made.inputs.items():
        raw = np.resize(to_bits(inputs[name], ptx_type), padded)
        address = memory.allocate(raw.nbytes, name)
        memory.write(address, raw.view(np.uint8))
        params += struct.pack("<Q", address)
    places = {}
    for name, ptx_type in made.outputs.items():
        size = padded * storage(bits_type(ptx_type)).itemsize
        places[name] = memory.allocate(size, name)
        memory.write(places[name], np.zeros(size, np.uint8))
        params += struct.pack("<Q", places[name])
    for name, ptx_type in made.uniforms.items():
        raw = to_bits(np.atleast_1d(uniforms[name]), ptx_type)
        params += bytes(-len(params) % raw.itemsize) + raw.tobytes()
    params += bytes(-len(params) % 8)
    spec = LaunchSpec("row", (padded // block, 1, 1), (block, 1, 1), params, shared_bytes, max_steps=10_000_000)
    outcome = (program or Engine(engine, module)).run(spec, memory, globals_at)
    outputs = {}
    for name, ptx_type in made.outputs.items():
        dtype = storage(bits_type(ptx_type))
        outputs[name] = memory.read(places[name], padded * dtype.itemsize).view(dtype)[:count]
    return Ran(outputs, outcome, memory)


class Engine:
    """One parsed module on one engine; a kernel is compiled once and may be launched often."""

    def __init__(self, name: str, module: Module) -> None:
        self.name = name
        self.module = module
        self._compiled: dict[str, Any] = {}

    def run(self, spec: LaunchSpec, memory: GlobalMemory, globals_at: Mapping[str, int]) -> DeviceRun:
        layout = lay_out(self.module, self.module.functions[spec.entry])
        if self.name == "reference":
            return interpreter.run(self.module, spec, memory, layout=layout, globals_at=globals_at)
        from weft.vm import launch as jit_launch
        from weft.vm.program import compile_program

        if spec.entry not in self._compiled:
            self._compiled[spec.entry] = compile_program(self.module, spec.entry, mode=spec.mode)
        outcome: DeviceRun = jit_launch.run(self._compiled[spec.entry], spec, memory, globals_at=globals_at)
        return outcome


# -- checks ------------------------------------------------------------------------------------------------------


def check_body(
    body: str,
    inputs: Mapping[str, tuple[str, Array]],
    outputs: Mapping[str, str],
    *,
    declarations: str = "",
    module_scope: str = "",
    n: int | None = None,
    block: int = _BLOCK,
    shared_bytes: int = 0,
) -> Ran:
    """Run `body` on every engine, assert that outputs and finding codes agree, return the reference's."""
    made = kernel(
        body,
        {name: t for name, (t, _) in inputs.items()},
        outputs,
        declarations=declarations,
        module_scope=module_scope,
    )
    arrays = {name: values for name, (_, values) in inputs.items()}
    ran = [launch(made, arrays, engine=engine, n=n, block=block, shared_bytes=shared_bytes) for engine in ENGINES]
    for other in ran[1:]:
        for name, ptx_type in outputs.items():
            assert_same(other.outputs[name], ran[0].outputs[name], ptx_type, what=f"%{name}")
        assert _codes(other) == _codes(ran[0]), f"findings {other.findings} and {ran[0].findings}"
    return ran[0]


def _codes(ran: Ran) -> set[str]:
    return {finding.code for finding in ran.findings}


def check(
    opcode: str,
    sources: Mapping[str, Array | Sequence[Array]],
    *,
    exact: bool = True,
    ulp: int = 0,
    immediates: Mapping[str, str] | None = None,
    uniform_sets: int = 6,
) -> dict[str, Array]:
    """Run one instruction in all four settings on every engine; returns the reference's results for every lane.

    Sources are by the operand names of the ISA row; a sequence of arrays is a vector operand. `immediates` puts a
    literal in place of a register. Results have the operand's NumPy type, under the row's name of the destination
    (the second of a pair is `q` after `p`, and `p` after any other name).
    """
    plan = _Plan(opcode, sources, immediates or {})
    engines = [Engine(name, parse(plan.kernel.text)) for name in ENGINES]
    lanes = max(1000, *(len(values) for values in plan.columns.values())) if plan.columns else 1000
    guard = np.resize(np.random.default_rng(7).integers(0, 2, 997).astype(bool), lanes)
    columns = {name: np.resize(values, lanes) for name, values in plan.columns.items()}
    picks = np.linspace(0, lanes - 1, uniform_sets).astype(int)
    results: list[list[Ran]] = []
    for engine in engines:
        runs = []
        for number, pick in enumerate(picks):
            part = slice(None) if number == 0 else slice(0, 64)
            inputs = {name: values[part] for name, values in {**columns, "guard": guard}.items()}
            uniforms = {f"{name}_u": values[pick : pick + 1] for name, values in columns.items()}
            block = _BLOCK if number == 0 else 64
            runs.append(launch(plan.kernel, inputs, uniforms=uniforms, engine=engine.name, program=engine, block=block))
        results.append(runs)
    for runs in results[1:]:
        for mine, reference in zip(runs, results[0], strict=True):
            assert not mine.findings, mine.findings
            for name, ptx_type in plan.kernel.outputs.items():
                assert_same(
                    mine.outputs[name],
                    reference.outputs[name],
                    plan.types.get(name, ptx_type),
                    exact=exact,
                    ulp=ulp,
                    what=f"{opcode} {name}",
                )
    reference_run = results[0][0]
    assert not reference_run.findings, reference_run.findings
    _check_settings(plan, results[0], columns, guard, picks, opcode)
    return {name: plan.typed(name, reference_run.outputs[name]) for name in plan.results}


def _check_settings(
    plan: "_Plan", runs: list[Ran], columns: Mapping[str, Array], guard: Array, picks: Array, opcode: str
) -> None:
    """Check that guarded and divergent lanes agree with the plain ones or keep the old value; uniform ones likewise."""
    first = runs[0].outputs
    for name in plan.results:
        register = bits_type(plan.results[name])
        old = 0 if register == "pred" else _OLD & ((1 << WIDTH[register]) - 1)
        expected = np.where(guard, first[name], np.array(old).astype(first[name].dtype))
        for setting in ("guarded", "divergent"):
            np.testing.assert_array_equal(first[f"{name}_{setting}"], expected, f"{opcode} {name} {setting}")
        for run, pick in zip(runs, picks, strict=True):
            values = run.outputs[f"{name}_uniform"]
            assert (values == first[name][pick]).all(), f"{opcode} {name} with uniform operands"


class _Plan:
    """The kernel of `check`, and how its registers map to the operands of the row."""

    def __init__(self, opcode: str, sources: Mapping[str, Any], immediates: Mapping[str, str]) -> None:
        found = isa.lookup(opcode)
        if found is None:
            raise ValueError(f"no row of the instruction table matches {opcode}")
        row, mods = found
        self.results: dict[str, str] = {}
        self.columns: dict[str, Array] = {}
        inputs: dict[str, str] = {}
        templates: list[str] = []
        for spec in row.operands:
            ptx_type = row.operand_type(spec.name, mods)
            if spec.written:
                self.results[spec.name] = ptx_type
                template = f"%{spec.name}{{d}}"
                if spec.kind == "pair":
                    second = "q" if spec.name == "p" else "p"
                    self.results[second] = "pred"
                    template += f"|%{second}{{d}}"
                templates.append(template)
            elif spec.name in immediates:
                templates.append(immediates[spec.name])
            elif spec.name in sources:
                given = sources[spec.name]
                members = list(given) if isinstance(given, list | tuple) else [given]
                names = [spec.name] if len(members) == 1 else [f"{spec.name}{i}" for i in range(len(members))]
                for name, values in zip(names, members, strict=True):
                    width_type = ptx_type if len(members) == 1 else f"b{8 * np.asarray(values).dtype.itemsize}"
                    inputs[name] = width_type
                    self.columns[name] = np.asarray(values)
                listed = ", ".join(f"%{name}{{s}}" for name in names)
                templates.append(listed if len(members) == 1 else f"{{{{{listed}}}}}")
        text = f"{opcode} {', '.join(templates)};"
        body = "\n  ".join(
            [
                text.format(d="", s=""),
                "@%guard " + text.format(d="_guarded", s=""),
                "@!%guard bra SKIP;",
                text.format(d="_divergent", s=""),
                "SKIP:",
                text.format(d="_uniform", s="_u"),
            ]
        )
        settings = ("", "_guarded", "_divergent", "_uniform")
        outputs = {f"{name}{s}": t for s in settings for name, t in self.results.items()}
        uniforms = {f"{name}_u": t for name, t in inputs.items()}
        self.types = outputs
        self.kernel = kernel(body, {**inputs, "guard": "pred"}, outputs, uniforms=uniforms)

    def typed(self, name: str, bits: Array) -> Array:
        """Return result bits in the NumPy type of the destination operand."""
        ptx_type = self.results[name]
        if ptx_type == "pred":
            return bits.astype(bool)
        if ptx_type in _FLOAT:
            return bits.view(_FLOAT[ptx_type])
        if ptx_type[0] == "s" and ptx_type[1:].isdigit():
            return bits.view(f"int{8 * bits.dtype.itemsize}")
        return bits


def assert_same(got: Array, want: Array, ptx_type: str, *, exact: bool = True, ulp: int = 0, what: str = "") -> None:
    """Assert bit equality, or a difference within `ulp` units in the last place; all f64 NaNs are equal."""
    different = got != want
    if ptx_type == "f64":
        different &= ~(np.isnan(got.view(np.float64)) & np.isnan(want.view(np.float64)))
    if (ulp or not exact) and ptx_type in _FLOAT:
        different &= ulp_distance(got, want, ptx_type) > ulp
    if different.any():
        at = int(np.flatnonzero(different)[0])
        count = int(np.count_nonzero(different))
        raise AssertionError(
            f"{what}: {count} of {len(got)} differ, first at {at}: got {got[at]:#x}, want {want[at]:#x}"
        )


def ulp_distance(a: Array, b: Array, ptx_type: str) -> Array:
    """Return how many floats are between two arrays of bits; NaN is far from everything but NaN."""
    width = WIDTH[ptx_type]
    sign = 1 << (width - 1)

    def ordered(bits: Array) -> Array:
        magnitude = (bits & np.array(sign - 1, bits.dtype)).astype(np.float64)
        signed: Array = np.where(bits >= np.array(sign, bits.dtype), -magnitude, magnitude)
        return signed

    floats = a.view(_FLOAT[ptx_type]), b.view(_FLOAT[ptx_type])
    nan = [np.isnan(x.astype(np.float64)) for x in floats]
    distance = np.abs(ordered(a) - ordered(b))
    return np.where(nan[0] & nan[1], 0, np.where(nan[0] | nan[1], np.inf, distance))
