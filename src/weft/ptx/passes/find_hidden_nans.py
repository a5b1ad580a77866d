"""Finds f32 registers whose NaN payload cannot be observed, so that arithmetic need not make it canonical.

PTX says that an f32 result which is NaN is 0x7fffffff. A register read only by arithmetic, comparisons, conversions
and tensor cores never shows those bits: a NaN stays a NaN, and the next result that can be seen is made canonical.
"""

from collections.abc import Iterator

from ..module import Instruction, Reg, Vec
from .build_cfg import Cfg

_ARITHMETIC = frozenset(
    ["add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "min", "max"]
)
_PASS_ON = frozenset(["mov", "selp", "shfl"])
"""Instructions that copy bits: they are hidden if their result is."""


def find_hidden_nans(cfg: Cfg) -> frozenset[str]:
    """Return the registers whose readers all ignore NaN payloads, directly or through copies that are hidden too."""
    exposed: set[str] = set()
    copies: list[tuple[str, str]] = []
    for block in cfg.blocks:
        for ins in (*block.body, *((block.end,) if block.end else ())):
            blind = set(_blind(ins))
            passed = set(_passed_on(ins))
            for reg in ins.read():
                if reg.name in passed:
                    copies += [(reg.name, written.name) for written in ins.written()]
                elif reg.name not in blind:
                    exposed.add(reg.name)
    changed = True
    while changed:
        changed = False
        for source, target in copies:
            if target in exposed and source not in exposed:
                exposed.add(source)
                changed = True
    return frozenset(cfg.function.registers.keys() - exposed)


def _blind(ins: Instruction) -> Iterator[str]:
    """Yield the registers that `ins` reads only as f32 numbers."""
    name, chapter = ins.form.name, ins.form.chapter
    if chapter == "floating" and name in _ARITHMETIC and ins.type == "f32" and not ins.has("xorsign"):
        slots: tuple[str, ...] = ("a", "b", "c")
    elif _compares_or_converts(ins):
        slots = ("a", "b")
    elif name in ("mma", "wmma") and ins.mods.get("ctype") == "f32":
        slots = ("c",)
    else:
        slots = ()
    for slot in slots:
        operand = ins.find(slot)
        for item in operand.items if isinstance(operand, Vec) else (operand,):
            if isinstance(item, Reg):
                yield item.name


def _compares_or_converts(ins: Instruction) -> bool:
    """Return whether it ignores the payload, as comparisons do, or canonicalises; cvt to tf32 and f64 keep it."""
    if ins.form.chapter == "compare":
        return ins.form.name in ("set", "setp") and ins.type == "f32"
    return (
        ins.form.chapter == "convert"
        and ins.mods.get("atype") == "f32"
        and ins.mods.get("dtype") not in ("tf32", "f64")
    )


def _passed_on(ins: Instruction) -> Iterator[str]:
    if ins.form.name not in _PASS_ON:
        return
    for slot in ("a", "b") if ins.form.name == "selp" else ("a",):
        operand = ins.find(slot)
        if isinstance(operand, Reg):
            yield operand.name
