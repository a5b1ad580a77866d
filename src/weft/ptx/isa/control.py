"""Control flow (PTX ISA 9.7.12) and miscellaneous instructions (9.7.19); dependent launches (9.7.13.13)."""

from dataclasses import replace
from functools import partial

from .facts import COMPUTES, Control, Facts
from .form import Form, form

_f = partial(form, "control", COMPUTES)
_REGISTERS = Facts(group="warp", registers=True, target="sm_90a+")


def _to(control: Control, section: str, text: str) -> Form:
    return form("control", Facts(control=control, result="lane" if control == "call" else "operands"), section, text)


GRANTED = form(
    "control", replace(_REGISTERS, result="lane"), "9.7.19.6", "setmaxnreg.inc.sync.aligned.u32 p:pred, count"
)
"""Not in the manual: it returns whether there were enough registers (`passes/give_way.py`)."""

ROWS: tuple[Form, ...] = (
    _to("jump", "9.7.12.3", "bra{.uni} @target"),
    _to("table", "9.7.12.4", "brx.idx{.uni} index:u32, @targets"),
    _to("call", "9.7.12.5", "call{.uni} *ret, func, *args; prototype"),
    _to("return", "9.7.12.6", "ret{.uni}"),
    _to("exit", "9.7.12.7", "exit"),
    _f("9.7.19.1", "brkpt"),
    _to("trap", "9.7.19.5", "trap"),
    _f("9.7.19.2", "nanosleep.u32 t"),
    _f("9.7.19.3", "pmevent a:u32"),
    form("control", _REGISTERS, "9.7.19.6", "setmaxnreg.action.sync.aligned.u32 count", action="inc dec"),
    form("control", Facts(target="sm_90"), "9.7.13.13", "griddepcontrol.action", action="launch_dependents wait"),
)
