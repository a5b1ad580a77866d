"""A rung of the ladder as definitions, workloads and solutions of flashinfer-bench."""

import json
from collections.abc import Mapping, Sequence
from uuid import NAMESPACE_URL, uuid5

from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import UsageError
from weft.engines.kernel_file import KernelFile, load
from weft.kernels.ladder import MASKS, RUNGS, Rung

from ..torch_binding import torch_unit
from .call import OUTPUTS, SDPA_TAG
from .records import DTYPES, Definition, Solution, TensorSpec, Trace, Workload

DEFAULT_SHAPES = ("small", "ragged", "gqa_4", "few_queries")

ENTRY = "main.cu"

_CHECK = 'TORCH_CHECK(HQ % HKV == 0, HQ, " heads of Q are no multiple of ", HKV, " heads of K and V");'

_MASK_CODE = {
    "none": "",
    "top_left": """
    rows, keys = torch.arange(SQ)[:, None], torch.arange(SKV)[None, :]
    s = s.masked_fill(keys.to(s.device) > rows.to(s.device), float("-inf"))""",
    "bottom_right": """
    rows, keys = torch.arange(SQ)[:, None], torch.arange(SKV)[None, :]
    s = s.masked_fill(keys.to(s.device) > rows.to(s.device) + SKV - SQ, float("-inf"))""",
}

_REFERENCE = '''\
import math

import torch


@torch.no_grad()
def run(q, k, v):
    """softmax(Q K^T / sqrt(D) + mask) V in float32; lse is the natural logarithm of the sum."""
    B, HQ, SQ, D = q.shape
    SKV, group = k.shape[2], HQ // k.shape[1]
    k = k.float().repeat_interleave(group, dim=1)
    v = v.float().repeat_interleave(group, dim=1)
    s = q.float() @ k.transpose(-1, -2) / math.sqrt(D)@MASK@
    lse = torch.logsumexp(s, dim=-1)
    p = torch.where(torch.isfinite(lse)[..., None], torch.exp(s - lse[..., None]), 0.0)
    return (p @ v).to(q.dtype), lse
'''


def make_files(rung: str, *, shapes: Sequence[str] = DEFAULT_SHAPES, defines: Mapping[str, str] = {}) -> dict[str, str]:
    """Return path → text: a definition and solution for each (HQ, HKV, D) of the shapes, a workload for each shape."""
    chosen = _rung(rung)
    kernel = load(chosen.path, defines=defines)
    unknown = [name for name in defines if name not in {define.name for define in kernel.lines.defines}]
    if unknown:
        raise UsageError(f"-D {unknown[0]}: {rung} has no such define; it has {', '.join(('ELEMENT', *chosen.levers))}")
    groups: dict[tuple[int, int, int], list[Shape]] = {}
    for shape in _shapes(chosen, shapes):
        groups.setdefault((shape.hq, shape.hkv, shape.d), []).append(shape)
    files: dict[str, str] = {}
    for members in groups.values():
        definition = _definition(kernel, members[0])
        solution = _solution(chosen, kernel, definition, members)
        rows = [Trace(definition.name, _workload(definition, shape)).record() for shape in members]
        files[f"definitions/{definition.op_type}/{definition.name}.json"] = _text(definition.record())
        files[f"solutions/{definition.op_type}/{definition.name}/{solution.name}.json"] = _text(solution.record())
        files[f"workloads/{definition.op_type}/{definition.name}.jsonl"] = "".join(
            json.dumps(row) + "\n" for row in rows
        )
    return files


def _text(record: object) -> str:
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _rung(name: str) -> Rung:
    exportable = [rung.name for rung in RUNGS.values() if rung.task == "sdpa" and rung.path.suffix == ".cu"]
    if name not in exportable:
        known = f"{name} computes {RUNGS[name].task}" if name in RUNGS else f"there is no rung {name!r}"
        raise UsageError(
            f"{known}; flashinfer-bench definitions are written for CUDA rungs of sdpa only: {', '.join(exportable)}. "
            "`weft export KERNEL --torch FILE.cu` writes other CUDA kernels as PyTorch extensions"
        )
    return RUNGS[name]


def _shapes(rung: Rung, names: Sequence[str]) -> list[Shape]:
    if not names:
        raise UsageError("a definition needs at least one shape")
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        raise UsageError(f"unknown shape {unknown[0]!r}; `weft list` has the names")
    for name in names:
        if rung.largest_d is not None and SHAPES[name].d > rung.largest_d:
            raise UsageError(f"{rung.name} takes D up to {rung.largest_d}; leave out shape {name}")
    return [SHAPES[name] for name in names]


def _definition(kernel: KernelFile, shape: Shape) -> Definition:
    element = {name: kind for kind, name in DTYPES.items()}[kernel.outputs[0].element]
    mask = MASKS[int(kernel.defines.get("CAUSAL", "0"))]
    if any(kernel.defines.get(name, "-1") != "-1" for name in ("WINDOW_LEFT", "WINDOW_RIGHT")):
        raise UsageError("-D WINDOW_LEFT, WINDOW_RIGHT: the definition has no window")
    masked = "" if mask == "none" else f"_causal_{mask}"
    q, kv = ("B", "HQ", "SQ", "D"), ("B", "HKV", "SKV", "D")
    outputs = {"output": TensorSpec(q, element), "lse": TensorSpec(q[:3], "float32")}
    arrays = [line.name for line in kernel.outputs]
    return Definition(
        name=f"sdpa{masked}_h{shape.hq}_kv{shape.hkv}_d{shape.d}_{element}",
        op_type="sdpa",
        axes={"B": None, "SQ": None, "SKV": None, "HQ": shape.hq, "HKV": shape.hkv, "D": shape.d},
        inputs={"q": TensorSpec(q, element), "k": TensorSpec(kv, element), "v": TensorSpec(kv, element)},
        outputs={name: spec for name, spec in outputs.items() if OUTPUTS[name] in arrays},
        reference=_REFERENCE.replace("@MASK@", _MASK_CODE[mask]),
        tags=(f"{SDPA_TAG}{mask}",),
        description=f"Dense attention, mask {mask}; a query that sees no key gives 0 and -inf.",
    )


def _workload(definition: Definition, shape: Shape) -> Workload:
    axes = {"B": shape.b, "SQ": shape.sq, "SKV": shape.skv}
    uuid = uuid5(NAMESPACE_URL, f"weft {definition.name} {sorted(axes.items())}")
    return Workload(str(uuid), axes, {name: {"type": "random"} for name in definition.inputs})


def _solution(rung: Rung, kernel: KernelFile, definition: Definition, shapes: Sequence[Shape]) -> Solution:
    sizes = [{"B": s.b, "HQ": s.hq, "HKV": s.hkv, "SQ": s.sq, "SKV": s.skv, "D": s.d} for s in shapes]
    notes = [
        f"{rung.name} as a PyTorch extension for flashinfer-bench: {rung.idea}.",
        f"Generated by `weft export {rung.name} --flashinfer-bench FOLDER`. Not run on hardware.",
    ]
    return Solution(
        name=f"weft_{rung.name}_{definition.name}",
        definition=definition.name,
        author="weft",
        language="cuda",
        entry_point=f"{ENTRY}::forward",
        sources={ENTRY: torch_unit(kernel, sizes, notes=notes, checks=_CHECK, every_output=True)},
        target_hardware=("cuda",),
        destination_passing_style=False,
        binding="torch",
        description=rung.idea,
    )
